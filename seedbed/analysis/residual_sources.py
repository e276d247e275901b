"""The models to measure: checkpoints as they are given, or of runs all steps."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from seedbed.data.tokenizer import load_tokenizer
from seedbed.files.steps import step_folders
from seedbed.hub.models import LanguageModel, open_model
from seedbed.train.run import CONFIG, read_config
from seedbed.train.setup import initial_model


class Source(NamedTuple):
    """A model to measure."""

    model: str
    step: int | None  # of a run whose newest checkpoint is asked for, known once it is open
    told: str  # where its weights are from
    open: Callable[[], LanguageModel]

    @property
    def at(self) -> str:
        return self.told if self.step is None else f"step {self.step}"

    def opened(self, model: LanguageModel) -> "Source":
        """With the checkpoint that ``model`` was read from: a run that trains may have removed the one that was the
        newest before."""
        folder = model.files[0].parent
        of_run = folder.parent.parent == Path(self.told)
        return self._replace(step=_step(folder), told=str(folder)) if of_run else self


def sources_of(name: str, path: Path, every_checkpoint: bool, problems: list[str]) -> Iterator[Source]:
    """The newest whole checkpoint of a run, or all of them, oldest first; any other checkpoint as it is."""
    folders = step_folders(path)[::-1] if every_checkpoint else []
    if folders:
        yield from _drawn(name, path, folders, problems)
    for folder in folders or [path]:
        yield Source(name, _step(folder), str(folder), lambda folder=folder: open_model(folder))


def _step(folder: Path) -> int | None:
    step = re.fullmatch(r"step_(\d+)", folder.resolve().name)
    return int(step[1]) if step else None


def _drawn(name: str, path: Path, folders: Sequence[Path], problems: list[str]) -> Iterator[Source]:
    """The weights before the first step of the run at ``path``."""
    config = read_config(path)
    tokenizer = next((folder / "tokenizer" for folder in folders if (folder / "tokenizer").is_dir()), None)
    if tokenizer is None:
        problems.append(f"{name}, step 0: passed over: no checkpoint has its tokenizer")
        return

    def make() -> LanguageModel:
        module, _ = initial_model(config)
        return LanguageModel(name, module.eval(), load_tokenizer(tokenizer), config.model.max_seq_len, (path / CONFIG,))

    told = "drawn again from the run's configuration and seed"
    yield Source(name, 0, told, make)
