"""What a model is built of, and where."""

import warnings

import pytest
import torch
from tiny import TINY, config

from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.parallel.world import World
from seedbed.train.run import read_config
from seedbed.train.setup import build_model, resolve


def test_one_rank_computes_where_it_is_told_to_whatever_is_offloaded():
    """The meta device stands for a GPU: weights left on the CPU would meet batches that are not."""
    told = Config.load(
        None, [*TINY, "model.vocab_size=300", "parallel.strategy=fsdp", "parallel.offload=true", "train.device=cpu"]
    )
    model = build_model(told, World(torch.device("meta")))
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


@pytest.mark.parametrize("content", [b"format_version: [", b"%% x", b"\xff\xfe\xff"])
def test_a_configuration_that_is_damaged_says_what_to_do(tmp_path, content):
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(InputError, match=r"config\.yaml: ?.*; the file is damaged: copy the folder again") as caught:
        read_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_positions_that_no_bin_has_are_told(tiny_store, tmp_path):
    """Bins of 32 tokens; weights that come from elsewhere may know more positions."""
    with pytest.warns(UserWarning, match=r"model\.max_seq_len=64: bins of .* have 32 tokens; positions behind them"):
        resolve(config(tiny_store, tmp_path / "r", "model.max_seq_len=64"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve(config(tiny_store, tmp_path / "r"))
        resolve(config(tiny_store, tmp_path / "r", "model.max_seq_len=64", "train.init_from=elsewhere"))
