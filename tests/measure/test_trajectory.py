"""Curves of hand-made rows: means, ranges, turning points, steps that are left out."""

from dataclasses import replace

import pytest
import torch

from seedbed.facts.fact import ParameterFact
from seedbed.measure.spectra import gaussian_stats, matrix_stats
from seedbed.measure.trajectory import (
    MEASURES,
    Point,
    TrajectoryRow,
    averaged,
    curve,
    grouped,
    measures,
    recorded,
    reference,
    references,
    thinned,
    turns,
)


def row(step: int, layer: int | None, value: float | None, component: str = "attn.q", run: str = "a") -> TrajectoryRow:
    numbers = dict.fromkeys(MEASURES, value)
    problem = "all entries are zero" if value is None else None
    return TrajectoryRow(run, step, 100 * step, "checkpoint", component, layer, **numbers, problem=problem)


def test_a_curve_is_the_mean_and_the_range_over_layers():
    rows = [row(20, 0, 3.0), row(20, 1, 5.0), row(0, 0, 10.0), row(0, 1, 20.0)]
    assert curve(rows, "std") == ([Point(0, 0, 15.0, 10.0, 20.0), Point(20, 2000, 4.0, 3.0, 5.0)], [])


def test_a_step_without_one_of_the_layers_is_left_out_of_the_mean():
    """Layers of 10 and 100 that never move: a mean over one of them would jump."""
    rows = [row(0, 0, 10.0), row(0, 1, None), row(10, 0, 10.0), row(10, 1, 100.0), row(20, 1, 100.0)]
    points, left_out = curve(rows, "stable_rank")
    assert [(point.step, point.mean) for point in points] == [(10, 55.0)]
    assert left_out == [0, 20]
    never = [row(0, 0, 10.0), row(0, 1, None), row(10, 0, 10.0), row(10, 1, None)]
    assert [point.mean for point in curve(never, "stable_rank")[0]] == [10.0, 10.0]


def test_of_experts_each_layer_has_the_mean():
    rows = [row(0, 0, 1.0), row(0, 0, 5.0), row(0, 1, 10.0)]
    rows += [row(10, 0, 2.0), row(10, 0, None), row(10, 1, 10.0)]
    assert curve(rows, "std") == ([Point(0, 0, 6.5, 3.0, 10.0)], [10])
    one, other = measures(matrix_stats(torch.eye(4))), measures(matrix_stats(torch.diag(torch.tensor([1.0, 1, 0]))))
    assert averaged([one]) == one
    assert averaged([one, other])["stable_rank"] == pytest.approx(3)
    zero = averaged([one, measures(matrix_stats(torch.zeros(4, 4)))])
    assert (zero["stable_rank"], zero["problem"]) == (None, "all entries are zero")


def test_references_follow_the_shapes_in_the_table():
    shapes = {"head": (3, 2), "embed": (5, 2)}
    facts = [ParameterFact(name, name, shape, 2, shape[0]) for name, shape in shapes.items()]
    facts += [ParameterFact(f"{i}.o", "attn.o", (m, 2), 2, m, layer=i) for i, m in enumerate((2, 5, 5))]
    asked = []

    def gaussian(m: int, n: int) -> dict:
        asked.append((m, n))
        return {**dict.fromkeys(MEASURES, float(m)), "problem": None}

    found = references("r", facts, gaussian)
    assert [(one.component, one.stable_rank) for one in found] == [
        ("embed", 5.0), ("attn.o", 4.0), ("head", 3.0),
    ]  # fmt: skip
    assert asked == [(5, 2), (2, 2), (3, 2)]


def test_turning_points():
    values = {0: 30.0, 10: 2.0, 20: 2.0, 30: 35.0, 40: 8.0}
    rows = [row(step, layer, value + layer) for step, value in values.items() for layer in (0, 2)]
    rows += [row(0, None, 1.0, "embed")]
    told = reference("a", "attn.q", [measures(gaussian_stats(8, 8)), measures(gaussian_stats(4, 8))])
    found = {(one.component, one.measure): one for one in turns(rows, [told])}
    one = found["attn.q", "stable_rank"]
    assert (one.first, one.first_step) == (31.0, 0)
    assert (one.least, one.least_step) == (3.0, 10)  # the earlier of two
    assert (one.most, one.most_step) == (36.0, 30)
    assert (one.last, one.last_step) == (9.0, 40)
    assert (one.matrices, one.points) == (2, 5)
    both = [gaussian_stats(8, 8).stable_rank, gaussian_stats(4, 8).stable_rank]
    assert one.gaussian == pytest.approx(sum(both) / 2)  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert found["attn.q", "std"].gaussian is None
    assert found["embed", "std"].gaussian is None
    assert turns([row(0, 0, None)], []) == []


def test_groups_keep_runs_as_they_come_and_order_components():
    rows = [row(0, None, 1.0, name, run) for run in "ba" for name in ("head", "attn.o", "embed", "attn.q")]
    names = ("embed", "attn.q", "attn.o", "head")
    assert list(grouped(rows)) == [(run, name) for run in "ba" for name in names]


def test_what_a_run_recorded_comes_back():
    stats = matrix_stats(torch.eye(4))
    written = {"step": 7, "tokens": 70, "components": {"attn.q/11": measures(stats), "embed": measures(stats)}}
    first, second = recorded("r", written)
    assert (first.component, first.layer, first.step, first.tokens, first.source) == ("attn.q", 11, 7, 70, "recorded")
    assert (first.stable_rank, first.entropy_rank, first.er99, first.row_cosine) == pytest.approx((4, 4, 1, 0))
    assert first == replace(second, component="attn.q", layer=11)
    assert second.layer is None
    zero = {"step": 7, "tokens": 70, "components": {"head": measures(matrix_stats(torch.zeros(4, 4)))}}
    assert (recorded("r", zero)[0].stable_rank, recorded("r", zero)[0].problem) == (None, "all entries are zero")


@pytest.mark.parametrize("broken", [{}, {"components": []}, {"components": {"a/b": {}}}, {"components": {"a": 3}}])
def test_a_damaged_row_is_an_error_that_a_reader_catches(broken):
    with pytest.raises((KeyError, TypeError, AttributeError, ValueError)):
        recorded("r", {"step": 1, "tokens": 1, **broken})


def test_layers_that_stand_for_many():
    assert thinned(range(24), 4) == [0, 8, 15, 23]
    assert thinned([3, 1, 1], 8) == [1, 3]
    assert thinned([5], 8) == [5]
    assert thinned([], 8) == []
