"""Which point of a grid is the best, and which to try next: a look at every second one, then down each valley."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

Point = tuple[int, ...]
"""An index on each axis of a grid."""


@dataclass(frozen=True)
class Walk:
    """Where a walk stands."""

    todo: list[Point]
    """Points whose loss is to be found next; none where the walk has ended."""
    best: Point | None
    """The end of the walk: no neighbour is better. None before that, and where no point has a finite loss."""
    edges: list[int]
    """Axes at whose end ``best`` lies: nothing says that a value outside would not be better."""


def walk(shape: Sequence[int], losses: Mapping[Point, float]) -> Walk:
    """The next points of a grid of ``shape`` whose ``losses`` are needed, infinite for runs that diverged.

    Every second value along each axis is tried first. Of these, each that has no better one two steps away begins a way
    down, by neighbours, until none is better; the lowest end is the best. So a valley is found wherever it lies, unless
    it is narrower than two values: losses over rates may have two, a broad one at rates that are too high to learn and
    a deeper one below. Where the loss is a sum over the axes of one valley each, the end is the best of the grid. It
    depends on nothing but the losses, in whatever order they come. As long as all diverged, lower points follow one by
    one, the nearest first: lower values are more likely to work. With all of them diverged it ends, without a best.
    """
    spread = list(product(*(range(min(1, length - 1), length, 2) for length in shape)))
    if todo := [point for point in spread if point not in losses]:
        return Walk(todo, None, [])

    def order(point: Point) -> tuple[float, Point]:
        return losses[point], point

    if all(math.isinf(losses[point]) for point in spread):
        lower = sorted(product(*(range(top + 1) for top in spread[0])), key=lambda p: (-sum(p), -min(p), p))
        here = next((point for point in lower if math.isfinite(losses.get(point, 0.0))), None)
        if here is None:
            return Walk([], None, [])
        if here not in losses:
            return Walk([here], None, [])
        starts = [here]
    else:
        finite = [point for point in spread if math.isfinite(losses[point])]
        starts = [point for point in finite if all(order(point) < order(far) for far in _neighbours(point, shape, 2))]
    ways = [_down(start, shape, losses) for start in starts]
    if needed := dict.fromkeys(point for near, _ in ways for point in near):  # ways may need the same
        return Walk(list(needed), None, [])
    best = min((end for _, end in ways), key=order)
    return Walk([], best, [axis for axis, length in enumerate(shape) if best[axis] in (0, length - 1)])


def _down(here: Point, shape: Sequence[int], losses: Mapping[Point, float]) -> tuple[list[Point], Point]:
    """What a way down from ``here`` needs next, nothing where it has ended, and the point that it has come to."""
    while True:
        near = list(_neighbours(here, shape))
        if todo := [point for point in near if point not in losses]:
            return todo, here
        best = min((here, *near), key=lambda point: (losses[point], point))
        if best == here:
            return [], here
        here = best


def _neighbours(point: Point, shape: Sequence[int], away: int = 1) -> Iterator[Point]:
    for axis, length in enumerate(shape):
        for step in (-away, away):
            if 0 <= point[axis] + step < length:
                yield (*point[:axis], point[axis] + step, *point[axis + 1 :])
