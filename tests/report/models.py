"""Weights of made models, as an analysis gives them."""

import torch

from seedbed.analysis.weights import analyze
from seedbed.config.model import ModelConfig
from seedbed.model import Decoder
from seedbed.report.weights_rows import Weights


def made(name: str, seed: int = 0, layers: int = 3, width: int = 16) -> Weights:
    """A decoder whose rank falls over depth: Gaussian matrices with more and more of one direction."""
    settings = {
        "vocab_size": 40, "d_model": width, "n_layers": layers, "attention": {"n_heads": 4, "gate": "headwise"},
    }  # fmt: skip
    model = Decoder(ModelConfig.model_validate(settings))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1, generator=generator)
        for index, layer in enumerate(model.layers):
            for module in (layer.attn.o, layer.mlp.down):
                module.weight += 0.1 * index * torch.ones_like(module.weight)
    result = analyze(model)
    return Weights(**{**vars(result), "name": name})
