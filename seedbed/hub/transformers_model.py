"""A model of ours as one of Transformers, in memory."""

from typing import TYPE_CHECKING

import torch

from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError
from seedbed.hub.generating import generation_config
from seedbed.model import Decoder

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_RENAMED = {
    "embed.weight": "model.embed_tokens.weight",
    "pos.weight": "model.embed_positions.weight",
    "head.weight": "lm_head.weight",
}


def shipped_name(name: str) -> str:
    """What the class that ships with a checkpoint calls the parameter ``name`` of a Decoder."""
    return _RENAMED.get(name, f"model.{name}")


def require_transformers() -> None:
    """Raise InputError where Transformers is not installed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise InputError(
            "a model of Transformers needs that library, which is not installed; pip install 'seedbed[hf]'"
        ) from None


def to_transformers(model: Decoder, tokenizer: Tokenizer | None = None) -> "PreTrainedModel":
    """``model`` as a causal language model of Transformers that shares its weights, in evaluation mode.

    With its ``tokenizer``, `generate` stops at the model's own end tokens and takes no id that stands for no token.
    Raises InputError where Transformers is not installed.
    """
    require_transformers()
    from seedbed.hub.shipped.configuration_seedbed import SeedbedConfig
    from seedbed.hub.shipped.modeling_seedbed import SeedbedForCausalLM

    config = SeedbedConfig(model.config.model_dump(mode="json"))
    with torch.device("meta"):
        found = SeedbedForCausalLM(config)
    state = {shipped_name(name): tensor for name, tensor in model.state_dict().items()}
    if model.head is None:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    found.load_state_dict(state, assign=True)
    found.tie_weights()
    if tokenizer is not None:
        set_tokens(found, tokenizer)
    return found.eval()


def set_tokens(model: "PreTrainedModel", tokenizer: Tokenizer) -> None:
    """Tell ``model`` which ids begin, end and pad a text, and how it generates."""
    settings = generation_config(tokenizer, model.config.vocab_size)
    ids = {name: getattr(settings, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.config.update(ids)
    model.generation_config = settings
