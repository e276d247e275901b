"""What is in a checkpoint's folder, of ours or of Hugging Face? The parameter table and the tensors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import canonical, parameter_facts
from seedbed.files.atomic import sha256
from seedbed.files.pickles import Pickles
from seedbed.files.safetensors import Tensors, spellings
from seedbed.hub.exported import SEEDBED
from seedbed.hub.families import FAMILIES
from seedbed.hub.family_configs import our_config
from seedbed.hub.foreign import (
    MISSHAPEN,
    MISSING,
    UNKNOWN,
    Foreign,
    configuration,
    find_foreign,
    in_memory,
    on_paper,
    open_tensors,
    some,
)
from seedbed.hub.newest import of_newest, weights_of
from seedbed.model import Decoder
from seedbed.train.run import read_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# What older releases of Transformers saved and newer ones make from the configuration.
_RECOMPUTED = (r"rotary_emb\.inv_freq$", r"(^|\.)position_ids$", r"\.attn\.masked_bias$")

_WHOLE = "give the checkpoint as it was saved, with its own configuration"
UNEQUAL = "one tensor in the model, and not the same twice"

HASHED = 4 * 2**30
"""Bytes of a file up to which its content tells it apart: seconds of hashing (choice)."""


@dataclass(frozen=True)
class Checkpoint:
    """Weights on disk, with the table of the model that they belong to."""

    name: str
    facts: list[ParameterFact]
    files: list[Path]
    tensors: Mapping[str, Tensor]
    places: dict[str, str]  # canonical name of a parameter -> its name in the files
    configuration: str = ""  # of the model, all of it
    hashes: Mapping[str, str] | None = None  # of the files by name, where they are known: they may be removed

    def read(self, parameter: str) -> Tensor:
        """The parameter as it is stored."""
        return self.tensors[self.places[parameter]]


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a run, one of its checkpoints, or a Hugging Face checkpoint: a folder of safetensors or of PyTorch's files,
    one such file beside its `config.json`, or a GGUF file.

    Tensors of safetensors and of PyTorch's files are read when they are asked for. GGUF, and what Transformers renames
    or stacks (experts), is in memory at once, since Transformers has no other way.
    Raises InputError when it is none of these, when a file is damaged or missing, and naming the tensors that are
    missing, have no place in the model, or have another shape.
    """
    path = Path(path)
    foreign, name = find_foreign(path), path.resolve().name
    if foreign is None:
        return of_newest(path, lambda folder: _ours(name, path, folder))
    config = configuration(foreign)
    opened = open_as(foreign, on_paper(foreign, config))
    return _as_trained(foreign, config, opened) if config.model_type == SEEDBED else opened


def _as_trained(foreign: Foreign, config: "PreTrainedConfig", opened: Checkpoint) -> Checkpoint:
    """An export of our own class with the table and the names of the run that it was."""
    with torch.device("meta"):
        model = Decoder(our_config(config, foreign.told_by).model)
    facts, family = parameter_facts(model), FAMILIES[SEEDBED]
    places = {fact.name: opened.places[place] for fact in facts for place in family.places(fact.name)}
    return replace(opened, facts=facts, places=places, configuration=str(model.config))


def open_as(foreign: Foreign, model: nn.Module) -> Checkpoint:
    """The checkpoint as the weights of ``model``, a class of Transformers on the meta device; all of them have a place
    there, and none is missing. Reads and raises as `open_checkpoint`."""
    if foreign.gguf:
        return _loaded(foreign, model)
    name, tensors, facts = foreign.path.resolve().name, open_tensors(foreign), parameter_facts(model)
    try:
        places = _places(tensors, facts, model)
        return Checkpoint(name, facts, foreign.files, tensors, places, str(model.config))
    except InputError as error:
        told = f"{foreign.path}: {error}; {_WHOLE}"
        try:
            return _loaded(foreign, model)
        except InputError:
            raise InputError(told) from None


def exported_model(foreign: Foreign, config: "PreTrainedConfig") -> Decoder:
    """The decoder that an export of our own class was, in fp32. Reads and raises as `open_checkpoint`."""
    model, opened = Decoder(our_config(config, foreign.told_by).model), open_checkpoint(foreign.path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(opened.read(name))
    return model.eval()


def _ours(name: str, path: Path, folder: Path) -> Checkpoint:
    """The checkpoint in ``folder``, of the run or checkpoint that was asked for."""
    with torch.device("meta"):
        model = Decoder(read_config(folder).model)
    files = weights_of(folder)
    tensors, facts = Tensors(list(files)), parameter_facts(model)
    try:
        places = _places(tensors, facts, model)
    except InputError as error:
        raise InputError(f"{path}: {error}; {_WHOLE}") from None
    hashes = {file.name: files[file] for file in files}
    return Checkpoint(name, facts, list(files), tensors, places, str(model.config), hashes)


def names_of(paths: Sequence[Path]) -> list[str]:
    """The folders' names; the whole paths where two are the same. Raises InputError for a path given twice."""
    places = [path.resolve() for path in paths]
    for place, path in zip(places, paths, strict=True):
        if places.count(place) > 1:
            raise InputError(f"{path}: given twice; give each model once")
    names = [place.name for place in places]
    return [str(path) if names.count(name) > 1 else name for name, path in zip(names, paths, strict=True)]


class Opened(Protocol):
    """A checkpoint or a model."""

    @property
    def files(self) -> Sequence[Path]: ...

    @property
    def hashes(self) -> Mapping[str, str] | None: ...


def fingerprint(opened: Opened) -> dict[str, str]:
    """What tells its weights apart, by file name: the SHA-256, or of other makers' files above 4 GB size and time of
    change, since hashing a hundred of those takes minutes."""
    if opened.hashes is not None:
        return dict(opened.hashes)
    return {file.name: _fingerprint(file) for file in opened.files}


def hashes_of(opened: Opened) -> list[str]:
    """The SHA-256 of each of its files."""
    return [sha256(file) for file in opened.files] if opened.hashes is None else list(opened.hashes.values())


def _fingerprint(file: Path) -> str:
    state = file.stat()
    return sha256(file) if state.st_size <= HASHED else f"{state.st_size} bytes, changed at {state.st_mtime_ns} ns"


def of_module(foreign: Foreign, module: nn.Module) -> Checkpoint:
    """The weights of ``foreign`` as they are in ``module``, a model of Transformers that they were loaded into."""
    tensors = {canonical(own): parameter.detach() for own, parameter in module.named_parameters()}
    places = {own: own for own in tensors}
    configuration = str(getattr(module, "config", ""))
    name = foreign.path.resolve().name
    return Checkpoint(name, parameter_facts(module), foreign.files, tensors, places, configuration)


def _loaded(foreign: Foreign, model: nn.Module) -> Checkpoint:
    """All parameters as Transformers loads them, in memory at once: it dequantises GGUF, and renames and stacks what
    older releases named otherwise or saved apart (experts). Raises InputError where that leaves one out too."""
    loaded, told = in_memory(foreign, type(model), torch.float32 if foreign.gguf else "auto")  # pyright: ignore[reportArgumentType]
    if problems := [f"{what}: {some(names)}" for what, names in told.items()]:
        raise InputError(f"{foreign.path}: {'; '.join(problems)}; give the checkpoint as it was saved")
    return of_module(foreign, loaded)


def _places(tensors: Tensors | Pickles, facts: Iterable[ParameterFact], model: nn.Module) -> dict[str, str]:
    """The name in the files of every parameter. Names there may lack the prefix of the base model, or have it.

    Raises InputError for what has no place, is missing, has another shape, or stands there twice with other numbers (a
    head that the configuration ties)."""
    prefix = getattr(model, "base_model_prefix", "")
    known = {name: fact for fact in facts for name in (fact.name, *fact.tied)}
    ignored = [*_RECOMPUTED, *(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ())]
    buffers = {canonical(name) for name, _ in model.named_buffers()}
    places: dict[str, str] = {}
    unknown, misshapen, unequal = [], [], []
    for name in tensors:
        own = canonical(name)
        candidates = spellings(own, prefix)
        fact = next((known[candidate] for candidate in candidates if candidate in known), None)
        if fact is None:
            if not buffers.intersection(candidates) and not any(re.search(pattern, name) for pattern in ignored):
                unknown.append(name)
            continue
        first = places.setdefault(fact.name, name)
        if tensors.shape(name) != fact.stored_shape:
            misshapen.append(f"{name} {tensors.shape(name)} instead of {fact.stored_shape}")
        elif first != name and not _same(tensors[first], tensors[name]):
            unequal.append(f"{first} and {name}")
    missing = [fact.name for fact in known.values() if fact.name not in places]
    problems = ((UNKNOWN, unknown), (MISSHAPEN, misshapen), (UNEQUAL, unequal), (MISSING, missing))
    told = [f"{kind}: {some(names)}" for kind, names in problems if names]
    if told:
        raise InputError("; ".join(told))
    return places


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape have the same numbers; NaN is like NaN."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
