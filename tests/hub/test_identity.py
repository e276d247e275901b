"""What makes two models one: weights, configuration and tokenizer, and not the names of files."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from tiny import config

from seedbed.analysis.compare import sources
from seedbed.data.store import Store
from seedbed.errors import InputError
from seedbed.hub.checkpoints import Checkpoint, open_checkpoint
from seedbed.hub.identity import identity
from seedbed.hub.models import LanguageModel
from seedbed.model import Decoder
from seedbed.train.setup import initial_model, resolve

transformers = pytest.importorskip("transformers")


def test_a_model_in_memory_is_its_parameters_configuration_and_tokenizer(tiny_store, tmp_path):
    chosen, store = resolve(config(tiny_store, tmp_path))
    module, tokenizer = initial_model(chosen)[0], store.tokenizer()
    model = LanguageModel("a", module, tokenizer, 16)
    first = identity(model)
    assert identity(replace(model, name="b", max_length=8)) == first
    tokenizers = Store(tiny_store).tokenizer()
    tokenizers.__dict__["hash"] = "other"
    assert identity(replace(model, tokenizer=tokenizers)) != first
    other = Decoder(chosen.model.model_copy(update={"norm_eps": 0.5}))
    other.load_state_dict(module.state_dict())
    assert identity(replace(model, module=other)) != first
    with torch.no_grad():
        module.embed.weight[0, 0] += 1
    assert identity(model) != first


def test_the_same_weights_under_another_configuration_are_another_model(tmp_path):
    settings = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(settings).save_pretrained(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    shutil.copytree(tmp_path / "a", tmp_path / "other")
    (tmp_path / "copy" / "model.safetensors").rename(tmp_path / "copy" / "renamed.safetensors")
    file = tmp_path / "other" / "config.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16})
    )
    with pytest.raises(InputError, match="/a and .*/copy are the same weights"):
        sources([tmp_path / "a", tmp_path / "copy"])
    assert [one.name for one in sources([tmp_path / "a", tmp_path / "other"])] == ["a", "other"]
    assert isinstance(sources([tmp_path / "a", tmp_path / "other"])[0].opened, Checkpoint)
    assert identity(open_checkpoint(tmp_path / "a")) == identity(open_checkpoint(tmp_path / "copy"))
