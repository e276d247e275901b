"""A checkpoint of Transformers made into a run: the same numbers, and a model that says the same."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seedbed.config import Config
from seedbed.config.load import to_yaml
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.data.tokenizer_config import read_object
from seedbed.errors import InputError
from seedbed.files.atomic import atomic_folder, sha256
from seedbed.files.safetensors import WEIGHTS, Like, write_tensors
from seedbed.hub.causal import causal_kind
from seedbed.hub.checkpoints import Checkpoint, of_module, open_as
from seedbed.hub.families import FAMILIES, Family, to_ours
from seedbed.hub.family_configs import our_config
from seedbed.hub.foreign import (
    CONFIGURATION,
    UNQUANTISED,
    Foreign,
    configuration,
    find_foreign,
    in_memory,
    on_paper,
    some,
)
from seedbed.hub.foreign_tokenizer import foreign_tokenizer
from seedbed.hub.generating import end_ids, named_ends
from seedbed.hub.models import check_tokenizer
from seedbed.hub.parity import Case, parity, require_parity
from seedbed.model import Decoder
from seedbed.train.checkpoint import WHOLE, rng_state
from seedbed.train.run import CONFIG, IMPORTED, RECEIPT
from seedbed.train.setup import load_weights, loaded_receipt

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_PAPERS = (CONFIGURATION, "generation_config.json", "README*", "LICEN[CS]E*", "NOTICE*", "USE_POLICY*")
"""What goes with weights and is kept as it is."""


@dataclass(frozen=True)
class Imported:
    """What was imported."""

    run: str
    source: str
    family: str
    parameters: int
    dtypes: dict[str, int]
    """Parameters of each type, as safetensors spells it; a run keeps the type of the files."""
    notes: list[str]
    parity: list[Case]


def import_checkpoint(path: str | Path, out: str | Path, tell: Callable[[str], None]) -> Imported:
    """Make the run ``out`` of a checkpoint of one of FAMILIES, an export of ours among them: a configuration, a receipt
    that says where the weights are from, and a checkpoint at step 0 with weights and tokenizer.

    Weights are copied tensor by tensor, in the types they have. What is written is then read back and compared with the
    model of Transformers; until both say the same (`seedbed.hub.parity`) nothing stands at ``out``. Raises InputError
    for a family, a configuration, tensors or a tokenizer that do not fit, and where ``out`` is there already.
    """
    path, out = Path(path), Path(out)
    foreign = find_foreign(path)
    if foreign is None:
        raise InputError(f"{path}: is a run or a checkpoint of one; it needs no import")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InputError(f"{out}: exists already; choose another name")
    theirs = configuration(foreign)
    translated, family = our_config(theirs, foreign.told_by), FAMILIES[theirs.model_type]
    kind = causal_kind(foreign, theirs)
    tokenizer = foreign_tokenizer(foreign, theirs)
    with torch.device("meta"):
        model = Decoder(translated.model)
    check_tokenizer(path, tokenizer, len(model.embed.weight))
    theirs.architectures = [kind.__name__]  # files may name another class of the family, with another head
    other = _in_memory(foreign, kind) if foreign.gguf else None  # Transformers alone can read it, all at once
    opened = open_as(foreign, on_paper(foreign, theirs)) if other is None else of_module(foreign, other)
    config = Config.model_validate({"run": {"dir": str(out)}, "model": translated.model})
    tell(f"copying {sum(p.numel() for p in model.parameters()):,} parameters of {family.architecture}")
    with atomic_folder(out, listing=False) as run, atomic_folder(run / "checkpoints" / "step_00000000") as folder:
        likes = _likes(foreign, opened, family, model)
        write_tensors(folder / WEIGHTS, likes, lambda name: _checked(foreign, opened, family, model, name))
        _keep_tokenizer(tokenizer, folder / "tokenizer", path)
        tell("comparing what both models say")
        ours = Decoder(translated.model)
        load_weights(ours, folder)
        other = other or _in_memory(foreign, kind)
        cases = parity(ours, other, len(ours.embed.weight), tokenizer)
        require_parity(cases, path)
        notes = [*translated.notes, *_lost_ends(other, tokenizer)]
        receipt = loaded_receipt(model, folder)
        del receipt["init_from"]
        receipt[IMPORTED] = _origin(foreign, opened, family) | {
            "notes": notes,
            "parity": [asdict(case) for case in cases],
        }
        texts = {CONFIG: to_yaml(config), RECEIPT: json.dumps(receipt, indent=1, ensure_ascii=False)}
        for name, text in texts.items():
            for place in (run, folder):
                (place / name).write_text(text, encoding="utf-8")
        (folder / "state.json").write_text(json.dumps(_state(), indent=1), encoding="utf-8")
        _keep_papers(foreign, run / "source")
    types: dict[str, int] = {}
    for name, like in likes.items():
        types[like.dtype] = types.get(like.dtype, 0) + model.get_parameter(name).numel()
    numbers = sum(types.values())
    return Imported(str(out), str(path), family.model_type, numbers, types, notes, cases)


def _likes(foreign: Foreign, opened: Checkpoint, family: Family, model: Decoder) -> dict[str, Like]:
    """Type and shape of each parameter of ours. Raises InputError for parameters of theirs that we have no place for (a
    head that the configuration ties and the files do not), for types that are no floating point, or mixed in one."""
    used = {theirs for name, _ in model.named_parameters() for theirs in family.places(name)}
    if left := [fact.name for fact in opened.facts if fact.name not in used]:
        raise InputError(f"{foreign.path}: the decoder has no place for {some(left)}, as the configuration has it")
    found = {}
    for name, parameter in model.named_parameters():
        types = {_dtype(opened, theirs) for theirs in family.places(name)}
        if len(types) > 1 or not types <= set(_DTYPES.values()):
            raise InputError(
                f"{foreign.path}: {', '.join(family.places(name))} are {' and '.join(sorted(types))}; one type of "
                f"{', '.join(_DTYPES.values())} is read; {UNQUANTISED}"
            )
        found[name] = Like(types.pop(), tuple(parameter.shape))
    return found


def _dtype(opened: Checkpoint, parameter: str) -> str:
    place = opened.places[parameter]
    if isinstance(opened.tensors, dict):  # in memory
        return _DTYPES.get(opened.tensors[place].dtype, str(opened.tensors[place].dtype))
    return opened.tensors.dtype(place)  # pyright: ignore[reportAttributeAccessIssue]


def _checked(foreign: Foreign, opened: Checkpoint, family: Family, model: Decoder, name: str) -> Tensor:
    """Our parameter. Raises InputError for one that is not finite: every checkpoint is one to go on from."""
    tensor = to_ours(family, model, name, opened.read)
    if not tensor.isfinite().all():
        raise InputError(f"{foreign.path}: {', '.join(family.places(name))} holds NaN or infinity; not imported")
    return tensor


def _keep_tokenizer(tokenizer: Tokenizer, folder: Path, path: Path) -> None:
    """Copy the tokenizer; the copy says whether a text begins with its begin of text, where that alone would not."""
    tokenizer.save(folder)
    if load_tokenizer(folder).start != tokenizer.start:
        file = folder / "tokenizer_config.json"
        settings = read_object(file) | {"add_bos_token": bool(tokenizer.start)}
        file.write_text(json.dumps(settings, ensure_ascii=False, indent=1), encoding="utf-8")
    if (start := load_tokenizer(folder).start) != tokenizer.start:
        raise InputError(
            f"{path}: its tokenizer begins a text with ids {tokenizer.start}, a run would with {start}; name the "
            "token as bos_token in tokenizer_config.json"
        )


def _in_memory(foreign: Foreign, kind: "type[PreTrainedModel]") -> "PreTrainedModel":
    """The model of Transformers in fp32. Raises InputError for a tensor that it misses or does not use."""
    module, told = in_memory(foreign, kind, torch.float32)
    if told:
        problems = "; ".join(f"{what}: {some(names)}" for what, names in told.items())
        raise InputError(f"{foreign.path}: {problems}; give the checkpoint as it was saved")
    return module


def _lost_ends(module: "PreTrainedModel", tokenizer: Tokenizer) -> list[str]:
    """A note on ids at which theirs ends what it writes and a run does not."""
    ends = [tokenizer.eos_id]
    with suppress(InputError):  # a template that is of no use ends nothing
        ends = end_ids(tokenizer)
    if not (lost := sorted(named_ends(module) - set(ends))):
        return []
    theirs, ours = (", ".join(map(str, ids)) for ids in (lost, ends))
    return [f"it also ends what it writes at token {theirs}; a run does at token {ours}"]


def _origin(foreign: Foreign, opened: Checkpoint, family: Family) -> dict[str, Any]:
    """Where the weights are from."""
    files = {*opened.files, *([] if foreign.gguf else [foreign.told_by])}
    return {
        "source": str(foreign.path.resolve()),
        "family": family.model_type,
        "architecture": family.architecture,
        "files": {file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in sorted(files)},
        "card": _gguf_card(foreign.files[0]) if foreign.gguf else {},
    }


def _gguf_card(file: Path) -> dict[str, str]:
    """What a GGUF file says of itself: name, licence, where it is from."""
    from gguf import GGUFReader, GGUFValueType

    fields = GGUFReader(file).fields.items()
    texts = {name: field for name, field in fields if field.types == [GGUFValueType.STRING]}
    return {name: str(field.contents()) for name, field in texts.items() if name.startswith("general.")}


def _keep_papers(foreign: Foreign, folder: Path) -> None:
    """Copy configuration, model card and licence that lie in the folder that was given; beside a single file of many
    they may belong to another one."""
    if foreign.path.is_dir():
        folder.mkdir()
        for pattern in _PAPERS:
            for file in foreign.folder.glob(pattern):
                shutil.copy(file, folder)


def _state() -> dict[str, Any]:
    """`state.json` of a checkpoint before the first step; optimizer and data it never had."""
    numbers = {"step": 0, "tokens": 0, "seconds": 0.0, "nats_per_token": None}
    return {"format_version": WHOLE, "shards": 1, **numbers, "loader": {}, "rng": rng_state(), "guard": {}}
