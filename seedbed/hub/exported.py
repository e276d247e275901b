"""Folders that `seedbed export` wrote with our own class, taken back. Our classes read them; the code in the folder,
which says the same to others, is never run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from seedbed.config.explain import explain
from seedbed.config.model import ModelConfig
from seedbed.data.tokenizer_config import read_object
from seedbed.errors import InputError
from seedbed.train.run import flat

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

SEEDBED = "seedbed"
"""`model_type` of our own class."""
_ADVICE = "take the file that the weights came with"
_STANDARD = {
    "hidden_size": "d_model", "intermediate_size": "ffn.d_ff", "num_hidden_layers": "n_layers",
    "num_attention_heads": "attention.n_heads", "num_key_value_heads": "attention.n_kv_heads",
    "head_dim": "attention.head_dim", "max_position_embeddings": "max_seq_len", "tie_word_embeddings": "tied",
}  # fmt: skip


def exported_config(file: Path) -> "PreTrainedConfig | None":
    """The configuration in ``file`` (`config.json`) of an export of our own class; None for any other model.

    Raises InputError where its `architecture` is not, or not all of, the model section of a run, and where another of
    its fields says something else.
    """
    told = read_object(file)
    if told.get("model_type") != SEEDBED:
        return None
    from seedbed.hub.shipped.configuration_seedbed import SeedbedConfig

    architecture = told.get("architecture")
    if not isinstance(architecture, dict):
        raise InputError(f"{file}: has no architecture, the model section of the run; {_ADVICE}")
    try:
        model = ModelConfig.model_validate_json(json.dumps(architecture))
    except ValidationError as error:
        raise InputError(explain(error, f"{file}: architecture", {}, ModelConfig)) from None
    known, stated = flat(model.model_dump(mode="json")), flat(architecture)
    lacking = [name for name in known if stated.get(name, ...) != known[name]]  # an export says all, defaults too
    if lacking or model.vocab_size is None:
        raise InputError(f"{file}: architecture does not say {', '.join(lacking[:4]) or 'vocab_size'}; {_ADVICE}")
    for name, own in _STANDARD.items():
        if (value := told.get(name, stated[own])) != stated[own]:
            raise InputError(f"{file}: {name}={value!r}, but architecture has {own}={stated[own]!r}; {_ADVICE}")
    return SeedbedConfig.from_dict(told)


def exported_class(config: "PreTrainedConfig") -> "type[PreTrainedModel] | None":
    """Our own class where ``config`` is of it."""
    if config.model_type != SEEDBED:
        return None
    from seedbed.hub.shipped.modeling_seedbed import SeedbedForCausalLM

    return SeedbedForCausalLM


def model_section(fields: dict[str, Any]) -> dict[str, Any]:
    """The model section of a run from the ``fields`` of such a configuration, which are taken out; the vocabulary may
    have been resized since."""
    architecture = fields.pop("architecture")
    for name in _STANDARD:
        fields.pop(name)
    return architecture | {"vocab_size": fields.pop("vocab_size") or architecture["vocab_size"]}
