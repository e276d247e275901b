"""seedbed preflight: one configuration or several side by side, as tables, JSON and a page."""

import json
from pathlib import Path

import pytest
from arms import arm
from rich.console import Console
from tiny import TINY

from seedbed.cli.app import app
from seedbed.cli.preflight_text import _fitting
from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.report.preflight_tables import gradient_table, plan_table

RECIPE = str(Path(__file__).parents[2] / "recipes" / "cpu.yaml")


def preflight(store: Path, *arguments: str) -> None:
    app(["preflight", RECIPE, *TINY, f"data.store={store}", *arguments], standalone_mode=False)


def test_arms_side_by_side(tiny_store, tmp_path, capsys):
    page = tmp_path / "p.html"
    preflight(tiny_store, "--init", "gpt2", "--init", "mup,base_width=16", "--html", str(page))
    told = capsys.readouterr()
    for part in (
        "gamma gamma=1.0", "gpt2 std=0.02", "mup base_width=16", "ln V", "ε = 10⁻¹²", "ε = 10⁻⁵", "bf16 error",
        "predicted", "Memory", "6 steps of", "timed in fp32 on cpu", "\nVerdict on gpt2 std=0.02\n",
        "head is zero by design",
    ):  # fmt: skip
        assert part in told.out, part
    assert "Over widths" not in told.out
    assert told.out.index("Verdict on") > told.out.index("Memory")  # last, where the eye is
    assert f"{page} has the page" in told.err
    assert "mup base_width=16" in page.read_text(encoding="utf-8")


def test_an_initialization_given_twice_is_measured_once_and_warnings_are_said_once(tiny_store, capsys):
    same = ["--init", "gamma,gamma=1.0", "--init", "gamma,by_role={attn: 1.0, mlp: 0.8}"]
    with pytest.warns(UserWarning, match="ids never occur") as said:
        preflight(tiny_store, "model.vocab_size=310", "--json", *same)
    assert len([one for one in said if "never occur" in str(one.message)]) == 1
    arms = json.loads(capsys.readouterr().out)["arms"]
    assert [arm["init"]["by_role"] for arm in arms] == [None, {"attn": 1.0, "mlp": 0.8}]


def test_json_has_every_number(tiny_store, capsys):
    preflight(tiny_store, "--init", "gamma,gamma=0.5", "--widths", "16,32", "--coord-check", "--json")
    told = json.loads(capsys.readouterr().out)
    one, half = told["arms"]
    assert one["init"] == {"law": "gamma", "gamma": 1.0, "by_role": None}
    assert half["init"]["gamma"] == 0.5
    assert one["first_loss"] == pytest.approx(one["logits"]["uniform_loss"], abs=0.1)
    assert {row["parameter"] for row in one["plan"]} >= {"embed.weight", "head.weight"}
    assert one["verdicts"][0]["level"] == "warning"  # the MLP branch of gamma = 1
    assert one["verdicts"][0]["numbers"]["exponent"] == pytest.approx(-0.5)
    assert one["scaling"]["mlp"]["balancing"] == pytest.approx(5 / 6)
    assert [row["layer"] for row in one["precision"]["layers"]] == [0, 1, 2]
    assert [len(heads) for heads in one["sink"]["scores"]] == [2, 2]
    assert {row["role"] for row in one["gradients"]} > {row["role"] for row in one["lost_updates"]} > {"head"}
    assert all(row["measured"] is not None for row in one["budget"])
    assert [row["branch"] for row in one["widths"]] == ["attention", "mlp", "flow"]
    assert half["widths"][1]["widths"] == half["coordinates"]["widths"] == [16, 32]
    assert half["widths"][0]["tokens"] == 4 * 32
    for gamma, arm_ in ((1.0, one), (0.5, half)):
        fits = {row["role"]: row["gamma"] for row in arm_["gammas"]}
        assert [fits["mlp.down"], fits["embed"]] == pytest.approx([gamma] * 2, abs=0.05)
    assert told["resources"]["steps"] == 6
    assert told["resources"]["memory"]["weights"] > 0


def test_measure_finds_the_gammas_of_balanced_branches(tiny_store, capsys):
    preflight(tiny_store, "--measure", "0.5", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [branch["ratio"] for branch in found["branches"]] == [pytest.approx(0.5, rel=2e-3)] * 2
    preflight(tiny_store, *found["overrides"], "--json")
    (arm_,) = json.loads(capsys.readouterr().out)["arms"]
    assert arm_["residual"]["layers"][0]["attn"] == pytest.approx(0.5, rel=0.3)  # of that layer alone
    preflight(tiny_store, "--measure", "0.5")
    shown = capsys.readouterr().out
    assert f"{found['branches'][1]['gamma']:.4f}" in shown
    assert "'init.by_role={attn: " in shown


def test_measure_keeps_what_is_said_of_other_roles(tiny_store, capsys):
    given = ["init.by_role={embed: 0.5, head: 0.7, attn.q: 0.9}", "--measure", "0.5"]
    preflight(tiny_store, *given, "--json")
    found = json.loads(capsys.readouterr().out)
    preflight(tiny_store, "--measure", "0.5", "--json")
    assert json.loads(capsys.readouterr().out)["branches"] != found["branches"]
    told = Config.load(None, found["overrides"]).init.options["by_role"]
    assert told == pytest.approx(
        {"embed": 0.5, "head": 0.7, **{b["family"]: b["gamma"] for b in found["branches"]}}, abs=1e-4
    )
    preflight(tiny_store, *given)
    shown = capsys.readouterr().out
    assert "they take the place of init.by_role {attn.q: 0.9}" in shown
    assert "'init.by_role={embed: 0.5, head: 0.7, attn: " in shown


def test_slopes_and_gammas_are_shown_with_what_they_rest_on(tiny_store, tmp_path, capsys):
    page = tmp_path / "p.html"
    preflight(tiny_store, "--widths", "16,32", "--init", "mup,base_width=16", "--html", str(page))
    shown = " ".join(capsys.readouterr().out.split())
    assert "Over widths, on 128 tokens" in shown
    assert "γ as drawn" in shown
    assert "on 128 held-out tokens" in page.read_text(encoding="utf-8")
    assert "What γ is each law?" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--widths", "16,x"], "--widths 16,x: write whole numbers"),
        (["--widths", "16"], "widths: .*at least two"),
        (["--measure", "0.5", "init.law=gpt2"], "init.law=gpt2 has no gamma"),
        (["--measure", "-1"], "above 0"),
        (["--init", "gamma=0.5"], "--init gamma=0.5"),
        (["--init", "gamma,gamma=1,gamma=2"], "gives an option twice"),
        (["--widths", ""], "write whole numbers"),
        (["--widths", "64,1000000"], "models up to 8192 wide"),
        (["--measure", "0.5", "--html", "x.html"], "--measure does one thing: leave out --init"),
        (["--params-only", "--widths", "16,32"], "--params-only does one thing"),
        (["--html", "/"], "--html /: is a folder"),
        (["init.gamma=-9"], "init: .*scale|init: .*draw"),
    ],
)
def test_wrong_input(tiny_store, arguments, message):
    with pytest.raises(InputError, match=message):
        preflight(tiny_store, *arguments)


def test_a_missing_store_is_said():
    with pytest.raises(InputError, match="nowhere"):
        preflight(Path("nowhere"))


def test_arms_that_do_not_fit_go_below():
    arms = [arm(law) for law in ("gamma", "gpt2", "mup", "balanced")]
    for table in (gradient_table(arms), plan_table([one.plan for one in arms])):
        wide, narrow = (Console(width=width, highlight=False) for width in (400, 100))
        assert len(list(_fitting(table, wide))) == 1
        parts = list(_fitting(table, narrow))
        assert len(parts) > 1
        with narrow.capture() as capture:
            for part in parts:
                narrow.print(part)
        text = capture.get()
        assert all(one.title in " ".join(text.split()) for one in arms)
        assert "layers.*.mlp.down" in text or "attn.v" in text  # names are not folded
        assert max(map(len, text.splitlines())) <= 100


def test_one_arm_wider_than_the_terminal_still_ends():
    assert len(list(_fitting(gradient_table([arm(), arm()]), Console(width=20)))) == 2
