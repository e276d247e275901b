"""Which point of a grid is the best, and which to try next: a walk downhill from the middle."""

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

    It starts in the middle, looks at the neighbours along each axis, and goes on from the best point so far until that
    has worse neighbours on all sides. Where the loss is a sum over the axes of one valley each, that is the best of the
    grid; a valley askew of the axes may end it earlier. As long as all diverged, lower points follow one by one, the
    nearest first: lower values are more likely to work. With all of them diverged it ends, without a best.
    """
    middle = tuple(length // 2 for length in shape)
    finite = {point: loss for point, loss in losses.items() if math.isfinite(loss)}
    here = min(finite, key=lambda point: (finite[point], point)) if finite else middle
    todo = [point for point in (here, *_neighbours(here, shape)) if point not in losses]
    if not finite and not todo:
        lower = [point for point in product(*(range(top + 1) for top in middle)) if point not in losses]
        todo = sorted(lower, key=lambda point: (-sum(point), -min(point), point))[:1]
    if todo or not finite:
        return Walk(todo, None, [])
    return Walk([], here, [axis for axis, length in enumerate(shape) if here[axis] in (0, length - 1)])


def _neighbours(point: Point, shape: Sequence[int]) -> Iterator[Point]:
    for axis, length in enumerate(shape):
        for step in (-1, 1):
            if 0 <= point[axis] + step < length:
                yield (*point[:axis], point[axis] + step, *point[axis + 1 :])
