import html
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest

from seedbed.facts.fact import ParameterFact
from seedbed.measure.rows import WeightRow
from seedbed.measure.spectra import MatrixStats, gaussian_stats
from seedbed.measure.trajectory import measures
from seedbed.report import page as page_module
from seedbed.report.dynamics_claims import CLAIMS
from seedbed.report.page import draw_summary, parameter_counts, run_page
from seedbed.report.render import number, signed
from seedbed.train.progress import duration

VOID = {"meta", "br", "link", "img", "input"}


class Checker(HTMLParser):
    """Collects what a page refers to and its tags, and sees that every tag is closed."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "xlink:href", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style",):
            self.text += f" {data}"


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def page(run_report) -> str:
    return run_page(run_report)


@pytest.mark.usefixtures("undrawn")
def test_matrices_that_were_not_measured_are_named(run_report, page):
    assert "Not measured" not in check(page).text
    told = check(run_page(replace(run_report, unmeasured="all layers but 0, 8"))).text
    assert "Not measured, since all ranks wait meanwhile: all layers but 0, 8." in told


def test_page_is_whole_and_needs_no_network(run_report, page):
    seen = check(page)
    assert seen.tags.count("svg") == 6
    assert seen.references
    assert all(reference.startswith("#") for reference in seen.references)
    assert not re.search(r"@import|url\((?!#)", page)
    assert not {"script", "link", "iframe", "img"} & set(seen.tags)
    assert page == run_page(run_report)


@pytest.mark.usefixtures("undrawn")
def test_options_that_are_not_set_are_left_out(run_report):
    plan = run_report.receipt["plan"] | {"options": {"gamma": 1.0, "by_role": None}}
    page = run_page(replace(run_report, receipt=run_report.receipt | {"plan": plan}))
    assert "gamma = 1.0, seed 0;" in " ".join(check(page).text.split())
    assert "by_role" not in page


def test_sample_is_escaped_and_chinese_stays(run_report, page):
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; 中文的种子 🌱\n    return None" in page
    assert "<script" not in page
    assert html.unescape(page).count(run_report.sample) == 1


@pytest.mark.parametrize("field", ["name", "prompt"])
def test_other_texts_are_escaped_too(run_report, field):
    bare = replace(run_report, metrics=[], weights_before=[], weights_after=[], sink_before=None, sink_after=None)
    page = run_page(replace(bare, **{field: "<i>x</i>"}))
    assert "&lt;i&gt;x&lt;/i&gt;" in page
    assert "<i>" not in page


def test_page_says_what_was_run_and_how_it_came_out(run_report, page):
    text = " ".join(check(page).text.split())
    last = [row for row in run_report.metrics if row["kind"] == "eval"][-1]
    for shown in (
        "runs/quickstart",
        "gamma = 1.0, seed 0;",
        f"{last['nats_per_token']:.3f} held-out nats / token",
        f"{last['bits_per_byte']:.3f} held-out bits / byte",
        "491,520 training tokens seen",
        "44 s in training steps",
        "torch 2.13.0",
        "documents 1,234",
        "gate: elementwise",  # the configuration
        "layers.3.mlp.down.weight",  # the receipt
    ):
        assert shown in text, shown


def test_what_was_not_measured_is_said(run_report):
    bare = replace(
        run_report, metrics=[], weights_before=[], weights_after=[], sink_before=None, sink_after=None, sample=""
    )
    seen = check(run_page(bare))
    assert "svg" not in seen.tags
    assert seen.text.count("Not measured.") == 2
    assert "never evaluated" in seen.text
    assert "None was generated." in seen.text


@pytest.mark.usefixtures("undrawn")
def test_only_trained_weights_make_a_table_too(run_report):
    text = check(run_page(replace(run_report, weights_before=[], sink_before=None))).text
    assert "attn.q" in text
    assert "– → " in text


@pytest.mark.usefixtures("undrawn")
def test_case_49_problems_stand_on_the_page(run_report):
    row = run_report.weights_after[1]
    broken = replace(row, stats=MatrixStats((32, 32), problem="2 of 1024 entries are NaN or infinite"), gaussian=None)
    rows = [run_report.weights_after[0], broken, *run_report.weights_after[2:]]
    text = check(run_page(replace(run_report, weights_after=rows))).text
    assert "Left out of the means: trained, layers.0.attn.q.weight: 2 of 1024 entries are NaN or infinite." in text


def test_parameter_counts_with_and_without_embeddings():
    rows = [("embed", [10, 4]), ("pos", [5, 4]), ("attn.q", [4, 4]), ("norm", [4]), ("head", [10, 4])]
    assert parameter_counts([{"role": role, "shape": shape} for role, shape in rows]) == {
        "total": 120,
        "without_embeddings": 20,
    }


def test_draw_summary_finds_the_worst_draw():
    rows = [
        {"role": "attn.q", "distribution": "N", "target_std": 0.1, "std": 0.101},
        {"role": "attn.q", "distribution": "N", "target_std": 0.1, "std": 0.095},
        {"role": "norm", "distribution": "= 1", "target_std": 0.0, "std": 0.0},
    ]
    matrix, norm = draw_summary(rows)
    assert matrix["draws"] == 2
    assert matrix["worst"] == pytest.approx(0.05)
    assert matrix["std"] == pytest.approx(0.098)
    assert norm["worst"] is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (0, "0"), (0.03906, "0.0391"), (0.8, "0.800"), (532.4, "532"), (1324.4, "1,324"),
        (2.5e-7, "2.50·10⁻⁷"), (3.1e9, "3.10·10⁹"), (float("inf"), "∞"), (float("nan"), "–"), (12.0, "12.0"),
        (-0.8, "−0.800"), (-1324.4, "−1,324"), (-2.5e-7, "−2.50·10⁻⁷"), (float("-inf"), "−∞"),
    ],
)  # fmt: skip
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (float("nan"), "–"), (0.0, "+0.00"), (-0.001, "+0.00"), (-0.5, "−0.50"), (1.25, "+1.25")],
)
def test_signed_numbers(value, text):
    assert signed(value, 2) == text


def test_durations():
    assert [duration(s) for s in (41.6, 303, 3600 * 2 + 7 * 60)] == ["42 s", "5 min 03 s", "2 h 07 min"]


@pytest.mark.usefixtures("undrawn")
def test_steps_that_a_curve_leaves_out_are_told(run_report):
    """Before the first step layer 3 was not measured, so a mean there would be over other layers than later."""
    rows = [row for row in run_report.weights_before if row.role == "attn.q"]
    found = {f"{row.role}/{row.layer}": measures(row.stats) for row in rows}
    metrics = [*run_report.metrics, {"kind": "weights", "step": 7, "tokens": 70, "components": found}]
    told = "over steps, attn.q: not all of its matrices have a number, so no mean over them (step 0)"
    assert told not in run_page(replace(run_report, metrics=metrics, weights_before=rows))
    assert told in run_page(replace(run_report, metrics=metrics, weights_before=rows[:-1]))
    assert "over steps, attn.q" not in run_page(replace(run_report, weights_before=rows[:-1]))


@pytest.mark.usefixtures("undrawn")
def test_a_damaged_row_of_weights_is_told_and_costs_no_page(run_report):
    rows = [row for row in run_report.weights_before if row.role == "attn.q"]
    found = {f"{row.role}/{row.layer}": measures(row.stats) for row in rows}
    whole = {"kind": "weights", "step": 7, "tokens": 70, "components": found}
    broken = {"kind": "weights", "step": 8, "tokens": 80, "components": {"attn.q/0": {}}}
    told = "over steps, step 8: the row of kind weights in metrics.jsonl is damaged"
    page = run_page(replace(run_report, metrics=[*run_report.metrics, whole, broken]))
    assert told in page and "Stable rank over steps" in page
    page = run_page(replace(run_report, metrics=[*run_report.metrics, broken]))
    assert told in page and "Stable rank over steps" not in page


@pytest.mark.usefixtures("undrawn")
def test_gaussian_lines_are_of_the_shapes_in_the_table(run_report, monkeypatch):
    """A head of zeros has no numbers before the first step, and of large models some layers are not measured then."""
    shown = []
    real = page_module.measure_figure
    monkeypatch.setattr(page_module, "measure_figure", lambda *given: shown.append(given) or real(*given))
    first = next(row for row in run_report.weights_before if row.role == "mlp.up")
    metrics = [
        *run_report.metrics,
        {"kind": "weights", "step": 7, "tokens": 70, "components": {"head": measures(first.stats)}},
    ]
    zero = MatrixStats((6, 4), problem="all entries are zero")
    head = ParameterFact("head.weight", "head", (6, 4), 4, 6)
    html = run_page(
        replace(
            run_report,
            metrics=metrics,
            weights_before=[WeightRow("head.weight", "head", None, zero, None)],
            facts=[head],
        )
    )
    optimizer = run_report.config["optim"]["name"]
    assert CLAIMS[optimizer] in unescape(html)  # of the optimizer that the run has
    assert all(claim not in unescape(html) for name, claim in CLAIMS.items() if name != optimizer)
    (_, (reference,), _), _ = shown
    assert (reference.component, reference.stable_rank) == ("head", gaussian_stats(6, 4).stable_rank)
