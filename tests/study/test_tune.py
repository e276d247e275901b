"""The walk over a grid."""

import math
from collections.abc import Callable
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from seedbed.study.tune import Point, walk

SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=3)


def walked(shape: list[int], loss: Callable[[Point], float]) -> tuple[Point | None, list[int], list[Point]]:
    """The end of a walk, the edges there, and the points in the order that they were asked for."""
    losses: dict[Point, float] = {}
    asked: list[Point] = []
    while todo := (stands := walk(shape, losses)).todo:
        assert stands.best is None
        asked += todo
        losses |= {point: loss(point) for point in todo}
        assert len(asked) <= math.prod(shape)
    assert len(set(asked)) == len(asked)
    assert all(0 <= index < length for point in asked for index, length in zip(point, shape, strict=True))
    return stands.best, stands.edges, asked


@given(SHAPES, st.data())
def test_where_each_axis_has_one_valley_the_best_of_the_grid_is_found(shape: list[int], data: st.DataObject) -> None:
    """Sums of one valley an axis, of any shape, infinite from some value on; edges are told exactly."""
    valleys = []
    for length in shape:
        bottom = data.draw(st.integers(0, length - 1))
        rises = data.draw(st.lists(st.floats(0.01, 10), min_size=length, max_size=length))
        ends = data.draw(st.integers(bottom + 1, length))
        valleys.append([sum(rises[min(i, bottom) : max(i, bottom)]) if i < ends else math.inf for i in range(length)])

    def loss(point: Point) -> float:
        return sum(valley[index] for valley, index in zip(valleys, point, strict=True))

    lowest = tuple(valley.index(min(valley)) for valley in valleys)
    best, edges, _ = walked(shape, loss)
    assert best == lowest
    assert edges == [axis for axis, index in enumerate(lowest) if index in (0, shape[axis] - 1)]


@given(SHAPES, st.data())
def test_any_losses_end_the_walk_where_no_neighbour_is_better(shape: list[int], data: st.DataObject) -> None:
    values = data.draw(
        st.lists(st.floats(0, 10) | st.just(math.inf), min_size=math.prod(shape), max_size=math.prod(shape))
    )
    losses = dict(zip(product(*map(range, shape)), values, strict=True))
    best, edges, asked = walked(shape, losses.__getitem__)
    spread = set(product(*(range(min(1, length - 1), length, 2) for length in shape)))
    assert spread <= set(asked)
    if best is None:
        lower = set(product(*(range(min(2, length)) for length in shape)))
        assert edges == []
        assert lower <= set(asked)  # not said before every lower point was tried
        assert all(math.isinf(losses[point]) for point in asked)
    else:
        assert losses[best] <= min(losses[point] for point in spread)
        near = {point for point in losses if sum(abs(a - b) for a, b in zip(point, best, strict=True)) <= 1}
        assert losses[best] == min(losses[point] for point in near)
        assert near <= set(asked)
        assert edges == [axis for axis, index in enumerate(best) if index in (0, shape[axis] - 1)]


def test_a_walk_by_hand() -> None:
    assert walk([7], {}).todo == [(1,), (3,), (5,)]
    assert walk([7], {(3,): 2.0}).todo == [(1,), (5,)]
    spread = {(1,): 2.5, (3,): 2.0, (5,): 4.0}
    assert walk([7], spread).todo == [(2,), (4,)]
    assert walk([7], spread | {(2,): 1.0, (4,): 3.0}).best == (2,)
    end = walk([7], spread | {(2,): 2.2, (4,): 3.0})
    assert (end.todo, end.best, end.edges) == ([], (3,), [])
    assert walk([7], {(1,): 1.0, (3,): 2.0, (5,): 4.0, (0,): 0.5, (2,): 3.0}).edges == [0]


def test_a_deeper_valley_below_a_broad_one_is_found() -> None:
    """As measured: gamma = 1 at width 64, epsilon 1e-5; from the middle downhill the walk ended at (4,)."""
    losses = [4.2, 4.0737, 4.2819, 4.2995, 4.2780, 4.7132, 5.0]
    best, edges, _ = walked([7], lambda point: losses[point[0]])
    assert (best, edges) == ((1,), [])


def test_a_deeper_valley_between_coarse_values_is_found() -> None:
    """The best coarse value, (5,), lies in the shallower valley, as it did for gamma = 1.25 at width 32."""
    losses = [4.8, 4.3994, 4.30, 4.4167, 4.3295, 4.3714, 4.9081]
    best, edges, asked = walked([7], lambda point: losses[point[0]])
    assert (best, edges) == ((2,), [])
    assert asked == [(1,), (3,), (5,), (0,), (2,), (4,), (6,)]


@given(SHAPES, st.data())
def test_what_is_known_besides_changes_nothing(shape: list[int], data: st.DataObject) -> None:
    """Runs of another study in the same folder, or the order in which runs end."""
    points = list(product(*map(range, shape)))
    values = data.draw(st.lists(st.floats(0, 10), min_size=len(points), max_size=len(points)))
    losses = dict(zip(points, values, strict=True))
    best, _, _ = walked(shape, losses.__getitem__)
    assert walk(shape, losses).best == best


def test_after_divergence_lower_values_follow_the_nearest_first() -> None:
    diverged = {(1,): math.inf, (3,): math.inf, (5,): math.inf}
    assert walk([7], diverged).todo == [(0,)]
    assert walk([7], diverged | {(0,): 3.0, (1,): math.inf}).best == (0,)
    end = walk([7], diverged | {(0,): math.inf})
    assert (end.todo, end.best) == ([], None)
    _, _, asked = walked([5, 5], lambda _: math.inf)
    assert asked == [(1, 1), (1, 3), (3, 1), (3, 3), (0, 1), (1, 0), (0, 0)]
