"""Weights that were trained under multipliers start a run only under the same ones."""

import pytest
import torch
from tiny import config, quiet

from seedbed.api import fit, load
from seedbed.errors import InputError
from seedbed.train.setup import initial_model, resolve

MUP = ["init.law=mup", "init.base_width=16"]


def test_weights_keep_their_multipliers(tiny_store, tmp_path):
    run = fit(config(tiny_store, tmp_path / "a", *MUP, "train.eval_every=-1"), quiet)
    trained = load(run.path)
    assert (trained.model.output_multiplier, trained.config.optim.base_width) == (0.5, 16)
    start = f"train.init_from={tmp_path / 'a'}"
    with pytest.raises(
        InputError, match=r"output_multiplier=0\.5 and model\.attention\.scale=0\.5, here they are 1\.0"
    ):
        initial_model(resolve(config(tiny_store, tmp_path / "b", start))[0])
    by_hand = ["model.output_multiplier=0.5", "model.attention.scale=0.5"]
    ids = torch.arange(8)[None]
    for same in (MUP, by_hand):
        model, _ = initial_model(resolve(config(tiny_store, tmp_path / "b", start, *same))[0])
        assert torch.equal(model(ids), trained.model(ids))
    with pytest.raises(InputError, match=r"attention\.scale=0\.5, here they are 0\.5 and 0\.25"):
        initial_model(resolve(config(tiny_store, tmp_path / "b", start, by_hand[0]))[0])
