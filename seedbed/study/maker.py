"""From an arm's overrides to a run: its configuration, its steps, its key."""

from collections.abc import Mapping
from pathlib import Path

from seedbed.analysis.cost import model_flops, sizes
from seedbed.analysis.resources import non_embedding, parameter_counts
from seedbed.config import Config, ModelConfig
from seedbed.data.store import Store
from seedbed.errors import InputError
from seedbed.study.budget import budget_steps, timed
from seedbed.study.overrides import configuration
from seedbed.study.spec import Spec
from seedbed.study.trial import Cell, Stage, Trial, run_key
from seedbed.train.setup import resolve


class Maker:
    """Makes the runs of a study; opens each store, checks each cell and counts each model once."""

    def __init__(self, spec: Spec):
        self._spec = spec
        self._stores: dict[str, Store] = {}
        self._checked: set[Cell] = set()
        self._counts: dict[tuple[ModelConfig, int], tuple[int, int, int]] = {}

    def make(self, cell: Cell, stage: Stage, share: float, seed: int, tuned: Mapping[str, float]) -> Trial:
        """The run of a cell with ``tuned`` values. Raises InputError, which names the cell, where an override names no
        field, model and data do not fit each other, or the budget does not fit the schedule.
        """
        spec, where = self._spec, f"study {self._spec.name}, {cell.name}"
        levels = [spec.axes[axis][level] for axis, level in cell.levels]
        layers = [spec.set, spec.sizes[cell.size], *levels, tuned, {"run.seed": seed}]
        base, file = ({}, "configuration") if spec.base is None else (spec.base.values, spec.base.file)
        config = configuration(base, file, layers, where)
        if config.data.store is None:
            raise InputError(
                f"{where}: data.store is not set; make one with `seedbed data prepare`, set data.store=FOLDER"
            )
        if not Path(config.data.store).is_dir():
            from_here = "" if Path(config.data.store).is_absolute() else f" from {Path.cwd()}"
            raise InputError(
                f"{where}: data.store={config.data.store}: no token store there{from_here}; runs are told apart by its "
                "content, so bring it back, or make one with `seedbed data prepare`"
            )
        try:
            store = self.store(config)
        except InputError as error:
            raise InputError(f"{where}: data.store={error}") from None
        self._check(cell, config, store, where)
        if config.model.vocab_size is None:
            model = config.model.model_copy(update={"vocab_size": store.header["padded_vocab_size"]})
            config = config.model_copy(update={"model": model})
        length: int = store.header["seq_len"]
        step_tokens = config.train.batch_size * length
        parameters, inner, per_token = self._counted(config, length)
        steps = budget_steps(spec, parameters, per_token, step_tokens, where)
        whole, _ = timed(config, steps, 1.0, spec, False, where)
        config, start = timed(config, steps, share, spec, stage == "compare" and share == 1.0, where)
        trunk = None if share == 1.0 else (run_key(whole, store), start)
        tokens = config.train.steps * step_tokens
        anew = (config.train.steps - (0 if trunk is None else start)) * step_tokens
        return Trial(
            cell, stage, share, seed, dict(tuned), config, run_key(config, store), parameters, inner, tokens,
            float(per_token * anew), trunk,
        )  # fmt: skip

    def store(self, config: Config) -> Store:
        """What a configuration trains on. Raises InputError as Store does."""
        assert config.data.store is not None
        if config.data.store not in self._stores:
            self._stores[config.data.store] = Store(config.data.store)
        return self._stores[config.data.store]

    def _counted(self, config: Config, length: int) -> tuple[int, int, int]:
        """Parameters, those outside embeddings and head, and operations a token."""
        model = config.model
        if (model, length) not in self._counts:
            counts = parameter_counts(model)
            parameters = sum(count.parameters for count in counts)
            self._counts[model, length] = parameters, non_embedding(counts), model_flops(sizes(config, length))
        return self._counts[model, length]

    def _check(self, cell: Cell, config: Config, store: Store, where: str) -> None:
        """Raise InputError, once for all runs of a cell, where its runs cannot be trained or compared."""
        if cell in self._checked:
            return
        if len(store.split("heldout")) == 0:
            raise InputError(
                f"{where}: data.store={config.data.store} holds nothing out, and runs are compared by their held-out "
                "loss; prepare it with --heldout above 0"
            )
        if "rollback" in (config.train.guard.nonfinite, config.train.guard.spike):
            raise InputError(
                f"{where}: train.guard: where a rollback goes back to depends on the checkpoints; choose stop or skip"
            )
        longest = config.train.model_copy(update={"steps": 2**31 - 1})  # schedules are checked with the study's steps
        try:
            resolve(config.model_copy(update={"train": longest}))
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        self._checked.add(cell)
