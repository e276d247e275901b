"""Which texts a model reads: those that are named, or what its run holds out of its own store."""

from collections.abc import Sequence
from pathlib import Path

from seedbed.data.stored import is_store
from seedbed.data.texts import Texts, read_texts
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import sha256
from seedbed.files.jsonl import OnBad
from seedbed.hub.newest import of_newest
from seedbed.train.run import CONFIG, read_config

_NO_TEXTS = "has no texts of its own; name files, folders of them or a store with --data"


def held_out_texts(run: str | Path, tokenizer: Tokenizer, length: int, count: int | None = None) -> Texts:
    """The same of what a run of ours, or the run of a checkpoint, holds out: of its own store."""
    return read_texts([store_of(run)], tokenizer, length, count)


def store_of(run: str | Path) -> Path:
    """The store that a run of ours, or the run of a checkpoint, was trained on.

    Raises InputError where it is no run, or its store is not where it was.
    """
    folder, config = of_newest(run, lambda folder: (folder, read_config(folder)))
    places = [Path(place) for place in [config.data.store] if place is not None]
    home, own = folder.resolve().parent.parent, Path(config.run.dir or "").parts
    if len(own) < len(home.parts) and home.parts[-len(own) :] == own:
        # a relative place holds where the run was started from
        places += [home.parents[len(own) - 1] / place for place in places]
    store = next((place for place in places if is_store(place)), None)
    if store is None:
        raise InputError(f"{run}: its store, {config.data.store}, is not there; name texts or a store with --data")
    return store


def shared_store(models: Sequence[str | Path]) -> Path:
    """The one store of all runs of ours among ``models``.

    Raises InputError where there is no run, and where two were trained on different stores: what one holds out may be
    what the other was trained on.
    """
    runs = [model for model in models if (Path(model) / CONFIG).is_file()]
    if not runs:
        raise InputError(f"{models[0]}: {_NO_TEXTS}")
    stores = [store_of(run) for run in runs]
    for run, store in zip(runs, stores, strict=True):
        if sha256(store / "header.json") != sha256(stores[0] / "header.json"):
            raise InputError(
                f"{runs[0]} and {run}: were trained on different stores, {stores[0]} and {store}; name files, folders "
                "of them or a store with --data, of text that neither was trained on"
            )
    return stores[0]


def texts_for(
    model: str | Path,
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    length: int,
    count: int | None = None,
    text_field: str = "text",
    on_bad: OnBad = "strict",
) -> Texts:
    """The texts at ``paths``; where there are none, those that the run ``model`` holds out.

    Raises InputError for a model of another maker without texts.
    """
    if paths:
        return read_texts(paths, tokenizer, length, count, text_field, on_bad)
    if not (Path(model) / CONFIG).is_file():
        raise InputError(f"{model}: {_NO_TEXTS}")
    return held_out_texts(model, tokenizer, length, count)
