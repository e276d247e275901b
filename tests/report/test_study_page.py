"""The page of a study: sentences that follow from the numbers, nothing left out, figures that show the rows."""

import json
from dataclasses import asdict, replace

import pytest
from fake_study import carried_out, law, made_plan, outcome_of, scores

from seedbed.measure.table import Rows
from seedbed.report.markdown import page_markdown
from seedbed.report.sections import Page, page_html
from seedbed.report.study_compare_page import study_compare_page
from seedbed.report.study_figures import curves_figure, gap_figure, gap_points_figure, knob_figure, tuning_figure
from seedbed.report.study_page import study_page
from seedbed.report.study_rows import SlopeRow, study_tables
from seedbed.report.study_scaling_figures import gains_figure, optimum_figure, scaling_figure
from seedbed.report.study_scores_section import FOREMOST, scores_figure
from seedbed.report.study_sentences import found, summary_table
from seedbed.report.study_slopes import change_table, still_falling
from seedbed.report.study_trend_rows import FitRow, ScoreRow
from seedbed.study.compare import compare
from seedbed.study.outcome import Outcome
from seedbed.study.results import results


@pytest.fixture(scope="module")
def plan(tiny_store):
    return made_plan(tiny_store)


@pytest.fixture(scope="module")
def result(plan, tmp_path_factory):
    return results(plan, carried_out(plan), tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def smoke(tiny_store, tmp_path_factory):
    plan = made_plan(tiny_store, seeds=[7])
    return results(plan, carried_out(plan), tmp_path_factory.mktemp("runs"))


def told(page: Page) -> str:
    """All words of a page."""
    return page_markdown(page).replace("\u00a0", " ")


def test_sections_from_question_to_configuration(result):
    page = study_page(result, {"command": "seedbed study report X"})
    assert [section.title for section in page.sections] == [
        "What was found", "Against gamma 0.5", "Best gamma", "Effective size", "Final losses", "How they learn",
        "What the models look like", "What each arm chose", "How far it is", "What was run",
    ]  # fmt: skip
    assert [picture.name for picture in page.pictures] == [
        "gaps", "optimum", "scaling", "curves", "gradients", "looks", "weights", "profiles_rms",
        "profiles_rank_share", "token_gains", "tuning",
    ]  # fmt: skip
    assert page.provenance["command"] == "seedbed study report X"
    assert page.provenance["in all"].startswith(f"{len({row.key for row in result.runs})} runs, ")
    assert page.tiles["runs of the comparison finished"] == "36 of 36"
    for row in result.runs:
        assert row.key in told(page)
    assert set(study_tables(result)) >= {"runs", "losses", "differences", "looks", "configs", "token_gains"}


def test_sentences_of_differences(result):
    rows = [row for row in result.differences if row.share == 1.0][:2]
    lower = replace(rows[0], mean=-0.0314, low=-0.052, high=-0.0101, p=0.004, p_holm=0.02, family=5, size="4x32")
    alike = replace(rows[1], mean=0.012, low=-0.03, high=0.054, p=0.3, p_holm=0.6, family=5, n=2, others="gate")
    alone = replace(alike, mean=-0.02, low=-0.03, high=-0.01, p=0.03, p_holm=0.09)
    sentences = found(replace(result, differences=Rows([lower, alike, alone])))
    assert sentences[0] == (
        "Comparisons with gamma 0.5 at the whole budget: 3. Told apart by the seeds, p at most 0.05 after Holm (marked "
        "* below): 1 below it, 0 above it. Hints, whose own 95 % interval excludes 0 though not after the correction "
        "(marked (*)): 1 below, 0 above. Not told apart: 1."
    )
    assert sentences[1] == (  # t of two degrees of freedom at 0.05 / 5
        "Not told apart is not the same as equal: with 3 seeds the clearest of 5 comparisons is told apart from 9.9 "
        "standard errors on; the intervals say how large a difference may be."
    )
    assert sentences[2] == (
        "At 4x32 gamma 0.75 ended 0.031 nats per token below gamma 0.5 (95 % interval 0.010 to 0.052, p = 0.020 after "
        "Holm over 5 comparisons, 3 seeds)."
    )


def test_the_table_of_what_was_found_marks_what_the_seeds_tell(result):
    first = result.differences[0]
    rows = [
        replace(first, share=1.0, size="2x16", mean=-0.0314, low=-0.052, high=-0.0108, p_holm=0.02),
        replace(first, share=1.0, size="2x32", mean=0.02, low=0.01, high=0.03, p_holm=0.09),
        replace(first, share=1.0, size="2x16", level="gamma 1.0", mean=0.02, low=-0.01, high=0.05, p_holm=0.5),
        replace(first, share=0.5, size="2x32", level="gamma 1.0"),
    ]
    view = summary_table(replace(result, differences=Rows(rows)))
    assert view is not None
    assert list(view.columns) == ["level", "2x16", "2x32"]  # no other axis: no column for it
    assert [[cell.replace("\u00a0", " ") for cell in row] for row in view.rows] == [
        ["gamma 0.75", "−0.031 ± 0.021 *", "+0.020 ± 0.010 (*)"],
        ["gamma 1.0", "+0.020 ± 0.030", "–"],
    ]


def test_effective_sizes_are_told_where_the_difference_is(result):
    row = next(row for row in result.differences if row.share == 1.0)
    gain = replace(
        result.effective_sizes[0], others="", level=row.level, size=row.size, share=1.0, counted="without embeddings",
        method="interpolation", same_as=5000.0, gain=0.25, low=0.1, high=0.4, p=0.001, p_holm=0.004,
    )  # fmt: skip

    def told_of(difference_p, **changes):
        differences = Rows([replace(row, mean=-0.02, low=-0.03, high=-0.01, p_holm=difference_p)])
        changed = replace(result, differences=differences, effective_sizes=Rows([replace(gain, **changes)]))
        return [line for line in found(changed) if "25.0" in line]

    assert told_of(0.09) == []
    assert "by interpolation" in told_of(0.01)[0]
    assert told_of(0.01, p_holm=0.06) == []
    fit = told_of(0.09, method="fit", trend_p=0.5)
    assert fit[0].startswith("By a fit over all sizes")
    assert "But the gap" not in fit[0]
    assert "But the gap changes with size" in told_of(0.09, method="fit", trend_p=0.01)[0]


def test_a_single_seed_is_smoke_everywhere(smoke):
    page = study_page(smoke, {})
    assert page.title == "Study made (smoke)"
    assert "SMOKE" in page.lead
    assert found(smoke)[0].startswith("Smoke: one seed.")
    text = told(page).split("## Definitions")[0]
    assert "95 % interval" not in text.replace("| before | 95 % interval | after | 95 % interval |", "")
    assert "p =" not in text
    assert "Holm" not in text
    assert "can be told" not in text


def test_what_did_not_finish_is_told_with_its_reason(plan, tmp_path):
    def make(trial):
        if trial.stage == "compare" and trial.seed == 1 and trial.cell.size == "2x16":
            return Outcome(trial.key, "diverged", f"loss is NaN at step {trial.config.train.steps}")
        return outcome_of(trial)

    result = results(plan, carried_out(plan, make), tmp_path)
    page = study_page(result, {})
    assert page.tiles["diverged or failed"] == "6"
    lost = next(view for section in page.sections for view in section.tables if view.title == "Runs without a result")
    assert len(lost.rows) == 6
    told_first = next(line for line in page.sections[0].paragraphs if line.startswith("Diverged or failed"))
    assert "gamma 0.5 at 2x16 (2)" in told_first
    assert all(row[6] == "diverged" and row[7].replace("\u00a0", " ").startswith("loss is NaN") for row in lost.rows)
    assert "2 of 3 seeds" in told(page)


def test_a_rate_at_the_edge_is_an_error_and_no_result(tiny_store, tmp_path):
    plan = made_plan(tiny_store, tune={"grid": {"optim.lr": [1e-4, 2e-4, 4e-4]}, "seed": 100})
    page = study_page(results(plan, carried_out(plan), tmp_path), {})
    assert len(page.sections[0].problems) == 6
    assert all("at the edge of its grid" in problem for problem in page.sections[0].problems)
    assert page.sections[0].paragraphs == ["Nothing yet: no run of the comparison has finished."]
    assert page.tiles["arms and sizes without a result"] == "6"


def test_a_study_that_has_not_begun(plan, tmp_path):
    page = study_page(results(plan, {}, tmp_path), {})
    assert page.tiles["runs of the comparison finished"] == "0 of 36"
    assert "waits for its tuning" in told(page)


def test_the_gap_is_drawn_over_both_counts(result):
    figure = gap_figure(result.differences, result.sizes)
    assert len(figure.axes) == 4  # two comparisons, with embeddings and without
    row = next(row for row in result.differences if (row.level, row.size) == ("gamma 0.75", "2x16") and row.share == 1)
    line = figure.axes[0].containers[0].lines[0]
    assert line.get_xdata()[-1] == pytest.approx(row.tokens_per_parameter)
    assert line.get_ydata()[-1] == pytest.approx(row.mean)
    assert figure.axes[1].containers[0].lines[0].get_xdata()[-1] == pytest.approx(row.tokens_per_non_embedding)


def test_where_a_comparison_is_one_point_levels_stand_below_each_other(result):
    rows = [row for row in result.differences if (row.size, row.share) == ("2x16", 1.0)]
    (panel,) = gap_points_figure(rows).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["gamma 0.75", "gamma 1.0"]
    for place, (row, container) in enumerate(zip(rows, panel.containers, strict=True)):
        line, _, (bar,) = container.lines
        assert (line.get_xdata()[0], line.get_ydata()[0]) == (row.mean, place)
        assert bar.get_segments()[0][:, 0].tolist() == pytest.approx([row.low, row.high])
    (panel,) = gap_points_figure([replace(rows[0], low=None, high=None)]).axes
    assert panel.containers[0].lines[0].get_markerfacecolor() == "white"


def test_curves_tuning_and_optimum_are_those_of_the_rows(result):
    curves = curves_figure(result.curves, result.losses, result.arms, result.sizes)
    assert [axes.get_title(loc="left") for axes in curves.axes] == ["2x16", "2x32"]
    own = [row for row in result.curves if (row.arm, row.size) == ("gamma 0.5", "2x16")]
    assert list(curves.axes[0].lines[0].get_ydata()) == [row.mean for row in own]
    tuning = tuning_figure(result.tuning, result.arms, result.sizes)
    ring = next(row for row in result.tuning if (row.arm, row.size, row.chosen) == ("gamma 0.5", "2x16", True))
    assert list(tuning.axes[0].lines[1].get_xdata()) == [ring.value]
    known = [one for one in result.optima if one.at is not None and (one.size, one.share) == ("2x16", 1.0)]
    knob = knob_figure(result.knob, result.optima, "gamma", result.sizes)
    dashed = [line for line in knob.axes[0].lines if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in dashed] == [one.at for one in known]


def test_optima_and_gains_over_size(result):
    one = replace(result.optima[0], others="gate", at=0.8, low=0.7, high=1.1, width=16, share=1.0)
    open_ = replace(one, at=0.9, low=None, width=32)
    figure = optimum_figure([open_, one, replace(one, at=None, width=64)], "gamma")
    panel, over_tokens = figure.axes
    assert list(over_tokens.containers[0].lines[0].get_xdata()) == [one.tokens_per_parameter] * 2
    assert list(panel.containers[0].lines[0].get_ydata()) == [0.8, 0.9]
    low, high = panel.containers[0].lines[2][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((0.7, 1.1))
    assert list(panel.lines[-1].get_ydata()) == [0.9]  # hollow: not bounded from below
    gain = replace(result.effective_sizes[0], share=1.0, counted="all parameters", parameters=1e4, gain=0.25, low=0.1)
    figure = gains_figure([gain, replace(gain, parameters=2e4, gain=None), replace(gain, share=0.5)])
    assert list(figure.axes[0].containers[0].lines[0].get_ydata()) == [25.0]


def test_loss_over_parameters_with_fit_and_arrows(result):
    first = replace(result.scaling[0], share=1.0, counted="all parameters", base_mean=4.0, mean=3.8, parameters=1e4)
    rows = [first, replace(first, parameters=4e4, base_mean=3.5, mean=3.4)]
    rows += [replace(row, counted="without embeddings") for row in rows]
    place = first.others, first.level
    gain = replace(
        result.effective_sizes[0], level=first.level, share=1.0, counted="all parameters", parameters=1e4, gain=0.6,
        same_as=1.6e4,
    )  # fmt: skip
    figure = scaling_figure(rows, [], [gain, replace(gain, parameters=4e4, same_as=None)])
    left, right = figure.axes
    base, level = (container.lines[0] for container in left.containers)
    assert (list(base.get_ydata()), list(level.get_ydata())) == ([4.0, 3.5], [3.8, 3.4])
    assert base.get_linestyle() == "-"
    (arrow,) = left.texts
    assert (arrow.xy, arrow.xyann) == ((1.6e4, 3.8), (1e4, 3.8))
    assert list(right.texts) == []
    fits = [FitRow(*place, 1.0, "all parameters", 0, 1.0, 0.5, scale, 2.8, 0.0) for scale in (2.9, 3.1)]
    fitted = scaling_figure(rows, fits, []).axes[0]
    assert fitted.containers[0].lines[0].get_linestyle() == "None"
    curve = next(line for line in fitted.lines if len(line.get_xdata()) > 2)
    assert list(curve.get_ydata())[:: len(curve.get_ydata()) - 1] == pytest.approx([4.0, 2.5])  # 1 + 3, 1 + 3 / 2


def test_slopes_at_the_end_and_of_differences(result):
    losses = [replace(result.losses[0], share=1.0, arm=arm, size="2x16", end_slope=slope)
              for arm, slope in (("a", -0.2), ("b", -0.31), ("c", None))]  # fmt: skip
    assert still_falling(replace(result, losses=Rows(losses))) == [
        "At the end the loss changes with a doubling of tokens, from the next smaller share of the budget, by −0.310 "
        "(b, 2x16) to −0.200 (a, 2x16) nats per token."
    ]
    assert still_falling(replace(result, losses=Rows(losses[2:]))) == []
    slope = SlopeRow("", "gamma 1.0", "gamma 0.5", "tokens", "2x16", 2, -0.05, -0.07, -0.03, 0.01, 3)
    view = change_table(replace(result, slopes=Rows([slope, replace(slope, over="parameters", at="1")])))
    assert view is not None
    assert [cell.replace("\u00a0", " ") for cell in view.rows[0]] == ["gamma 1.0", "−0.050 ± 0.020", "–"]
    assert len(view.rows) == 1
    assert change_table(replace(result, slopes=Rows())) is None


def test_unknown_optima_are_told_once(result):
    rows = [replace(one, at=None, reason="at the edge: x") for one in result.optima if one.share == 1.0]
    text = found(replace(result, optima=Rows(rows), movements=Rows()))
    assert "At 2x16; 2x32 the best gamma is not known: at the edge: x." in text


def test_a_point_of_one_seed_is_hollow(result):
    row = next(row for row in result.differences if row.share == 1.0)
    half = replace(row, share=0.5, low=None, high=None, tokens_per_parameter=row.tokens_per_parameter / 2)
    panel = gap_figure([row, half], result.sizes).axes[0]
    (hollow,) = (line for line in panel.lines if line.get_markerfacecolor() == "white" and len(line.get_xdata()))
    assert list(hollow.get_xdata()) == [half.tokens_per_parameter]
    assert "Hollow: one seed so far." in told(study_page(replace(result, differences=Rows([row, half])), {}))


def test_two_studies(result, tiny_store, tmp_path):
    plan = made_plan(tiny_store, set={**made_plan(tiny_store).spec.set, "optim.weight_decay": 0.2})
    made = carried_out(plan, lambda trial: outcome_of(trial, lambda trial, done: law(trial, done) - 0.5))
    both = compare(result, results(plan, made, tmp_path))
    page = study_compare_page(both, {"command": "x"})
    assert page.sections[0].paragraphs[:2] == [
        "Both read the same data.",
        "Of 6 cells of the whole budget B ended below A in 6, above it in 0, and 0 are not told apart.",
    ]
    assert "optim.weight\\_decay" in page_markdown(page)
    assert json.dumps(asdict(both), allow_nan=False)


def test_a_study_against_itself_says_so(result):
    page = study_compare_page(compare(result, result), {})
    assert page.sections[0].paragraphs == [
        "Both read the same data. 6 of 6 cells of the whole budget are the same runs in both: nothing to compare."
    ]
    assert page.pictures == []
    assert "SMOKE" not in page.lead
    assert [(section.paragraphs, len(section.tables)) for section in page.sections if section.title == "Settings"] == [
        (["None differ in the cells that both have."], 0)
    ]


def test_two_studies_of_one_seed_are_smoke(result, tiny_store, tmp_path):
    plan = made_plan(tiny_store, seeds=[0], set={**made_plan(tiny_store).spec.set, "optim.weight_decay": 0.2})
    page = study_compare_page(compare(result, results(plan, carried_out(plan), tmp_path)), {})
    assert "SMOKE" in page.lead
    assert page.sections[0].paragraphs[1] == (
        "6 cells of the whole budget are in both, none with two seeds on both sides: nothing says how far chance "
        "reaches."
    )


def test_markdown_escapes_and_keeps_tables(smoke):
    text = page_markdown(study_page(replace(smoke, question="a | b <i>*"), {}))
    assert "a | b \\<i\\>\\*" in text
    assert "![Loss over tuned values by arm.](figures/tuning.svg)" in text
    head = next(line for line in text.splitlines() if line.startswith("| arm | size | share |"))
    assert len(head.split("|")) == len(text.splitlines()[text.splitlines().index(head) + 1].split("|"))


@pytest.mark.usefixtures("undrawn")
def test_texts_of_a_study_are_escaped_on_the_page(smoke):
    page = page_html(study_page(replace(smoke, question="<b>", notes={"<i>": "<u>"}), {}))
    assert "<b>" not in page.split("<h1>")[1].split("</p>")[0]
    assert "<u>" not in page


def test_a_study_of_one_size_without_tuning_shares_or_optimum(tiny_store, tmp_path):
    settings = {**made_plan(tiny_store).spec.set, "model.d_model": 16, "model.n_layers": 2, "optim.lr": 1e-2}
    none = {"tune": None, "sizes": None, "optimum": None, "shares": [1.0], "observe": ["residual"]}
    plan = made_plan(tiny_store, set=settings, **none)
    result = results(plan, carried_out(plan), tmp_path)
    page = study_page(result, {})
    assert [section.title for section in page.sections] == [
        "What was found", "Against gamma 0.5", "Final losses", "How they learn", "What the models look like",
        "How far it is", "What was run",
    ]  # fmt: skip
    assert not any("base" in sentence for sentence in page.sections[0].paragraphs)


@pytest.mark.parametrize("tune", [{}, {"optim.weight_decay": [0.0, 0.1, 0.2]}])
def test_a_study_whose_tuning_diverged_throughout_has_a_page(tiny_store, tmp_path, tune):
    plan = made_plan(tiny_store, tune={"grid": {"optim.lr": [0.1, 0.2, 0.4], **tune}, "seed": 100})
    result = results(plan, carried_out(plan, lambda trial: Outcome(trial.key, "diverged", "step 3: x")), tmp_path)
    page = study_page(result, {})
    assert [picture.name for picture in page.pictures] == ([] if tune else ["tuning"])
    assert all(list(panel.get_yticks()) == [] for picture in page.pictures for panel in picture.figure.axes)
    assert "every run down to optim.lr=0.1" in told(page)
    assert "step 3: x" in told(page)


@pytest.fixture
def scored(tiny_store, tmp_path):
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "One of the texts."}\n', encoding="utf-8")
    plan = made_plan(tiny_store, evaluate={"data": [str(texts)]})

    def answered(trial):
        outcome = outcome_of(trial)
        return replace(outcome, after=outcome.after | {plan.evaluation: scores(trial)})

    return results(plan, carried_out(plan, answered), tmp_path / "runs")


def test_scores_by_domain_and_pairs(scored):
    page = study_page(scored, {})
    assert "What they score" in [section.title for section in page.sections]
    assert "first 32 tokens" in told(page) and "domain: books" in told(page)
    axes = scores_figure(scored.scores, scored.arms, "2x32").axes
    assert [panel.get_title(loc="left") for panel in axes] == list(FOREMOST.values())
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["all", "domain: books", "domain: code"]
    drawn = {container.get_label(): container for container in axes[0].containers}
    assert set(drawn) == set(scored.arms[1:])  # the baseline less itself is nothing
    rows = [r for r in scored.scores if (r.arm, r.size, r.metric) == ("gamma 1.0", "2x32", "bits per byte")]
    assert list(drawn["gamma 1.0"].lines[0].get_ydata()) == [row.more for row in rows]


def test_shares_are_percent_and_intervals_end_where_they_do():
    what = ("gamma 1.0", "2x32", "minimal pairs", "all", "accuracy", "share", "higher", 6)
    row = ScoreRow(*what, 0.75, -2.5, 4.0, 2, None, None, None)
    (panel,) = scores_figure([row], ["gamma 1.0"], "2x32").axes
    assert panel.containers[0].lines[0].get_ydata().tolist() == [75]
    assert panel.get_ylim() == (-3, 103)


def test_profiles_before_and_after(result):
    (picture,) = [p for s in study_page(result, {}).sections for p in s.pictures if p.name == "profiles_rms"]
    before, after = picture.figure.axes[:2]
    assert (before.get_title(loc="left"), after.get_title(loc="left")) == (
        "attn.q, before training", "attn.q, after training"
    )  # fmt: skip
    rows = [r for r in result.layers if (r.arm, r.size, r.component, r.measure, r.when) ==
            ("gamma 0.75", "2x32", "attn.q", "rms", "after")]  # fmt: skip
    line = after.containers[1].lines[0]
    assert list(line.get_ydata()) == [row.mean for row in sorted(rows, key=lambda row: row.layer)]
    assert {row.measure for row in result.layers} == {
        "rms", "stable_rank", "entropy_rank", "rank_share", "condition", "row_cosine"
    }  # fmt: skip
