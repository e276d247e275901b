"""Which point of a grid is the best, and which to try next: a walk downhill from the middle."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    has worse neighbours on all sides. Where the loss has one valley along each axis, that is the best of the grid.
    """
    middle = tuple(length // 2 for length in shape)
    finite = {point: loss for point, loss in losses.items() if math.isfinite(loss)}
    here = min(finite, key=lambda point: (finite[point], point)) if finite else middle
    todo = [point for point in (here, *_neighbours(here, shape)) if point not in losses]
    if not finite and not todo:  # all diverged so far: lower values are more likely to work
        todo = [point for point in _all(shape) if point not in losses and point <= middle][-1:]
    if todo:
        return Walk(todo, None, [])
    if not finite:
        return Walk([], None, [])
    return Walk([], here, [axis for axis, length in enumerate(shape) if here[axis] in (0, length - 1)])


def _neighbours(point: Point, shape: Sequence[int]) -> Iterator[Point]:
    for axis, length in enumerate(shape):
        for step in (-1, 1):
            if 0 <= point[axis] + step < length:
                yield (*point[:axis], point[axis] + step, *point[axis + 1 :])


def _all(shape: Sequence[int]) -> list[Point]:
    points: list[Point] = [()]
    for length in shape:
        points = [(*point, index) for point in points for index in range(length)]
    return points
