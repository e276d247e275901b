"""Which point of a grid is the best, and which to try next: a look at every second one, then downhill."""

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

    Every second value along each axis is tried first, then from the best of these the neighbours, until none is better.
    So a valley is found wherever it lies, unless it is narrower than two values: losses over rates may have two, a
    broad one at rates that are too high to learn and a deeper one below. Where the loss is a sum over the axes of one
    valley each, the end is the best of the grid. It depends on nothing but the losses, in whatever order they come. As
    long as all diverged, lower points follow one by one, the nearest first: lower values are more likely to work. With
    all of them diverged it ends, without a best.
    """
    spread = list(product(*(range(min(1, length - 1), length, 2) for length in shape)))
    if todo := [point for point in spread if point not in losses]:
        return Walk(todo, None, [])
    if all(math.isinf(losses[point]) for point in spread):
        lower = sorted(product(*(range(top + 1) for top in spread[0])), key=lambda p: (-sum(p), -min(p), p))
        here = next((point for point in lower if math.isfinite(losses.get(point, 0.0))), None)
        if here is None:
            return Walk([], None, [])
        if here not in losses:
            return Walk([here], None, [])
    else:
        here = min(spread, key=lambda point: (losses[point], point))
    while True:
        near = list(_neighbours(here, shape))
        if todo := [point for point in near if point not in losses]:
            return Walk(todo, None, [])
        best = min((here, *near), key=lambda point: (losses[point], point))
        if best == here:
            return Walk([], here, [axis for axis, length in enumerate(shape) if here[axis] in (0, length - 1)])
        here = best


def _neighbours(point: Point, shape: Sequence[int]) -> Iterator[Point]:
    for axis, length in enumerate(shape):
        for step in (-1, 1):
            if 0 <= point[axis] + step < length:
                yield (*point[:axis], point[axis] + step, *point[axis + 1 :])
