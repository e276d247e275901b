"""Checkpoints of other makers: which files they are, and what Transformers makes of them. No code in them is run."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from seedbed.errors import InputError
from seedbed.files.pickles import PICKLE, PICKLE_INDEX, Pickles, pickle_files
from seedbed.files.safetensors import INDEX, WEIGHTS, Tensors, index_of, weight_files
from seedbed.hub.exported import exported_class, exported_config
from seedbed.hub.foreign_words import check_json, one_line, quiet
from seedbed.train.run import CONFIG

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

CONFIGURATION = "config.json"
UNKNOWN, MISSHAPEN, MISSING = "without a place in the model", "of another shape", "missing"
"""What can be wrong with a tensor."""
UNQUANTISED = "give the checkpoint that was not quantised, or GGUF, which is undone"


@dataclass(frozen=True)
class Foreign:
    """A Hugging Face checkpoint, or a file of weights."""

    path: Path
    """As it was given."""
    folder: Path
    """With the configuration, the tokenizer and, as a rule, the weights."""
    files: list[Path]
    """Of weights: safetensors, pickles or one of GGUF."""
    alone: bool = False
    """The weights are one file, under a name that Transformers does not look for."""

    @property
    def gguf(self) -> str | None:
        """The name of the file where it is GGUF, which has weights, configuration and tokenizer in it."""
        return self.files[0].name if self.files[0].suffix == ".gguf" else None

    @property
    def told_by(self) -> Path:
        """The file that says what model it is."""
        return self.files[0] if self.gguf else self.folder / CONFIGURATION


def find_foreign(path: Path) -> Foreign | None:
    """The checkpoint at ``path``, a folder or a file of weights; None for the folder of a run or a checkpoint of ours.

    Raises InputError where there is neither, or several GGUF files to choose from.
    """
    if path.is_file():
        return _of_file(path)
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; give a run, one of its checkpoints or a Hugging Face checkpoint")
    configured = (path / CONFIGURATION).is_file()
    if not configured and (path / CONFIG).is_file():
        return None
    if configured and (found := _weights(path)) is not None:
        return found
    found = sorted(path.glob("*.gguf"))
    others = [] if configured else sorted(path.glob("*.safetensors")) + sorted(path.glob("*.bin"))
    if len(found) > 1:
        raise InputError(f"{path}: holds several models ({', '.join(file.name for file in found)}); give one file")
    if found and not others:
        return Foreign(path, path, found)
    if configured:
        weight_files(path)  # says what is missing
    raise InputError(
        f"{path}: neither {CONFIGURATION} (Hugging Face) nor {CONFIG} (a run) nor a GGUF file alone; give a "
        "checkpoint's folder"
    )


def _of_file(path: Path) -> Foreign:
    if path.suffix == ".gguf":
        return Foreign(path, path.parent, [path])
    if path.suffix not in (".safetensors", ".bin"):
        raise InputError(f"{path}: no file of weights; give a checkpoint's folder, or .safetensors, .bin or .gguf")
    if not (path.parent / CONFIGURATION).is_file():
        raise InputError(f"{path}: {CONFIGURATION}, which says what model it is, is not beside it; copy it there")
    return Foreign(path, path.parent, [path], alone=True)


def _weights(folder: Path) -> Foreign | None:
    """As Transformers chooses: safetensors before pickles; and a lone file of safetensors under another name."""
    if (folder / INDEX).is_file() or (folder / WEIGHTS).is_file():
        return Foreign(folder, folder, weight_files(folder))
    if pickles := pickle_files(folder):
        return Foreign(folder, folder, pickles)
    lone = sorted(folder.glob("*.safetensors"))
    return Foreign(folder, folder, lone, alone=True) if len(lone) == 1 else None


def open_tensors(foreign: Foreign) -> Tensors | Pickles:
    """The tensors in files that are not GGUF; none is read yet. Raises InputError for a file that is missing or
    damaged, and for tensors that the index names and no file has."""
    is_pickle = foreign.files[0].suffix == ".bin"
    tensors = Pickles(foreign.files) if is_pickle else Tensors(foreign.files)
    index = foreign.folder / (PICKLE_INDEX if is_pickle else INDEX)
    if index.is_file() and not foreign.alone and (lost := [name for name in index_of(index) if name not in tensors]):
        raise InputError(
            f"{index}: names {lost[0]}{f' and {len(lost) - 1} more' if len(lost) > 1 else ''}, which no file holds; "
            "copy the checkpoint again"
        )
    return tensors


def configuration(foreign: Foreign) -> "PreTrainedConfig":
    """What Transformers makes of `config.json`, or of what a GGUF file says of itself.

    Raises InputError where a library is missing, the file is damaged, the kind of model is unknown, or the weights are
    quantised otherwise than by GGUF.
    """
    transformers = _library(foreign)
    config = None
    if not foreign.gguf:
        check_json(foreign.told_by)
        config = exported_config(foreign.told_by)
    try:
        with quiet():
            config = config or transformers.AutoConfig.from_pretrained(
                foreign.folder, gguf_file=foreign.gguf, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise _unknown(foreign, error) from None
    if not foreign.gguf and getattr(config, "quantization_config", None):
        raise InputError(
            f"{foreign.told_by}: the weights are quantised, so they are not the matrices of the model; {UNQUANTISED}"
        )
    return config


def on_paper(foreign: Foreign, config: "PreTrainedConfig") -> nn.Module:
    """The model without memory, on the meta device. Raises InputError where Transformers cannot build it."""
    transformers = _library(foreign)
    try:
        with torch.device("meta"), quiet():
            if (own := exported_class(config)) is not None:
                return own(config)
            for name in config.architectures or ():
                kind = getattr(transformers, name, None)  # any name may stand there, a function's too
                if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel):
                    return kind(config)
            auto = transformers.AutoModelForCausalLM if foreign.gguf else transformers.AutoModel
            return auto.from_config(config)
    except Exception as error:
        raise _unknown(foreign, error) from None


def in_memory(
    foreign: Foreign, kind: "type[PreTrainedModel]", dtype: torch.dtype | str
) -> tuple["PreTrainedModel", dict[str, list[str]]]:
    """The model as Transformers loads it, all at once, and the names of tensors that did not fit, by what is wrong
    with them. GGUF is dequantised, without loss: what it stands for is representable in fp32.

    Raises InputError where it cannot be loaded, and for weights that are not floating point: Transformers would take
    the numbers of a quantiser for them.
    """
    if not foreign.gguf and (quantised := _not_floating(open_tensors(foreign))):
        raise InputError(f"{foreign.path}: not floating point: {some(quantised)}; {UNQUANTISED}")
    try:
        with _as_transformers_wants(foreign) as folder, quiet():
            found: Any = kind.from_pretrained(
                folder,
                gguf_file=foreign.gguf,
                local_files_only=True,
                use_safetensors=foreign.files[0].suffix == ".safetensors",
                dtype=dtype,
                ignore_mismatched_sizes=True,  # they are told below
                output_loading_info=True,
            )
    except Exception as error:
        raise InputError(
            f"{foreign.path}: Transformers cannot load it: {one_line(error)}; copy the checkpoint again"
        ) from None
    model, told = found
    misshapen = [name for name, *_ in told["mismatched_keys"]]
    problems = {UNKNOWN: told["unexpected_keys"], MISSHAPEN: misshapen, MISSING: told["missing_keys"]}
    return model, {what: sorted(names) for what, names in problems.items() if names}


def _not_floating(tensors: Tensors | Pickles) -> list[str]:
    """Weights whose type has no fractions; masks and positions, which older releases save too, have other names."""
    return [name for name in tensors if name.endswith("weight") and tensors.dtype(name).startswith(("I", "U", "BOOL"))]


def some(names: Iterable[str]) -> str:
    """All names of a few, the first of many."""
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


@contextmanager
def _as_transformers_wants(foreign: Foreign) -> Iterator[Path]:
    """A folder in which the weights have the name that Transformers looks for: of links where they have another."""
    if not foreign.alone:
        yield foreign.folder
        return
    with TemporaryDirectory() as folder:
        (file,) = foreign.files
        name = PICKLE if file.suffix == ".bin" else WEIGHTS
        for place, target in ((name, file), (CONFIGURATION, foreign.told_by)):
            Path(folder, place).symlink_to(target.resolve())
        yield Path(folder)


def _library(foreign: Foreign) -> Any:
    try:
        import transformers
    except ImportError:
        raise InputError(
            f"{foreign.path}: the parameters of a Hugging Face checkpoint are known to Transformers, which is not "
            "installed; pip install 'seedbed[hf]'"
        ) from None
    if foreign.gguf:
        try:
            import accelerate  # noqa: F401 (Transformers loads GGUF with the two)
            import gguf  # noqa: F401
        except ImportError as error:
            raise InputError(
                f"{foreign.path}: reading GGUF needs {error.name}, which is not installed; pip install 'seedbed[hf]'"
            ) from None
    return transformers


def _unknown(foreign: Foreign, error: Exception) -> InputError:
    if "custom code" in str(error):
        return InputError(
            f"{foreign.told_by}: its class is code that comes with the checkpoint, which is not run; give a model of a "
            "class of Transformers, or an export of ours"
        )
    todo = "copy it again" if foreign.gguf else "correct it"
    return InputError(
        f"{foreign.told_by}: Transformers cannot build this model: {one_line(error)}; {todo}, or update Transformers "
        "for a newer kind of model"
    )
