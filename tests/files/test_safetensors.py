"""Weights files: one or several, read by name, and what is wrong with them in one line."""

import json

import pytest
import torch
from safetensors.torch import save_file

from seedbed.errors import InputError
from seedbed.files.safetensors import INDEX, WEIGHTS, Tensors, weight_files


@pytest.fixture
def sharded(tmp_path):
    save_file({"a": torch.ones(2, 3)}, tmp_path / "one.safetensors")
    save_file({"b": torch.arange(4.0), "c": torch.zeros(1)}, tmp_path / "two.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    return tmp_path


def test_shards_are_found_by_the_index_alone(sharded):
    save_file({"x": torch.ones(1)}, sharded / "other.safetensors")
    files = weight_files(sharded)
    assert [file.name for file in files] == ["one.safetensors", "two.safetensors"]
    tensors = Tensors(files)
    assert (list(tensors), len(tensors), "x" in tensors) == (["a", "b", "c"], 3, False)
    assert tensors.shape("a") == (2, 3)
    assert torch.equal(tensors["b"], torch.arange(4.0))


def test_a_single_file(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / WEIGHTS)
    assert weight_files(tmp_path) == [tmp_path / WEIGHTS]


def test_pickles_are_never_read(tmp_path):
    with pytest.raises(InputError, match="give the folder of a whole checkpoint"):
        weight_files(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(InputError, match=r"pytorch_model\.bin is a pickle"):
        weight_files(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}', '{"weight_map": {"a": 3}}']
)
def test_a_damaged_index(sharded, text):
    (sharded / INDEX).write_text(text)
    with pytest.raises(InputError, match=r"index\.json: damaged"):
        weight_files(sharded)


def test_a_folder_in_place_of_a_file(tmp_path):
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(InputError, match=r"model\.safetensors: cannot be read \(.+\); give all files"):
        Tensors([tmp_path / "model.safetensors"])


def test_missing_and_damaged_files_are_named(sharded):
    whole = (sharded / "two.safetensors").read_bytes()
    (sharded / "two.safetensors").write_bytes(whole[:-3])
    with pytest.raises(InputError, match=r"two\.safetensors: damaged"):
        Tensors(weight_files(sharded))
    (sharded / "two.safetensors").unlink()
    with pytest.raises(InputError, match=r"two\.safetensors: missing"):
        Tensors(weight_files(sharded))


def test_a_tensor_stands_in_one_file(sharded):
    save_file({"a": torch.ones(1)}, sharded / "two.safetensors")
    with pytest.raises(InputError, match=r"a: in .*one\.safetensors and in .*two\.safetensors"):
        Tensors(weight_files(sharded))
