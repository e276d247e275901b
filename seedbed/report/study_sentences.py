"""What a study found, in sentences and one table that follow from its numbers alone."""

from collections.abc import Sequence

from scipy import stats

from seedbed.report.render import number, signed
from seedbed.report.sections import TableView
from seedbed.report.study_rows import DifferenceRow, StudyResult
from seedbed.report.study_tables import PLACES, p_told, plain_table, span
from seedbed.report.study_trend_rows import DOUBLING

TOLD_APART = 0.05
"""A difference is told from none where p, after Holm's correction, is at most this."""


FEW = 4
"""Differences told apart that have a sentence each; of more the table alone tells."""


def found(result: StudyResult) -> list[str]:
    """The answer: differences of the whole budget, then optimum, tokens and effective size."""
    if not result.losses:
        return ["Nothing yet: no run of the comparison has finished."]
    smoke = (
        ["Smoke: one seed. Whatever differs here may differ by chance, and nothing below says by how much chance does."]
        if result.smoke
        else []
    )
    return [*smoke, *_unfinished(result), *_differences(result), *_optima(result), *_tokens(result), *_sizes(result)]


def summary_table(result: StudyResult) -> TableView | None:
    """Differences of the whole budget: a line a level, a column a size."""
    rows = {(row.level, row.others, row.size): row for row in result.differences if row.share == 1.0}
    if not rows:
        return None
    kinds = list(dict.fromkeys((level, others) for level, others, _ in rows))
    lines = [
        [level, others or "–", *(_cell(rows.get((level, others, size))) for size in result.sizes)]
        for level, others in kinds
    ]
    interval = "" if result.smoke else ", ± 95 % interval"
    title = f"Loss less that of {result.baseline}, nats per token{interval}"
    return plain_table(title, ["level", "among", *result.sizes], lines, left=2)


def _cell(row: DifferenceRow | None) -> str:
    if row is None:
        return "–"
    if row.high is None:
        return signed(row.mean, PLACES)
    mark = " *" if _apart(row) else " (*)" if _hint(row) else ""
    return f"{signed(row.mean, PLACES)} ± {row.high - row.mean:.{PLACES}f}{mark}"


def _unfinished(result: StudyResult) -> list[str]:
    """What is not there yet, and whose seeds are in no mean."""
    missing = sum(cell.missing for cell in result.cells)
    told = (
        [f"Not finished: {missing} runs of the comparison are missing; what follows may change with them."]
        if missing
        else []
    )
    lost = [cell for cell in result.cells if cell.diverged or cell.failed]
    places = ", ".join(f"{cell.arm} at {cell.size} ({cell.diverged + cell.failed})" for cell in lost)
    if lost:
        told.append(f"Diverged or failed, and in no mean, which is then of the runs that held: {places}.")
    return told


def _differences(result: StudyResult) -> list[str]:
    rows = [row for row in result.differences if row.share == 1.0]
    if not rows:
        return [f"No difference to {result.baseline} is there yet: no level has a seed in common with it."]
    if result.smoke:
        return [f"{_place(row)}{_gap(row)}." for row in rows]
    apart, hints = [row for row in rows if _apart(row)], [row for row in rows if _hint(row)]
    below, hints_below = (sum(row.mean < 0 for row in some) for some in (apart, hints))
    rest = len(rows) - len(apart) - len(hints)
    holm = f", p at most {TOLD_APART:g} after Holm" if len(rows) > 1 else ""
    sentences = [
        f"Comparisons with {result.baseline} at the whole budget: {len(rows)}. Told apart by the seeds{holm} "
        f"(marked * below): {below} below it, {len(apart) - below} above it. Hints, whose own 95 % interval excludes "
        f"0 though not after the correction (marked (*)): {hints_below} below, {len(hints) - hints_below} above. Not "
        f"told apart: {rest}."
    ]
    if len(apart) < len(rows):
        sentences.append(_power(rows))
    if len(apart) > FEW:
        return [*sentences, "The table below has them all."]
    return sentences + [f"{_place(row)}{_gap(row)} ({_evidence(row)})." for row in apart]


def _power(rows: Sequence[DifferenceRow]) -> str:
    """What a comparison must reach, so that none told apart is not read as none there."""
    n, family = max(row.n for row in rows), max(1, *(row.family for row in rows))
    if n < 2:
        return "No level has two seeds in common with it: nothing can be told apart."
    reach = float(stats.t.isf(TOLD_APART / family / 2, n - 1))
    among = f"the clearest of {family} comparisons" if family > 1 else "a comparison"
    return (
        f"Not told apart is not the same as equal: with {n} seeds {among} is told apart from {number(reach, 2)} "
        "standard errors on; the intervals say how large a difference may be."
    )


def _optima(result: StudyResult) -> list[str]:
    sentences = []
    unknown: dict[str, list[str]] = {}
    for row in result.optima:
        if row.share < 1:
            continue
        where = ", ".join(filter(None, (row.size, row.others)))
        if row.at is None:
            unknown.setdefault(row.reason, []).append(where)
        elif result.smoke:
            sentences.append(f"At {where} the loss is lowest at {result.optimum} = {number(row.at)} (one seed).")
        else:
            told = f"95 % interval {span(row.low, row.high, 3)}, {row.n} seeds"
            sentences.append(f"At {where} the loss is lowest at {result.optimum} = {number(row.at)} ({told}).")
    for reason, places in unknown.items():
        sentences.append(f"At {'; '.join(places)} the best {result.optimum} is not known: {reason}.")
    for row in result.movements:
        if row.share < 1 or row.what != DOUBLING or result.smoke:
            continue
        among = f" among {row.others}" if row.others else ""
        if row.mean is None:
            reason = row.reason.partition("; ")[0]  # behind it those of single widths, which are told above
            sentences.append(f"Whether the best {result.optimum} moves with width{among} is not known: {reason}.")
            continue
        told = f"95 % interval {signed(row.low, 2)} to {signed(row.high, 2)}, {_p(row.p)}, {row.n} seeds"
        moves = "moves" if row.p is not None and row.p <= TOLD_APART else "is not seen to move"
        sentences.append(
            f"The best {result.optimum}{among} {moves} with width at one number of tokens, where wider models have "
            f"fewer a parameter: {signed(row.mean, 2)} for a doubling of width ({told})."
        )
    return sentences


def _tokens(result: StudyResult) -> list[str]:
    """Where a difference is told apart, what it is in tokens."""
    apart = _told_apart(result)
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in result.tokens_to_loss:
        level = row.target if row.level == result.baseline else row.level
        if row.ratio is None or not (result.smoke or (row.others, level, row.size) in apart):
            continue
        told = "one seed" if result.smoke else span(row.low, row.high, 3)
        at = f" at {row.size}" if row.size != "base" else ""
        found.setdefault((row.others, row.level, row.target), []).append(f"{number(row.ratio)} ({told}){at}")
    interval = "" if result.smoke else " (95 % interval)"
    return [
        f"{_among(others)}{level} reached the final loss of {target} in this part of its tokens{interval}: "
        f"{', '.join(parts)}."
        for (others, level, target), parts in found.items()
    ]


def _sizes(result: StudyResult) -> list[str]:
    """A sentence a size that losses are interpolated at and the difference is told apart; one for all sizes of a fit,
    which has one ratio."""
    apart = _told_apart(result)
    sentences = []
    fitted: set[tuple[str, str]] = set()
    for row in result.effective_sizes:
        if row.share < 1 or row.gain is None or row.counted != "without embeddings" or row.same_as is None:
            continue
        if not result.smoke and (row.p_holm is None or row.p_holm > TOLD_APART):
            continue
        if row.method != "fit" and not (result.smoke or (row.others, row.level, row.size) in apart):
            continue
        if row.method == "fit" and (row.others, row.level) in fitted:
            continue
        fitted |= {(row.others, row.level)}
        told = (
            "one seed"
            if row.low is None or row.high is None
            else f"95 % interval {signed(100 * row.low, 1)} % to {signed(100 * row.high, 1)} %, {_p(row.p_holm)} after "
            "Holm"
        )
        among = f" among {row.others}" if row.others else ""
        if row.method == "fit":
            uneven = row.trend_p is not None and row.trend_p <= TOLD_APART
            but = (
                f" But the gap changes with size as one ratio does not ({_p(row.trend_p)}): no size need have it."
                if uneven
                else ""
            )
            sentences.append(
                f"By a fit over all sizes, embeddings not counted, {row.level}{among} does as well as {row.baseline} "
                f"with {_more(row.gain)} parameters ({told}).{but}"
            )
        else:
            sentences.append(
                f"With {row.parameters:,.0f} parameters outside embeddings {row.level}{among} has the loss of "
                f"{row.baseline} with {row.same_as:,.0f}: {signed(100 * row.gain, 1)} % ({told}; by interpolation)."
            )
    return sentences


def _told_apart(result: StudyResult) -> set[tuple[str, str, str]]:
    """(others, level, size) of the differences of the whole budget that are told apart."""
    return {(row.others, row.level, row.size) for row in result.differences if row.share == 1.0 and _apart(row)}


def _apart(row: DifferenceRow) -> bool:
    return row.p_holm is not None and row.p_holm <= TOLD_APART


def _hint(row: DifferenceRow) -> bool:
    """The interval excludes 0, the corrected p does not."""
    return row.low is not None and row.high is not None and row.low * row.high > 0 and not _apart(row)


def _among(others: str) -> str:
    return f"Among {others} " if others else ""


def _place(row: DifferenceRow) -> str:
    where = [part for part in (row.size if row.size != "base" else "", row.others) if part]
    return f"At {', '.join(where)}{':' if row.others else ''} " if where else ""


def _gap(row: DifferenceRow) -> str:
    side = "below" if row.mean < 0 else "above"
    return f"{row.level} ended {abs(row.mean):.{PLACES}f} nats per token {side} {row.baseline}"


def _evidence(row: DifferenceRow) -> str:
    """Interval of the size of a gap that is told apart, on the side that was said; p and seeds."""
    assert row.low is not None and row.high is not None  # it has a p
    seeds = f"{row.n} seeds" if row.n == row.seeds else f"{row.n} of {row.seeds} seeds"
    low, high = (row.low, row.high) if row.mean > 0 else (-row.high, -row.low)
    compared = f" after Holm over {row.family} comparisons" if row.family > 1 else ""
    return f"95 % interval {low:.{PLACES}f} to {high:.{PLACES}f}, {_p(row.p_holm)}{compared}, {seeds}"


def _p(p: float | None) -> str:
    told = p_told(p)
    return f"p {told}" if told.startswith("<") else f"p = {told}"


def _more(gain: float) -> str:
    return f"{abs(100 * gain):.1f} % {'more' if gain > 0 else 'fewer'}"
