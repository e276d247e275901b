"""Two studies side by side: the cells that both have, and how far they are apart."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scipy import stats

from seedbed.measure.table import Rows
from seedbed.report.study_compare_rows import SAME, SettingRow, SharedRow, StudiesCompared
from seedbed.report.study_rows import RunRow, StudyResult
from seedbed.study.statistics import LEVEL, Difference, holm, mean_interval, paired

Place = tuple[frozenset[str], str, float]
"""Levels, size and share: what makes cells of two studies the same."""


def compare(a: StudyResult, b: StudyResult) -> StudiesCompared:
    """Cells with the same levels, size and share in both, in the order of A; the axes need not be the same ones.

    Runs pair where both studies read the same data for as long with the same seeds, two at least: then the difference
    is the mean over common seeds with a paired t interval. Otherwise means are compared by Welch's t test. Where the
    common seeds are the very same runs in both there is nothing to compare.
    Losses are in nats per token on the same data, and in bits per byte on different ones, whose tokens are not the
    same.
    """
    same_data = sorted(set(a.data.values())) == sorted(set(b.data.values()))
    places_a, places_b = (_by_place(result) for result in (a, b))
    common = [place for place in places_a if place in places_b]
    rows = [_row(place, places_a[place], places_b[place], same_data) for place in common]
    shares = sorted({row.share for row in rows}, reverse=True)
    return StudiesCompared(
        name_a=a.name, name_b=b.name, question_a=a.question, question_b=b.question, seeds_a=a.seeds, seeds_b=b.seeds,
        unit="nats per token" if same_data else "bits per byte", same_data=same_data, data_a=a.data, data_b=b.data,
        versions_a=a.versions, versions_b=b.versions,
        shared=Rows(row for share in shares for row in _corrected([row for row in rows if row.share == share])),
        settings=_settings(a, b, [(places_a[place][0], places_b[place][0]) for place in common]),
        only_a=_only(places_a, places_b), only_b=_only(places_b, places_a),
    )  # fmt: skip


def _by_place(result: StudyResult) -> dict[Place, list[RunRow]]:
    """Finished runs of the comparison."""
    found: dict[Place, list[RunRow]] = {}
    for row in result.runs:
        if row.stage == "compare" and row.nats_per_token is not None:
            found.setdefault((frozenset(row.arm.split(", ")), row.size, row.share), []).append(row)
    return found


def _row(place: Place, runs_a: Sequence[RunRow], runs_b: Sequence[RunRow], same_data: bool) -> SharedRow:
    losses_a, losses_b = ({row.seed: _loss(row, same_data) for row in runs} for runs in (runs_a, runs_b))
    a, b = mean_interval(list(losses_a.values())), mean_interval(list(losses_b.values()))
    common = sorted(losses_a.keys() & losses_b.keys())
    alike = same_data and abs(runs_a[0].tokens - runs_b[0].tokens) <= 0.01 * runs_a[0].tokens
    keys_a, keys_b = ({row.seed: row.key for row in runs} for runs in (runs_a, runs_b))
    if common and all(keys_a[seed] == keys_b[seed] for seed in common):
        method = SAME if keys_a == keys_b else f"{SAME} of seeds {', '.join(map(str, common))}"
        difference = Difference(0.0, 0.0, None, None, None, len(common))
    elif alike and len(common) > 1:
        difference = paired([losses_a[seed] for seed in common], [losses_b[seed] for seed in common])
        method = f"paired over {len(common)} seeds"
    else:
        difference, method = _welch(list(losses_a.values()), list(losses_b.values()))
    told = difference.mean, difference.low, difference.high, difference.p, None, 0, method
    return SharedRow(
        runs_a[0].arm, runs_b[0].arm, place[1], place[2], runs_a[0].tokens, runs_b[0].tokens, a.mean, a.std, a.n,
        b.mean, b.std, b.n, *told,
    )  # fmt: skip


def _loss(row: RunRow, same_data: bool) -> float:
    loss = row.nats_per_token if same_data else row.bits_per_byte
    assert loss is not None  # of finished runs
    return loss


def _welch(a: list[float], b: list[float]) -> tuple[Difference, str]:
    """Difference of means, B less A, without the assumption of equal spread."""
    mean = sum(b) / len(b) - sum(a) / len(a)
    if min(len(a), len(b)) < 2:
        return Difference(mean, None, None, None, None, min(len(a), len(b))), "one seed: no interval"
    test: Any = stats.ttest_ind(b, a, equal_var=False)  # its stubs lack the fields
    bounds = test.confidence_interval(LEVEL)
    told = float(bounds.low), float(bounds.high), float(test.pvalue), min(len(a), len(b))
    return Difference(mean, None, *told), "Welch"


def _corrected(rows: list[SharedRow]) -> list[SharedRow]:
    family = [row.p for row in rows if row.p is not None]
    p = iter(holm(family))
    return [replace(row, p_holm=None if row.p is None else next(p), family=len(family)) for row in rows]


def _settings(a: StudyResult, b: StudyResult, pairs: Sequence[tuple[RunRow, RunRow]]) -> Rows[SettingRow]:
    """Settings that differ: once where all common cells have the same two values, else cell by cell."""
    found: dict[str, dict[tuple[str, str], tuple[str, str]]] = {}
    whole = [(one, other) for one, other in pairs if one.share == 1.0]
    for one, other in whole:
        values_a, values_b = _values(a, one), _values(b, other)
        for path in dict.fromkeys([*values_a, *values_b]):
            both = values_a.get(path, "–"), values_b.get(path, "–")
            if both[0] != both[1]:
                found.setdefault(path, {})[one.arm, one.size] = both
    rows: Rows[SettingRow] = Rows()
    for path, cells in found.items():
        if len(cells) == len(whole) and len(set(cells.values())) == 1:
            rows.append(SettingRow(path, "all", "all", *next(iter(cells.values()))))
        else:
            rows += [SettingRow(path, *cell, *both) for cell, both in cells.items()]
    return rows


def _values(result: StudyResult, run: RunRow) -> dict[str, str]:
    own = {row.path: row.value for row in result.configs if (row.arm, row.size, row.share) == (run.arm, run.size, 1.0)}
    return result.shared | own


def _only(places: dict[Place, list[RunRow]], others: dict[Place, list[RunRow]]) -> list[str]:
    return [
        f"{runs[0].arm}, {runs[0].size}, share {runs[0].share:g}"
        for place, runs in places.items()
        if place not in others
    ]
