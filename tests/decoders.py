"""Tiny random decoders, one for each option of the architecture."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seedbed.model import Decoder

VOCAB, LENGTH = 97, 64
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"attention": {"n_kv_heads": 2}},
    "elementwise gate": {"attention": {"gate": "elementwise", "n_kv_heads": 1}},
    "headwise gate": {"attention": {"gate": "headwise"}},
    "qk norm": {"attention": {"qk_norm": "head"}},
    "olmo2": {"attention": {"qk_norm": "whole", "n_kv_heads": 2}, "norm_placement": "post"},
    "longer": {"rope_scaling": {"factor": 8, "original_max_seq_len": 16}},
    "scale": {"attention": {"scale": 0.2, "head_dim": 6}},
    "multiplier": {"output_multiplier": 0.5},
    "tied": {"tied": True, "norm_eps": 1e-5},
    "gpt2": {"position": "learned", "norm": "layernorm", "bias": True, "tied": True, "ffn": {"kind": "gelu"}},
}


def decoder(option: str = "plain", vocab: int = VOCAB, **more: Any) -> "Decoder":
    """A decoder whose scores differ widely, its norms and biases drawn too."""
    import torch

    from seedbed.config import ModelConfig
    from seedbed.model import Decoder

    small = {"vocab_size": vocab, "d_model": 32, "n_layers": 2, "max_seq_len": LENGTH}
    model = Decoder(ModelConfig(**{**small, **OPTIONS[option], **more}))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            matrix = parameter.dim() > 1
            parameter.normal_(mean=float(not matrix), std=0.25 if matrix else 0.1, generator=generator)
    return model.eval()


def draw(*shape: int, vocab: int = VOCAB) -> "torch.Tensor":  # noqa: F821
    """Random ids, always the same."""
    import torch

    return torch.randint(vocab, shape, generator=torch.Generator().manual_seed(1))
