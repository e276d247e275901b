"""Causal language models of Transformers: loaded, and told from what only looks like one."""

import warnings
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from seedbed.errors import InputError
from seedbed.hub.exported import exported_class
from seedbed.hub.foreign import UNKNOWN, Foreign, in_memory, some
from seedbed.hub.foreign_words import quiet
from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def vocabulary_of(module: nn.Module) -> int:
    """Rows of the embedding."""
    if isinstance(module, Decoder):
        return len(module.embed.weight)
    return module.get_input_embeddings().weight.shape[0]  # pyright: ignore


def body_of(module: nn.Module) -> nn.Module:
    """A Transformers model without its head."""
    return getattr(module, getattr(module, "base_model_prefix", ""), module)


def causal_kind(foreign: Foreign, config: "PreTrainedConfig") -> "type[PreTrainedModel]":
    """The class that predicts the next token with these weights. Raises InputError where there is none: an encoder
    with a decoder, a model of images or sound, a kind that has no such class."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    kind = exported_class(config) or MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    problem = None
    if getattr(config, "is_encoder_decoder", False):
        problem = "an encoder with a decoder"
    elif config.get_text_config() is not config:
        problem = "reads more than text"
    elif kind is None:
        problem = f"{', '.join(config.architectures or [type(config).__name__])} does not predict the next token"
    if problem is not None:
        raise InputError(f"{foreign.path}: {problem}; give a causal language model of text")
    return cast("type[PreTrainedModel]", kind)


def causal_model(foreign: Foreign, kind: "type[PreTrainedModel]") -> "PreTrainedModel":
    """The model in fp32.

    Raises InputError where a weight is missing, and for an encoder that passes for a causal model. Warns of tensors
    that are not used.
    """
    module, told = in_memory(foreign, kind, torch.float32)
    unused = told.pop(UNKNOWN, [])
    if told:
        problems = "; ".join(f"{what}: {some(names)}" for what, names in told.items())
        raise InputError(f"{foreign.path}: not all weights of {kind.__name__} are there: {problems}")
    if unused:
        warnings.warn(f"{foreign.path}: {kind.__name__} does not use {some(unused)}", stacklevel=3)
    with quiet():  # what a model says when it first runs, of libraries that would make it faster
        ahead = _sees_ahead(module)
    if ahead:
        raise InputError(f"{foreign.path}: {kind.__name__} sees later tokens too (an encoder); give a causal one")
    return module


def _sees_ahead(module: "PreTrainedModel") -> bool:
    """Whether the first token's scores depend on the second."""
    ids = torch.tensor([[0, 0], [0, vocabulary_of(module) - 1]])
    with evaluating(module):
        one, other = module(input_ids=ids, use_cache=False).logits[:, 0]  # [V] each
    if not one.isfinite().all():  # broken weights: whoever reads with it tells where
        return False
    return not torch.allclose(one, other, rtol=1e-4, atol=1e-5 * float(one.abs().max()))
