"""What a model is built of, and where."""

import torch
from tiny import TINY

from seedbed.config import Config
from seedbed.parallel.world import World
from seedbed.train.setup import build_model


def test_one_rank_computes_where_it_is_told_to_whatever_is_offloaded():
    """The meta device stands for a GPU: weights left on the CPU would meet batches that are not."""
    config = Config.load(
        None, [*TINY, "model.vocab_size=300", "parallel.strategy=fsdp", "parallel.offload=true", "train.device=cpu"]
    )
    model = build_model(config, World(torch.device("meta")))
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
