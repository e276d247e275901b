"""What is in a checkpoint's folder, of ours or of Hugging Face? The parameter table and the tensors."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import canonical, parameter_facts
from seedbed.files.safetensors import Tensors, spellings, weight_files
from seedbed.model import Decoder
from seedbed.train.run import CONFIG, read_config
from seedbed.train.setup import checkpoint_of

# What older releases of Transformers saved and newer ones make from the configuration.
_RECOMPUTED = (r"rotary_emb\.inv_freq$", r"(^|\.)position_ids$", r"\.attn\.masked_bias$")


@dataclass(frozen=True)
class Checkpoint:
    """Weights on disk, with the table of the model that they belong to."""

    name: str
    facts: list[ParameterFact]
    files: list[Path]
    tensors: Mapping[str, Tensor]
    places: dict[str, str]  # canonical name of a parameter -> its name in the files

    def read(self, parameter: str) -> Tensor:
        """The parameter as it is stored."""
        return self.tensors[self.places[parameter]]


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a run, one of its checkpoints, or the folder of a Hugging Face checkpoint; no tensor is read yet.

    Raises InputError when it is none of these, when a file is damaged or missing, and naming the tensors that are
    missing, have no place in the model, or have another shape.
    """
    path = Path(path)
    if (path / "config.json").is_file():
        model, folder = _foreign_model(path), path
    elif (path / CONFIG).is_file():
        folder = checkpoint_of(path)
        with torch.device("meta"):
            model = Decoder(read_config(folder).model)
    elif not path.is_dir():
        raise InputError(f"{path}: no such folder; give a run, one of its checkpoints or a Hugging Face checkpoint")
    else:
        raise InputError(f"{path}: neither config.json (Hugging Face) nor {CONFIG} (a run); give a checkpoint's folder")
    facts, files = parameter_facts(model), weight_files(folder)
    tensors, name = Tensors(files), path.resolve().name
    try:
        return Checkpoint(name, facts, files, tensors, _places(tensors, facts, model))
    except InputError as error:
        converted = _converted(model, folder)
        if converted is None:
            told = f"{path}: {error}; give the checkpoint as it was saved, with its own configuration"
            raise InputError(told) from None
        return Checkpoint(name, facts, files, converted, {canonical(own): own for own in converted})


def _foreign_model(path: Path) -> nn.Module:
    """The model that ``config.json`` describes, without memory: on the meta device. Code in the folder is not run."""
    try:
        import transformers
    except ImportError:
        raise InputError(
            f"{path}: the parameters of a Hugging Face checkpoint are known to Transformers, which is not installed; "
            "pip install 'seedbed[hf]'"
        ) from None
    try:
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
        with torch.device("meta"):
            for name in config.architectures or ():
                if hasattr(transformers, name):
                    return getattr(transformers, name)(config)
            return transformers.AutoModel.from_config(config)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path / 'config.json'}: Transformers cannot build this model: {reason}") from None


def _converted(model: nn.Module, folder: Path) -> dict[str, Tensor] | None:
    """All parameters as Transformers loads them, in memory at once: it renames and stacks what older releases named
    otherwise or saved apart (experts). None where that leaves one out too, or for a model of ours."""
    if isinstance(model, Decoder):
        return None
    try:
        loaded, told = type(model).from_pretrained(  # pyright: ignore[reportAttributeAccessIssue]
            folder, local_files_only=True, use_safetensors=True, dtype="auto", output_loading_info=True
        )
    except RuntimeError:  # how it tells of tensors of another shape
        return None
    return None if any(told.values()) else {name: p.detach() for name, p in loaded.named_parameters()}


def _places(tensors: Tensors, facts: Iterable[ParameterFact], model: nn.Module) -> dict[str, str]:
    """The name in the files of every parameter. Names there may lack the prefix of the base model, or have it."""
    prefix = getattr(model, "base_model_prefix", "")
    known = {name: fact for fact in facts for name in (fact.name, *fact.tied)}
    ignored = [*_RECOMPUTED, *(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ())]
    buffers = {canonical(name) for name, _ in model.named_buffers()}
    places: dict[str, str] = {}
    unknown, misshapen = [], []
    for name in tensors:
        own = canonical(name)
        candidates = spellings(own, prefix)
        fact = next((known[candidate] for candidate in candidates if candidate in known), None)
        if fact is None:
            if not buffers.intersection(candidates) and not any(re.search(pattern, name) for pattern in ignored):
                unknown.append(name)
            continue
        places[fact.name] = name
        if tensors.shape(name) != fact.stored_shape:
            misshapen.append(f"{name} {tensors.shape(name)} instead of {fact.stored_shape}")
    missing = [fact.name for fact in known.values() if fact.name not in places]
    problems = (("without a place in the model", unknown), ("of another shape", misshapen), ("missing", missing))
    told = [f"{kind}: {_some(names)}" for kind, names in problems if names]
    if told:
        raise InputError("; ".join(told))
    return places


def _some(names: Iterable[str]) -> str:
    """All names of a few, the first of many."""
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
