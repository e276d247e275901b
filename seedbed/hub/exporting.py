"""A run made into a checkpoint that Transformers, and what builds on it, loads."""

import copy
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import torch

from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import atomic_folder, require_replaceable
from seedbed.files.safetensors import Tensors, system_errors
from seedbed.hub.card import model_card, read_receipt
from seedbed.hub.exported_tokenizer import export_tokenizer, other_ids
from seedbed.hub.flat_files import CONFIGURATION_FILE, MODEL_FILE, flat_files
from seedbed.hub.foreign import CONFIGURATION, find_foreign
from seedbed.hub.foreign_words import quiet
from seedbed.hub.models import open_model
from seedbed.hub.newest import weights_of
from seedbed.hub.parity import Case, parity, require_parity
from seedbed.hub.transformers_model import require_transformers, to_transformers
from seedbed.model import Decoder
from seedbed.train.run import CONFIG, IMPORTED

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHARD = "5GB"
_SIZE = re.compile(r"[0-9]+(\.[0-9]+)?[KMGT]B", re.IGNORECASE)
"""Of a shard, as Transformers reads it."""


@dataclass(frozen=True)
class Exported:
    """What was exported."""

    folder: str
    source: str
    """The checkpoint."""
    architecture: str
    """Class of Transformers."""
    shipped: bool
    """The class is in files of the folder."""
    parameters: int
    dtype: str
    files: list[str]
    """Of weights."""
    bytes: int
    end_ids: list[int]
    """Ids at which generation stops."""
    suppressed: int
    """Outputs that stand for no token, which generation never takes."""
    rounding: float
    """Largest difference of two logits between the weights in ``dtype`` and as they are trained."""
    parity: list[Case]


def export(
    path: str | Path,
    out: str | Path,
    tell: Callable[[str], None],
    *,
    dtype: str | None = None,
    shipped: bool = False,
    shard_size: str = SHARD,
) -> Exported:
    """Write the model of a run (its newest whole checkpoint) or of one checkpoint to the folder ``out``: configuration,
    weights in shards of at most ``shard_size``, tokenizer, how it generates, a model card.

    The class is a native one of Transformers where one computes what the model does, of an import the one that it was;
    else, and with ``shipped`` always, one that comes with the checkpoint. ``dtype`` is by default that of the
    checkpoint.

    What is written is read back by Transformers and compared with ours; until both say the same
    (`seedbed.hub.parity`) nothing stands at ``out``. With another ``dtype`` the weights are rounded, and ours are for
    the comparison. Raises InputError for what is no run, no type or no size, where ``out`` holds anything but an
    earlier export, and where weights are not finite in ``dtype``.
    """
    path, out = Path(path), Path(out)
    require_transformers()
    if dtype not in (None, *DTYPES):
        raise InputError(f"--dtype {dtype}: choose {', '.join(DTYPES)}")
    if not _SIZE.fullmatch(shard_size) or float(shard_size[:-2]) == 0:
        raise InputError(f"--shard-size {shard_size}: give a number above 0 with KB, MB, GB or TB, such as 500MB")
    require_replaceable(out, CONFIGURATION)
    if find_foreign(path) is not None:
        raise InputError(f"{path}: is a checkpoint of Transformers already; give a run or one of its checkpoints")
    opened = open_model(path)
    ours, tokenizer = cast("Decoder", opened.module), opened.tokenizer
    source = next(folder for folder in opened.files[0].parents if (folder / CONFIG).is_file())
    dtype = dtype or _stored(source)
    written = ours if dtype == "float32" else copy.deepcopy(ours).to(DTYPES[dtype])
    if bad := [name for name, p in written.named_parameters() if not p.isfinite().all()]:
        raise InputError(f"{path}: {bad[0]} is not finite in {dtype}; choose another --dtype")
    model = to_transformers(written, tokenizer, shipped=shipped, family=_family(source))
    settings = model.generation_config
    assert settings is not None
    with atomic_folder(out) as folder:
        tell(f"writing {sum(p.numel() for p in written.parameters()):,} parameters of {type(model).__name__}")
        _write_model(model, folder, shard_size)
        export_tokenizer(tokenizer, folder)
        tell("comparing what is written with the run")
        cases, rounding = _compared(ours, written.float(), tokenizer, folder)
        require_parity(cases, path)
        weights = sorted(folder.glob("*.safetensors"))
        found = Exported(
            folder=str(out),
            source=str(source),
            architecture=type(model).__name__,
            shipped=(folder / MODEL_FILE).is_file(),
            parameters=sum(p.numel() for p in ours.parameters()),
            dtype=dtype,
            files=[file.name for file in weights],
            bytes=sum(file.stat().st_size for file in weights),
            end_ids=list(settings.eos_token_id),  # pyright: ignore
            suppressed=len(settings.suppress_tokens or ()),
            rounding=rounding,
            parity=cases,
        )
        (folder / "README.md").write_text(model_card(found, source, ours, tokenizer), encoding="utf-8")
    return found


def _stored(source: Path) -> str:
    """The type that all weights of the checkpoint are stored in, and fp32 where it is another or they differ."""
    tensors = Tensors(list(weights_of(source)))
    (kind, *others) = {tensors.dtype(name) for name in tensors}
    return {"BF16": "bfloat16", "F16": "float16"}.get(kind, "float32") if not others else "float32"


def _family(source: Path) -> str | None:
    """The family that the checkpoint was imported from, if it was."""
    return read_receipt(source).get(IMPORTED, {}).get("family")


def _write_model(model: "PreTrainedModel", folder: Path, shard_size: str) -> None:
    """Configuration, generation settings and weights; and the code of a class that Transformers does not have."""
    if not type(model).__module__.startswith("transformers."):
        configuration, modeling = (name.removesuffix(".py") for name in (CONFIGURATION_FILE, MODEL_FILE))
        model.config.auto_map = {
            "AutoConfig": f"{configuration}.SeedbedConfig",
            "AutoModel": f"{modeling}.SeedbedModel",
            "AutoModelForCausalLM": f"{modeling}.SeedbedForCausalLM",
        }
        for name, text in flat_files().items():
            (folder / name).write_text(text, encoding="utf-8")
    with quiet(), system_errors(folder):
        model.save_pretrained(folder, max_shard_size=shard_size)


def _compared(trained: Decoder, written: Decoder, tokenizer: Tokenizer, folder: Path) -> tuple[list[Case], float]:
    """What is on the disk against what was written, both in fp32; and how far that is from what was trained."""
    theirs = _read_back(folder, tokenizer)
    cases = parity(written, theirs, len(written.embed.weight), tokenizer)
    if trained is written:
        return cases, 0.0
    ids = torch.randint(len(written.embed.weight), (1, cases[0].length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return cases, float((trained(ids) - written(ids)).abs().max())


def _read_back(folder: Path, tokenizer: Tokenizer) -> "PreTrainedModel":
    """The model as anybody loads it, in fp32, its code from the files beside it. Warns where the tokenizer, loaded so,
    gives other ids than ours."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    told = {"trust_remote_code": True, "local_files_only": True}
    with TemporaryDirectory() as place, quiet():
        link = Path(place, "seedbed_export")  # Transformers keeps a copy of the code under the folder's name
        link.symlink_to(folder.resolve())
        model = AutoModelForCausalLM.from_pretrained(link, dtype=torch.float32, **told)
        other = other_ids(tokenizer, AutoTokenizer.from_pretrained(link, **told))
    if other:
        warnings.warn(
            f"AutoTokenizer gives other ids for {other[0]!r} than the tokenizer of this run: scores by other libraries "
            "will differ from ours",
            stacklevel=4,
        )
    return model
