"""A model of ours as one of Transformers, in memory."""

from typing import TYPE_CHECKING, Any

from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError
from seedbed.hub.exported import SEEDBED
from seedbed.hub.families import FAMILIES
from seedbed.hub.family_configs import their_config
from seedbed.hub.generating import generation_config
from seedbed.hub.native import to_native
from seedbed.model import Decoder

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def require_transformers() -> None:
    """Raise InputError where Transformers is not installed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise InputError(
            "a model of Transformers needs that library, which is not installed; pip install 'seedbed[hf]'"
        ) from None


def to_transformers(
    model: Decoder, tokenizer: Tokenizer | None = None, *, shipped: bool = False, family: str | None = None
) -> "PreTrainedModel":
    """``model`` as a causal language model of Transformers, in evaluation mode. Weights are shared where both have the
    same layout, which is everywhere in the class that ships with a checkpoint.

    The class is a native one where one computes what the model does, of ``family`` if that does too, and else the one
    that ships with a checkpoint, as always with ``shipped`` and where that is the ``family``. With its ``tokenizer``,
    `generate` stops at the model's own end tokens and takes no id that stands for no token. Raises InputError where
    Transformers is not installed.
    """
    require_transformers()
    import transformers
    from accelerate import init_empty_weights

    from seedbed.hub.shipped.configuration_seedbed import SeedbedConfig
    from seedbed.hub.shipped.modeling_seedbed import SeedbedForCausalLM

    config = None if shipped or family == SEEDBED else native_config(model, family)
    kind: Any
    if config is None:
        kind, config = SeedbedForCausalLM, SeedbedConfig(model.config.model_dump(mode="json"))
    else:
        kind = getattr(transformers, FAMILIES[config.model_type].architecture)
    state = to_native(model, config.model_type)
    with init_empty_weights():  # buffers, which no checkpoint has, are made
        found: PreTrainedModel = kind(config)
    if model.head is None:
        state["lm_head.weight"] = model.head_weight
    found.load_state_dict(state, assign=True)
    found.tie_weights()
    if tokenizer is not None:
        set_tokens(found, tokenizer)
    return found.eval()


def native_config(model: Decoder, family: str | None = None) -> "PreTrainedConfig | None":
    """The configuration of a native class that computes what ``model`` does: of ``family`` where that does."""
    return their_config(model.config, family)[0] or their_config(model.config)[0]


def set_tokens(model: "PreTrainedModel", tokenizer: Tokenizer) -> None:
    """Tell ``model`` which ids begin, end and pad a text, and how it generates."""
    settings = generation_config(tokenizer, model.config.vocab_size)
    ids = {name: getattr(settings, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.config.update(ids)
    model.generation_config = settings
