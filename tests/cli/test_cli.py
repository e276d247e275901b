"""The command line: light help, exit codes, one JSON document, and the stages one after the other."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from tiny import TINY, sentences

from seedbed import cli
from seedbed.cli.quickstart import recipe_config
from seedbed.errors import InputError

ROOT = Path(__file__).parent.parent.parent


def seedbed(*arguments: object, cwd: Path | None = None, check: int | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", "from seedbed.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd or ROOT, timeout=300, check=False)
    if check is not None:
        assert done.returncode == check, done.stderr
    return done


def refused(done: subprocess.CompletedProcess) -> str:
    """The one line of a refusal."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.parametrize(
    "arguments",
    [[], ["train"], ["config"], ["data", "prepare"], ["quickstart"], ["preflight"], ["generate"], ["serve"]],
)
def test_help_imports_nothing_heavy(arguments):
    program = (
        "import sys\nfrom seedbed.cli.app import app\n"
        "try:\n    app([*sys.argv[1:], '--help'], standalone_mode=False)\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_importing_the_package_is_light():
    program = "import sys, seedbed; seedbed.Config; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_shell_completion_is_there():
    asked = {"_SEEDBED_COMPLETE": "complete_bash", "COMP_WORDS": "seedbed tra", "COMP_CWORD": "1"}
    script = Path(sys.executable).parent / "seedbed"
    done = subprocess.run([script], env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["train"]
    assert "--install-completion" in seedbed("--help", check=0).stdout


def test_a_configuration_is_shown_complete_and_reloads(tmp_path):
    done = seedbed("config", "show", "recipes/cpu.yaml", "optim.lr=1e-3", check=0)
    (tmp_path / "c.yaml").write_text(done.stdout)
    again = seedbed("config", "show", tmp_path / "c.yaml", check=0)
    assert again.stdout == done.stdout
    as_json = json.loads(seedbed("config", "show", "recipes/cpu.yaml", "optim.lr=1e-3", "--json", check=0).stdout)
    assert as_json["optim"]["lr"] == 1e-3
    assert as_json["model"]["norm_eps"] == 1e-12
    schema = json.loads(seedbed("config", "schema", check=0).stdout)
    assert schema["properties"]["train"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["train", "recipes/cpu.yaml", "optim.learning_rat=1"], ["optim.learning_rat", "'lr'"]),  # case 51
        (["train", "recipes/cpu.yaml", "optimm.lr=1"], ["optimm", "'optim'"]),
        (["train", "recipes/cpu.yaml", "optim.lr=fast"], ["optim.lr", "number"]),
        (["train", "nowhere.yaml"], ["nowhere.yaml", "no such"]),
        (["train", "recipes/cpu.yaml", "data.store=nowhere"], ["nowhere", "data prepare"]),
        (["preflight", "recipes/cpu.yaml", "--init", "gamma,gama=1", "data.store=x"], ["--init", "'gamma'"]),
        (["preflight", "recipes/cpu.yaml", "--params-only", "data.store=null"], ["model.vocab_size"]),
        (["generate", "nowhere"], ["nowhere", "no such folder"]),
        (["config", "show", "recipes"], ["recipes", "a folder"]),
        (["config", "show", "train.steps=1"], ["optim.schedule.warmup", "train.steps=1"]),
        (["preflight", "recipes/cpu.yaml", "--params-only", "train.steps=1"], ["optim.schedule.warmup"]),
        (["preflight", "recipes/cpu.yaml", "train.init_from=r"], ["train.init_from=r", "leave it out"]),
        (["generate", "nowhere", "--temperature", "inf"], ["temperature inf", "finite"]),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(arguments, parts):
    line = refused(seedbed(*arguments))
    for part in parts:
        assert part in line


@pytest.mark.parametrize(
    ("option", "value"), [("--seed", -1), ("--seed", 2**63), ("--n", 0), ("--temperature", "warm")]
)
def test_an_option_out_of_range_is_exit_2(option, value):
    done = seedbed("generate", "nowhere", option, value)
    assert done.returncode == 2
    assert f"'{option}'" in done.stderr
    assert "Traceback" not in done.stderr


def stopped(monkeypatch, capsys, error: Exception) -> tuple[int, str]:
    """How a command that raises ``error`` ends."""

    def command(**_: object) -> None:
        raise error

    monkeypatch.setattr("seedbed.cli.app.app", command)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main sets it; put back after the test
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code, capsys.readouterr().err  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "permissions"),
        (errno.ENOSPC, "make room"),
        (errno.ENOTDIR, "a part of the path is a file"),
        (errno.ENAMETOOLONG, "shorter"),
        (errno.EEXIST, "another name"),
        (errno.EIO, "check the path"),
    ],
)
def test_a_trouble_with_a_file_is_one_line_and_exit_2(monkeypatch, capsys, number, advice):
    code, err = stopped(monkeypatch, capsys, OSError(number, os.strerror(number), "a/b"))
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: a/b: {os.strerror(number)}; ")
    assert advice in err


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch, capsys):
    for error in (ValueError("ours"), OSError("a library's own words")):
        with pytest.raises(type(error)):
            stopped(monkeypatch, capsys, error)


def test_a_message_is_one_line_whatever_was_typed(monkeypatch, capsys):
    assert stopped(monkeypatch, capsys, InputError("run.dir=a\nb: no")) == (2, "error: run.dir=a b: no\n")


def test_a_reader_that_goes_away_ends_a_command_quietly():
    command = [sys.executable, "-c", "from seedbed.cli import main; main()", "config", "show"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.close()
    assert (process.stderr.read(), process.wait(60)) == (b"", 1)
    process.stderr.close()


def test_a_full_disk_under_the_output_is_one_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", "from seedbed.cli import main; main()", "config", "show"]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: a file or the output: No space left on device; make room, and run the same command again\n"
    )


def test_output_is_utf8_whatever_the_locale_says():
    command = [sys.executable, "-c", "from seedbed.cli import main; main()", "config", "show"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*command, "run.dir=é"], cwd=ROOT, env=ascii_only, capture_output=True, check=True)
    assert "dir: é" in done.stdout.decode()
    done = subprocess.run([*command, "run.dri=é"], cwd=ROOT, env=ascii_only, capture_output=True, check=False)
    assert "run.dri=é" in done.stderr.decode()


@pytest.mark.parametrize("name", ["a: b", "a #b", "#", "é🙂", "a'b", 'a"b', "a\\b", "[x]", "&a", "1"])
def test_a_folder_of_any_name_is_taken_as_it_is(name):
    config = recipe_config(Path(name), [])
    assert (config.data.store, config.run.dir) == (f"{name}/store", f"{name}/run")


def test_an_unknown_option_is_exit_2():
    done = seedbed("train", "recipes/cpu.yaml", "--stpes", "3")
    assert done.returncode == 2
    assert "--stpes" in done.stderr


def test_parameter_counts_of_s1():
    done = seedbed("preflight", "recipes/astrai-1.2b.yaml", "--params-only", check=0)
    assert "1.204B parameters" in done.stdout
    assert "1,203,807,744" in done.stdout
    counts = json.loads(seedbed("preflight", "recipes/astrai-1.2b.yaml", "--params-only", "--json", check=0).stdout)
    assert counts["parameters"] == 1_203_807_744
    assert counts["non_embedding"] == 1_203_807_744 - 2 * 100_000 * 1536
    assert sum(role["parameters"] for role in counts["roles"]) == counts["parameters"]


@pytest.fixture(scope="module")
def stages(tmp_path_factory) -> Path:
    """tokenizer train, data prepare and train, on a text of our own, as a user would."""
    folder = tmp_path_factory.mktemp("stages")
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(200, seed=1)))
    seedbed("tokenizer", "train", "text.jsonl", "--vocab-size", 300, "-o", "tok", cwd=folder, check=0)
    seedbed("data", "prepare", "text.jsonl", "--tokenizer", "tok", "-o", "store", "--seq-len", 32, cwd=folder, check=0)
    return folder


def test_the_stages_one_after_the_other(stages):
    run = ["train", ROOT / "recipes" / "cpu.yaml", *TINY, "data.store=store", "run.dir=r"]
    done = seedbed(*run, "--json", cwd=stages, check=0)
    summary = json.loads(done.stdout)
    assert summary["steps"] == 6
    assert "Muon" in done.stderr
    assert (stages / "r" / "report.html").is_file()
    again = seedbed(*run, cwd=stages, check=0)
    assert f"{summary['nats_per_token']:.4f} nats per token" in again.stdout
    text = json.loads(seedbed("generate", "r", "the small", "--json", cwd=stages, check=0).stdout)
    assert text["written"][0]["prompt"] == "the small"
    assert "shorten it" in refused(seedbed("generate", "r", "the small " * 40, cwd=stages))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.chaos
def test_killed_at_any_moment_a_run_goes_on(stages):
    run = [
        "train",
        ROOT / "recipes" / "cpu.yaml",
        *TINY,
        "data.store=store",
        "train.steps=150",
        "train.checkpoint_every=20",
    ]
    command = [sys.executable, "-c", "from seedbed.cli import main; main()", *map(str, run), "run.dir=killed"]
    for signum, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)):
        before = lines(stages / "killed" / "metrics.jsonl")
        process = subprocess.Popen(command, cwd=stages, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if lines(stages / "killed" / "metrics.jsonl") > before + 25:
                break
            time.sleep(0.02)
        process.send_signal(signum)
        _, err = process.communicate(timeout=120)
        assert process.returncode == code, err
        if signum != signal.SIGKILL:
            assert "the same command resumes it" in err
    done = seedbed(*run, "run.dir=killed", "--json", cwd=stages, check=0)
    assert "resuming killed after step" in done.stderr
    rows = [json.loads(line) for line in (stages / "killed/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "train"] == list(range(1, 151))
    whole = seedbed(*run, "run.dir=whole", cwd=stages, check=0)
    assert whole.returncode == 0
    name = "checkpoints/step_00000150/model.safetensors"
    assert (stages / "killed" / name).read_bytes() == (stages / "whole" / name).read_bytes()
