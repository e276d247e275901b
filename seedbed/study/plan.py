"""From a study to its runs: which there are, what each is, and which can be begun. Nothing is written here."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

from seedbed.analysis.cost import model_flops, sizes
from seedbed.analysis.resources import non_embedding, parameter_counts
from seedbed.config import Config
from seedbed.config.optim import WsdSchedule
from seedbed.data.store import Store
from seedbed.errors import InputError
from seedbed.optim.schedule import span, validate
from seedbed.study.outcome import Outcome
from seedbed.study.spec import Spec, Values, label_of
from seedbed.study.tune import Point, Walk, walk
from seedbed.train.run import flat
from seedbed.train.setup import resolve

ELSEWHERE = (
    "run.dir", "data.store", "data.prefetch", "train.checkpoint_every", "train.keep_checkpoints", "train.keep_best",
    "train.async_checkpoints", "train.tensorboard", "train.log_every", "parallel.timeout_s",
)  # fmt: skip
"""Fields that decide where a run lies and how it is kept, not what comes out of it."""
BRANCHES = 20
"""A run from which others branch keeps so many checkpoints, evenly spread; shares of it are rounded to them."""

Stage = Literal["tune", "compare"]


@dataclass(frozen=True)
class Cell:
    """An arm at a size."""

    levels: tuple[tuple[str, str], ...]
    """(axis, level) of each axis."""
    size: str

    @property
    def arm(self) -> str:
        return ", ".join(level for _, level in self.levels)

    @property
    def name(self) -> str:
        return self.arm if self.size == "base" else f"{self.arm}, {self.size}"


@dataclass(frozen=True)
class Trial:
    """A run of a study."""

    cell: Cell
    stage: Stage
    share: float
    """Of the budget."""
    seed: int
    tuned: Mapping[str, float]
    """What was chosen by path, or is tried."""
    config: Config
    """Resolved, without a folder."""
    key: str
    """A hash of everything that decides the outcome: the run's name."""
    parameters: int
    non_embedding: int
    tokens: int
    flops: float
    trunk: tuple[str, int] | None
    """The key of the run that this one branches off, and after which step."""


@dataclass(frozen=True)
class _Chosen:
    walk: Walk
    tuned: dict[str, float] | None
    """None where nothing can be chosen yet, or ever: ``problem`` says why."""
    problem: str | None = None


class Plan:
    """The runs of a study, as far as the outcomes so far decide them.

    Raises InputError where an override names no field, a budget or a schedule does not fit, or arms differ in what they
    may not.
    """

    def __init__(self, spec: Spec):
        self.spec = spec
        self._stores: dict[str, Store] = {}
        self._made: dict[Any, Trial] = {}
        self._checked: set[Cell] = set()
        self._counts: dict[Cell, tuple[int, int, int]] = {}
        for cell in self.cells:  # every override is tried before anything is run
            self._trial(cell, "compare", 1.0, spec.seeds[0], self._middle)
        self._same_data_and_budget()

    @cached_property
    def cells(self) -> list[Cell]:
        axes = [[(axis, level) for level in levels] for axis, levels in self.spec.axes.items()]
        return [Cell(levels, size) for size in self.spec.size_levels() for levels in product(*axes)]

    def trials(self, outcomes: Mapping[str, Outcome]) -> list[Trial]:
        """All runs that are known by now: tuning as far as it has come, the comparison of cells that have chosen."""
        found = []
        for cell in self.cells:
            found += self.tuning(cell, outcomes)
            chosen = self.chosen(cell, outcomes)
            if chosen.tuned is not None:
                found += self.comparison(cell, chosen.tuned)
        return list({trial.key: trial for trial in reversed(found)}.values())[::-1]

    def ready(self, outcomes: Mapping[str, Outcome]) -> list[Trial]:
        """Runs without an outcome that wait for no other one; the longest first, so that none is left for the end."""
        todo = [trial for trial in self.trials(outcomes) if trial.key not in outcomes]
        free = [trial for trial in todo if trial.trunk is None or trial.trunk[0] in outcomes]
        return sorted(free, key=lambda trial: -trial.flops)

    def tuning(self, cell: Cell, outcomes: Mapping[str, Outcome]) -> list[Trial]:
        """The tuning runs of a cell, done and to be done next."""
        if self.spec.tune is None:
            return []
        done = [point for point in product(*map(range, self._shape)) if self._tuning(cell, point).key in outcomes]
        return [self._tuning(cell, point) for point in dict.fromkeys([*done, *self.chosen(cell, outcomes).walk.todo])]

    def chosen(self, cell: Cell, outcomes: Mapping[str, Outcome]) -> _Chosen:
        """What a cell has chosen on the tuning seed."""
        if self.spec.tune is None:
            return _Chosen(Walk([], None, []), {})
        losses: dict[Point, float] = {}
        for point in product(*map(range, self._shape)):
            outcome = outcomes.get(self._tuning(cell, point).key)
            if outcome is None:
                continue
            if outcome.status == "failed":
                why = f"{cell.name}: a tuning run failed: {outcome.reason}"
                return _Chosen(Walk([], None, []), None, why)
            losses[point] = math.inf if outcome.nats_per_token is None else outcome.nats_per_token
        stands = walk(self._shape, losses)
        if stands.todo:
            return _Chosen(stands, None)
        if stands.best is None:
            return _Chosen(
                stands, None, f"{cell.name}: every value of {', '.join(self._paths)} diverged; lower the grid"
            )
        values = self._values(stands.best)
        if stands.edges:
            path = self._paths[stands.edges[0]]
            grid = self.spec.tune.grid[path]
            why = (
                f"{cell.name}: the best {path}, {label_of(values[path])}, is at the edge of its grid "
                f"({label_of(grid[0])} to {label_of(grid[-1])}); widen it: what was run stays"
            )
            return _Chosen(stands, None, why)
        return _Chosen(stands, values)

    def problems(self, outcomes: Mapping[str, Outcome]) -> list[str]:
        """Why cells have no result, a line each."""
        found = [self.chosen(cell, outcomes).problem for cell in self.cells]
        return [problem for problem in found if problem is not None]

    def comparison(self, cell: Cell, tuned: Mapping[str, float]) -> list[Trial]:
        """The runs of a cell that are compared: the whole budget of each seed, then what branches off it."""
        shares = sorted(self.spec.shares, reverse=True)
        return [self._trial(cell, "compare", share, seed, tuned) for seed in self.spec.seeds for share in shares]

    def fingerprint(self, trial: Trial) -> str:
        """Of what a run trains on."""
        assert trial.config.data.store is not None
        return self._stores[trial.config.data.store].split("train").fingerprint

    @property
    def _paths(self) -> list[str]:
        return [] if self.spec.tune is None else list(self.spec.tune.grid)

    @property
    def _shape(self) -> list[int]:
        return [] if self.spec.tune is None else [len(values) for values in self.spec.tune.grid.values()]

    @property
    def _middle(self) -> dict[str, float]:
        return self._values(tuple(length // 2 for length in self._shape))

    def _values(self, point: Point) -> dict[str, float]:
        grid = {} if self.spec.tune is None else self.spec.tune.grid
        return {path: values[index] for (path, values), index in zip(grid.items(), point, strict=True)}

    def _tuning(self, cell: Cell, point: Point) -> Trial:
        assert self.spec.tune is not None
        return self._trial(cell, "tune", 1.0, self.spec.tune.seed, self._values(point))

    def _trial(self, cell: Cell, stage: Stage, share: float, seed: int, tuned: Mapping[str, float]) -> Trial:
        made = (cell, share, seed, tuple(tuned.items()))
        if made not in self._made:
            self._made[made] = self._make(cell, stage, share, seed, tuned)
        return self._made[made]

    def _make(self, cell: Cell, stage: Stage, share: float, seed: int, tuned: Mapping[str, float]) -> Trial:
        spec, where = self.spec, f"study {self.spec.name}, {cell.name}"
        levels = [spec.axes[axis][level] for axis, level in cell.levels]
        layers = [spec.set, spec.size_levels()[cell.size], *levels, tuned, {"run.seed": seed}]
        config = _configuration(spec.base, layers, where)
        config, store = self._resolved(config, cell)
        length = store.header["seq_len"]
        parameters, inner, per_token = self._counted(cell, config, length)
        steps = _steps(spec, parameters, per_token, config.train.batch_size * length, where)
        whole, _ = _timed(config, steps, 1.0, spec, where)
        config, start = _timed(config, steps, share, spec, where)
        trunk = None if share == 1.0 else (self._key(whole, store), start)
        tokens = config.train.steps * config.train.batch_size * length
        return Trial(
            cell, stage, share, seed, dict(tuned), config, self._key(config, store), parameters, inner, tokens,
            float(per_token * (tokens - (0 if trunk is None else start * config.train.batch_size * length))), trunk,
        )  # fmt: skip

    def _counted(self, cell: Cell, config: Config, length: int) -> tuple[int, int, int]:
        """Parameters, those outside embeddings and head, and operations a token; the same for all runs of a cell."""
        if cell not in self._counts:
            counts = parameter_counts(config.model)
            parameters = sum(count.parameters for count in counts)
            self._counts[cell] = parameters, non_embedding(counts), model_flops(sizes(config, length))
        return self._counts[cell]

    def _resolved(self, config: Config, cell: Cell) -> tuple[Config, Store]:
        """With what its store decides; all of it is checked once a cell."""
        if cell not in self._checked:
            config, store = resolve(config)
            assert config.data.store is not None
            self._stores.setdefault(config.data.store, store)
            self._checked.add(cell)
        assert config.data.store is not None
        store = self._stores[config.data.store]
        if config.model.vocab_size is None:
            model = config.model.model_copy(update={"vocab_size": store.header["padded_vocab_size"]})
            config = config.model_copy(update={"model": model})
        return config, store

    def _key(self, config: Config, store: Store) -> str:
        values = {path: value for path, value in flat(config.dump()).items() if path not in ELSEWHERE}
        data = {name: store.split(name).fingerprint for name in ("train", "heldout")}
        return hashlib.sha256(json.dumps([values, data], sort_keys=True).encode()).hexdigest()[:16]

    def _same_data_and_budget(self) -> None:
        """Arms of a size read the same data for as long, unless the study says that they differ."""
        for size in self.spec.size_levels():
            trials = [
                self._trial(cell, "compare", 1.0, self.spec.seeds[0], self._middle)
                for cell in self.cells
                if cell.size == size
            ]
            for what, of in _TOLD.items():
                first = trials[0]
                other = next((trial for trial in trials if of(self, trial) != of(self, first)), None)
                if other is not None and what not in self.spec.differ:
                    raise InputError(
                        f"study {self.spec.name}: {other.cell.name} and {first.cell.name} differ in their {what} "
                        f"({of(self, other)} and {of(self, first)}); make them equal, or say so with differ: [{what}]"
                    )


def _data(plan: Plan, trial: Trial) -> Any:
    return plan.fingerprint(trial)[:12]


def _budget(plan: Plan, trial: Trial) -> Any:
    rule = plan.spec.budget
    if rule.tokens is not None:
        return f"{trial.tokens:,} tokens"
    if rule.flops is not None:  # steps are whole: a step more or less is the same budget
        return f"{rule.flops:.3g} operations"
    return f"{rule.tokens_per_parameter:g} tokens a parameter"


_TOLD: dict[str, Callable[[Plan, Trial], Any]] = {"data": _data, "budget": _budget}


def _configuration(base: str | None, layers: list[Values | Mapping[str, Any]], where: str) -> Config:
    """The base with the overrides of each layer, later ones winning; values that scale with the width come last."""
    values: dict[str, Any] = {}
    for layer in layers:
        for path, value in layer.items():
            values.pop(path, None)
            values[path] = value
    if "train.steps" in values or "run.dir" in values:
        path = "train.steps" if "train.steps" in values else "run.dir"
        told = "budget" if path == "train.steps" else "--out"
        raise InputError(f"{where}: {path} is set by the study ({told}); leave it out")
    scaled = {path: value for path, value in values.items() if isinstance(value, dict) and "width_power" in value}
    plain = [_override(path, value) for path, value in values.items() if path not in scaled]
    config = _load(base, plain, where)
    if not scaled:
        return config
    return _load(
        base, [*plain, *(_override(p, _power(p, v, config.model.d_model, where)) for p, v in scaled.items())], where
    )


def _load(base: str | None, overrides: list[str], where: str) -> Config:
    try:
        return Config.load(base, overrides)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _override(path: str, value: Any) -> str:
    return f"{path}={json.dumps(value, ensure_ascii=False)}"


def _power(path: str, rule: dict[str, Any], width: int, where: str) -> float:
    times, power = rule.get("times"), rule["width_power"]
    if set(rule) != {"times", "width_power"} or not all(isinstance(x, int | float) for x in (times, power)):
        raise InputError(
            f"{where}: {path}: write {{times: NUMBER, width_power: NUMBER}}, the value times * d_model^power"
        )
    return float(f"{times * width**power:.6g}")


def _steps(spec: Spec, parameters: int, flops_per_token: int, step_tokens: int, where: str) -> int:
    """Steps of the whole budget, rounded to the nearest."""
    budget = spec.budget
    tokens = (
        budget.tokens
        or (budget.tokens_per_parameter or 0) * parameters
        or (budget.flops or 0) / flops_per_token
    )  # fmt: skip
    steps = round(tokens / step_tokens)
    if len(spec.shares) > 1:
        unit = max(1, steps // BRANCHES)
        steps = steps // unit * unit
    if steps < 1:
        raise InputError(f"{where}: a budget of {tokens:,.0f} tokens is less than one step of {step_tokens:,}")
    return steps


def _timed(config: Config, steps: int, share: float, spec: Spec, where: str) -> tuple[Config, int]:
    """``config`` for ``share`` of ``steps``, and after which step its cooldown begins.

    Where runs branch, warmup and cooldown are whole numbers of steps, so that runs of all shares make the same steps
    until each one's cooldown, and the run of the whole budget keeps checkpoints where the others begin theirs.
    """
    schedule, total, start, kept = config.optim.schedule, steps, 0, {}
    if len(spec.shares) > 1:
        if not isinstance(schedule, WsdSchedule):
            raise InputError(f"{where}: shares: branching off needs optim.schedule.kind=wsd, not {schedule.kind}")
        warmup, spans = span(schedule.warmup, steps), {}
        for each in spec.shares:
            spans[each] = _branch(schedule, steps, each)
            if not warmup <= spans[each][1] < spans[each][0]:
                raise InputError(
                    f"{where}: share {each:g} is {spans[each][0]} steps, too few for a warmup of {warmup} and a "
                    "cooldown; leave it out, or raise the budget"
                )
        total, start = spans[share]
        schedule = schedule.model_copy(update={"warmup": warmup, "decay": total - start})
        every = math.gcd(*(spans[each][1] for each in spec.shares if each < 1))
        kept = {"checkpoint_every": every, "keep_checkpoints": steps // every + 1}
    try:
        validate(total, schedule)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    train = {"steps": total, "eval_every": max(1, math.ceil(total / spec.milestones)), **kept}
    sections = {
        "train": config.train.model_copy(update=train),
        "optim": config.optim.model_copy(update={"schedule": schedule}),
    }
    return config.model_copy(update=sections), start


def _branch(schedule: WsdSchedule, steps: int, share: float) -> tuple[int, int]:
    """Steps of ``share`` of a run of ``steps``, and after which its cooldown begins; multiples of a part of the run."""
    unit = max(1, steps // BRANCHES)
    total = max(unit, round(share * steps / unit) * unit)
    return total, round((total - span(schedule.decay, total)) / unit) * unit
