"""The page of a study: what was asked, found, done, and every number behind it."""

from collections import Counter
from collections.abc import Mapping

from markupsafe import Markup, escape

from seedbed.config.reader import write_yaml
from seedbed.report.render import count, number
from seedbed.report.sections import Page, Picture, Section
from seedbed.report.study_definitions import DEFINITIONS
from seedbed.report.study_figures import (
    MOST_COMPARISONS,
    curves_figure,
    gap_figure,
    gap_points_figure,
    knob_figure,
    tuning_figure,
)
from seedbed.report.study_looks_figures import gradients_figure
from seedbed.report.study_looks_section import observed_sections
from seedbed.report.study_rows import StudyResult
from seedbed.report.study_scaling_figures import gains_figure, optimum_figure, scaling_figure
from seedbed.report.study_scaling_tables import fits_table, gain_tables, optimum_tables
from seedbed.report.study_scores_section import score_sections
from seedbed.report.study_sentences import found, summary_table
from seedbed.report.study_slopes import change_table, still_falling
from seedbed.report.study_tables import (
    chosen_table,
    config_tables,
    difference_tables,
    loss_tables,
    runs_table,
    slope_table,
    status_tables,
    tokens_table,
)
from seedbed.train.progress import duration


def study_page(result: StudyResult, provenance: Mapping[str, str]) -> Page:
    """What a study asked and found; ``provenance`` has the commands that made and repeat it."""
    smoke = " SMOKE: one seed, nothing here says what chance does." if result.smoke else ""
    source = f" Source of the question: {result.source}." if result.source else ""
    seeds = f"seeds {', '.join(map(str, result.seeds))}" if not result.smoke else f"seed {result.seeds[0]} alone"
    sizes = f"{len(result.sizes)} sizes" if len(result.sizes) > 1 else "one size"
    sections = [
        _found(result),
        *_differences(result),
        *_optimum(result),
        *_sizes(result),
        *_losses(result),
        *_curves(result),
        *score_sections(result),
        *observed_sections(result),
        *_chosen(result),
        _status(result),
        _run(result),
    ]
    return Page(
        title=f"Study {result.name}" + (" (smoke)" if result.smoke else ""),
        lead=f"{result.question}{source} {len(result.arms)} arms at {sizes}, {seeds}.{smoke}",
        sections=sections,
        definitions=DEFINITIONS,
        provenance={**provenance, **_provenance(result)},
        tiles=_tiles(result),
    )


def _tiles(result: StudyResult) -> dict[str, str]:
    cells = result.cells
    done = sum(cell.finished for cell in cells)
    planned = done + sum(cell.diverged + cell.failed + cell.missing for cell in cells)
    return {
        "runs of the comparison finished": f"{done} of {planned}",
        "diverged or failed": str(sum(c.diverged + c.failed + c.tune_diverged + c.tune_failed for c in cells)),
        "arms and sizes without a result": str(sum(not cell.finished for cell in cells)),
    }


def _found(result: StudyResult) -> Section:
    problems = [f"No result: {cell.problem}" for cell in result.cells if cell.problem]
    tables = [table for table in (summary_table(result), change_table(result)) if table]
    return Section("What was found", [*found(result), *still_falling(result)], tables=tables, problems=problems)


def _status(result: StudyResult) -> Section:
    shared = len(result.runs) - len({row.key for row in result.runs})
    told = [f"{shared} lines are runs that stand in several: arms that are alike share them."] if shared else []
    from_start = sum(row.status == "finished" and row.share < 1 and row.branched is None for row in result.runs)
    if from_start:
        told.append(f"{from_start} runs of a smaller share were trained from their first step: nothing to branch off.")
    return Section("How far it is", told, tables=status_tables(result))


def _chosen(result: StudyResult) -> list[Section]:
    if not result.tuning:
        return []
    caption = (
        f"Held-out loss on the tuning seed, {result.tuning_seed}, which is none of the comparison's; one run a point, "
        f"no "
        "error bar. A ring is what was chosen, a cross at the upper edge a run that diverged. Of several tuned values "
        "the others are those of the best run."
    )
    pictures = []
    if any(row.on_line for row in result.tuning):  # of several tuned values there is no line where all runs diverged
        drawn = tuning_figure(result.tuning, result.arms, result.sizes)
        pictures.append(Picture("tuning", drawn, caption, "Loss over tuned values by arm."))
    return [Section("What each arm chose", pictures=pictures, tables=[chosen_table(result)])]


def _losses(result: StudyResult) -> list[Section]:
    return [Section("Final losses", tables=loss_tables(result))] if result.losses else []


def _differences(result: StudyResult) -> list[Section]:
    if not result.differences:
        return []
    kinds = len({(row.others, row.level) for row in result.differences})
    bars = "One seed: no error bars." if result.smoke else "Bars: 95 % intervals over seeds, uncorrected."
    if not result.smoke and any(row.low is None for row in result.differences):
        bars += " Hollow: one seed so far."
    below = f"Loss less that of {result.baseline}"
    if kinds == len(result.differences):  # one size, one share
        drawn = gap_points_figure(result.differences)
        picture = Picture("gaps", drawn, f"{below}: left of zero is better than the baseline. {bars}", "Differences.")
    else:
        left_out = f" The first {MOST_COMPARISONS} of {kinds} comparisons; the table has all."
        told = (
            f"{below}, over tokens per parameter: below zero is better than the baseline. Points of a line are shares "
            "of the budget, each with its own cooldown and the rate that was tuned for the whole. A line of panels has "
            f"its own scale. {bars}{left_out if kinds > MOST_COMPARISONS else ''}"
        )
        drawn = gap_figure(result.differences, result.sizes)
        picture = Picture("gaps", drawn, told, "Difference to the baseline over tokens per parameter.")
    tables = difference_tables(result) + ([slope_table(result)] if result.slopes else [])
    return [Section(f"Against {result.baseline}", pictures=[picture], tables=tables)]


def _curves(result: StudyResult) -> list[Section]:
    if not result.curves:
        return []
    bands = "" if result.smoke else " Bands are pointwise 95 % intervals."
    filled = " Runs evaluated at different places: values between are interpolated." if any(
        row.interpolated for row in result.curves
    ) else ""  # fmt: skip
    pictures = [
        Picture(
            "curves",
            curves_figure(result.curves, result.losses, result.arms, result.sizes),
            "Held-out loss over tokens, mean over seeds; lines are runs of the whole budget, hollow marks the ends of "
            "runs "
            f"that cool down earlier.{bands}{filled} The highest losses at the start are cut off.",
            "Learning curves by arm and size.",
        )
    ]
    if result.gradients:
        pictures.append(
            Picture(
                "gradients",
                gradients_figure(result.gradients, result.arms, result.sizes),
                "Gradient norm before clipping: the median over the steps up to each evaluation, mean over seeds; "
                "without "
                "error bars. Largest norms are in gradients.csv.",
                "Gradient norms over tokens by arm and size.",
            )
        )
    tables = [tokens_table(result)] if result.tokens_to_loss else []
    return [Section("How they learn", pictures=pictures, tables=tables)]


def _sizes(result: StudyResult) -> list[Section]:
    if not result.effective_sizes:
        return []
    several = len({(row.others, row.level, row.share, row.counted) for row in result.effective_sizes})
    notes = Counter(row.note for row in result.effective_notes)
    of = "comparisons (level, share, way to count)"
    told = [
        f"In all {several} {of}: {note}." if times == several else f"In {times} of {several} {of}: {note}."
        for note, times in notes.items()
    ]
    bars = "One seed: no error bars." if result.smoke else "Bars: 95 % intervals, uncorrected."
    pictures = []
    if any(row.share == 1.0 for row in result.scaling):
        fitted = any(row.share == 1.0 for row in result.fits)
        lines = "the fits, means over seeds" if fitted else "drawn from size to size, no fit"
        kinds = len({(row.others, row.level) for row in result.scaling})
        more = f" The first {MOST_COMPARISONS} of {kinds} comparisons." if kinds > MOST_COMPARISONS else ""
        caption = (
            f"Final loss over parameters, whole budget, of {result.baseline} and of the level that stands above a "
            f"panel, at the baseline's number of parameters; lines are {lines}. An arrow leads from a size of the "
            f"level to the size at which {result.baseline} has the same loss; there is none where that lies outside. "
            f"{bars}{more}"
        )
        drawn = scaling_figure(result.scaling, result.fits, result.effective_sizes)
        pictures.append(Picture("scaling", drawn, caption, "Loss over parameters of each level and the baseline."))
    if any(row.gain is not None and row.share == 1.0 for row in result.effective_sizes):
        caption = (
            f"By how many more parameters {result.baseline} would reach the loss of each level, whole budget. {bars} "
            "Sizes without a mark would take parameters outside the range that was run. A fit has one gain for all "
            "sizes."
        )
        drawn = gains_figure(result.effective_sizes)
        pictures.append(Picture("effective_size", drawn, caption, "Gain in effective size over parameters."))
    tables = [*gain_tables(result), *([fits_table(result)] if result.fits else [])]
    return [Section("Effective size", told, pictures, tables)]


def _optimum(result: StudyResult) -> list[Section]:
    if not result.knob:
        return []
    marks = "" if result.smoke else " Bars: 95 % intervals. Dashed: the optimum, with its interval shaded."
    pictures = []
    if any(row.share == 1.0 for row in result.knob):
        drawn = knob_figure(result.knob, result.optima, result.optimum, result.sizes)
        told = f"Final loss of the whole budget over {result.optimum}, mean over seeds.{marks}"
        pictures.append(Picture("optimum", drawn, told, f"Loss over {result.optimum} by size."))
    if len({row.width for row in result.optima if row.at is not None}) > 1:
        bars = "" if result.smoke else " Bars: 95 % intervals; hollow where the losses do not bound it on both sides."
        drawn = optimum_figure(result.optima, result.optimum)
        told = (
            f"Best {result.optimum}: left over width, a line a share of the budget; right over tokens per parameter, a "
            f"line a size. At one budget a wider model has fewer tokens per parameter: only the right panel tells the "
            f"two apart.{bars}"
        )
        pictures.append(Picture("optimum_width", drawn, told, f"Best {result.optimum} over width."))
    return [Section(f"Best {result.optimum}", pictures=pictures, tables=optimum_tables(result))]


def _run(result: StudyResult) -> Section:
    specification = Markup("<details><summary>The study's file</summary><pre>{}</pre></details>").format(
        escape(write_yaml(result.specification))
    )
    return Section(
        "What was run",
        [f"{name}: {note}" for name, note in result.notes.items()],
        tables=[*config_tables(result), runs_table(result)],
        problems=result.problems,
        html=specification,
    )


def _provenance(result: StudyResult) -> dict[str, str]:
    runs = {row.key: row for row in result.runs}.values()
    ended = [row for row in runs if row.status != "missing"]
    return {
        **{f"data {store}": f"SHA-256 {fingerprint}" for store, fingerprint in result.data.items()},
        "in all": f"{len(ended)} runs, {count(sum(row.own_tokens for row in ended))} tokens, "
        f"{number(sum(row.flops for row in ended))} FLOPs, {duration(sum(row.wall_s for row in ended))} of processes",
        "threads a run": result.threads or "–",
        **result.versions,
    }
