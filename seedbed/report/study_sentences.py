"""What a study found, in sentences that follow from its numbers alone."""

from collections.abc import Sequence

from seedbed.report.render import number, signed
from seedbed.report.study_rows import DifferenceRow, StudyResult
from seedbed.report.study_tables import PLACES, p_told, span

TOLD_APART = 0.05
"""A difference is told from none where p, after Holm's correction, is at most this."""


def found(result: StudyResult) -> list[str]:
    """The answer: differences of the whole budget, then optimum, tokens and effective size."""
    if not result.losses:
        return ["Nothing yet: no run of the comparison has finished."]
    smoke = (
        ["Smoke: one seed. Whatever differs here may differ by chance, and nothing below says by how much chance does."]
        if result.smoke
        else []
    )
    return [*smoke, *_differences(result), *_optima(result), *_tokens(result), *_sizes(result)]


def _differences(result: StudyResult) -> list[str]:
    rows = [row for row in result.differences if row.share == 1.0]
    if not rows:
        return [f"No difference to {result.baseline} is there yet: no level has a seed in common with it."]
    if result.smoke:
        return [f"{_place(row)}{_gap(row)}." for row in rows]
    apart = [row for row in rows if _apart(row)]
    alike = [row for row in rows if not _apart(row)]
    below = sum(row.mean < 0 for row in apart)
    total = (
        f"Of {len(rows)} comparisons with {result.baseline} at the whole budget, {below} ended below it, "
        f"{len(apart) - below} above it, and in {len(alike)} no difference can be told."
    )
    sentences = [total] if len(rows) > 1 else []
    sentences += [f"{_place(row)}{_gap(row)} ({_evidence(row)})." for row in apart]
    return sentences + [
        f"{_place(row)}no difference between {row.level} and {row.baseline} can be told: "
        f"{signed(row.mean, PLACES)} nats a token ({_evidence(row)})."
        for row in alike
    ]


def _optima(result: StudyResult) -> list[str]:
    sentences = []
    for row in result.optima:
        if row.share < 1:
            continue
        where = ", ".join(filter(None, (row.size, row.others)))
        if row.at is None:
            sentences.append(f"At {where} the best {result.optimum} is not known: {row.reason}.")
        elif result.smoke:
            sentences.append(f"At {where} the loss is lowest at {result.optimum} = {number(row.at)} (one seed).")
        else:
            told = f"95 % interval {span(row.low, row.high, 3)}, {row.n} seeds"
            sentences.append(f"At {where} the loss is lowest at {result.optimum} = {number(row.at)} ({told}).")
    for row in result.movements:
        if row.share < 1 or row.what != "slope over ln width" or result.smoke:
            continue
        among = f" among {row.others}" if row.others else ""
        if row.mean is None:
            sentences.append(f"Whether the best {result.optimum} moves with width{among} is not known: {row.reason}.")
            continue
        told = f"95 % interval {signed(row.low, 2)} to {signed(row.high, 2)}, p = {p_told(row.p)}, {row.n} seeds"
        moves = "moves" if row.p is not None and row.p <= TOLD_APART else "is not seen to move"
        sentences.append(
            f"The best {result.optimum}{among} {moves} with width: {signed(row.mean, 2)} for each e-fold of it "
            f"({told})."
        )
    return sentences


def _tokens(result: StudyResult) -> list[str]:
    """Where a difference is told apart, what it is in tokens."""
    apart = {(row.others, row.level, row.size) for row in result.differences if row.share == 1.0 and _apart(row)}
    sentences = []
    for row in result.tokens_to_loss:
        level = row.target if row.level == result.baseline else row.level
        if row.ratio is None or not (result.smoke or (row.others, level, row.size) in apart):
            continue
        where = ", ".join(filter(None, (row.size, row.others))) + (":" if row.others else "")
        told = "one seed" if result.smoke else f"95 % interval {span(row.low, row.high, 3)}, {row.n} seeds"
        sentences.append(
            f"At {where} {row.level} reached the final loss of {row.target} in {number(row.ratio)} of its tokens "
            f"({told})."
        )
    return sentences


def _sizes(result: StudyResult) -> list[str]:
    sentences = []
    for row in result.effective_sizes:
        if row.share < 1 or row.gain is None or row.counted != "without embeddings" or row.same_as is None:
            continue
        if not result.smoke and (row.p is None or row.p > TOLD_APART):
            continue
        told = (
            "one seed"
            if row.low is None or row.high is None
            else (
                f"95 % interval {signed(100 * row.low, 1)} % to {signed(100 * row.high, 1)} %, p = {p_told(row.p)} "
                "uncorrected"
            )
        )
        among = f" among {row.others}" if row.others else ""
        sentences.append(
            f"With {row.parameters:,.0f} parameters outside embeddings {row.level}{among} has the loss of "
            f"{row.baseline} with {row.same_as:,.0f}: {signed(100 * row.gain, 1)} % ({told}; by {row.method})."
        )
    return sentences


def _apart(row: DifferenceRow) -> bool:
    return row.p_holm is not None and row.p_holm <= TOLD_APART


def _place(row: DifferenceRow) -> str:
    where = [part for part in (row.size if row.size != "base" else "", row.others) if part]
    return f"At {', '.join(where)}{':' if row.others else ''} " if where else ""


def _gap(row: DifferenceRow) -> str:
    side = "below" if row.mean < 0 else "above"
    return f"{row.level} ended {abs(row.mean):.{PLACES}f} nats a token {side} {row.baseline}"


def _evidence(row: DifferenceRow) -> str:
    """Interval, p and seeds. Of a gap that is told apart the interval is of its size, on the side that was said."""
    seeds = f"{row.n} seeds" if row.n == row.seeds else f"{row.n} of {row.seeds} seeds"
    if row.low is None or row.high is None:
        return f"no interval: {'the seeds do not differ' if row.n > 1 else 'a single pair'}; {seeds}"
    bounds: Sequence[float] = (row.low, row.high)
    if _apart(row) and row.mean < 0:
        bounds = -row.high, -row.low
    shown = " to ".join(f"{signed(x, PLACES)}" if not _apart(row) else number(x, 2) for x in bounds)
    compared = f"{row.family} comparisons" if row.family > 1 else "1 comparison"
    p = p_told(row.p_holm)
    told = f"95 % interval {shown}, p {p if p.startswith('<') else f'= {p}'} after Holm over {compared}, {seeds}"
    alone = not _apart(row) and row.low * row.high > 0
    return f"{told}; alone the interval excludes 0, corrected it does not count" if alone else told
