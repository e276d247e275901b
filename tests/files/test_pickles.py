"""PyTorch's own files of weights: mapped, read by name, and never run."""

import json
import os

import pytest
import torch
from torch import nn

from seedbed.errors import InputError
from seedbed.files.pickles import PICKLE, PICKLE_INDEX, Pickles, pickle_files

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.bfloat16), "c": torch.tensor([True])}


def test_tensors_by_name(tmp_path):
    torch.save(TENSORS, tmp_path / PICKLE)
    found = Pickles(pickle_files(tmp_path))
    assert (list(found), len(found), "x" in found) == (["a", "b", "c"], 3, False)
    assert [found.shape(name) for name in found] == [(2, 3), (4,), (1,)]
    assert [found.dtype(name) for name in found] == ["F32", "BF16", "BOOL"]
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())


def test_what_is_read_is_a_copy(tmp_path):
    torch.save(TENSORS, tmp_path / PICKLE)
    found = Pickles(pickle_files(tmp_path))
    found["a"].zero_()
    assert torch.equal(found["a"], TENSORS["a"])


def test_files_of_older_releases(tmp_path):
    torch.save(TENSORS, tmp_path / PICKLE, _use_new_zipfile_serialization=False)
    assert torch.equal(Pickles(pickle_files(tmp_path))["a"], TENSORS["a"])


def test_parameters_are_tensors(tmp_path):
    torch.save({"a": nn.Parameter(torch.ones(2))}, tmp_path / PICKLE)
    assert not Pickles(pickle_files(tmp_path))["a"].requires_grad


def test_shards_by_their_index(tmp_path):
    assert pickle_files(tmp_path) == []
    torch.save({"a": TENSORS["a"]}, tmp_path / "one.bin")
    torch.save({"b": TENSORS["b"]}, tmp_path / "two.bin")
    torch.save({"x": TENSORS["b"]}, tmp_path / PICKLE)
    (tmp_path / PICKLE_INDEX).write_text(json.dumps({"weight_map": {"a": "one.bin", "b": "two.bin"}}))
    assert list(Pickles(pickle_files(tmp_path))) == ["a", "b"]
    torch.save({"a": TENSORS["a"]}, tmp_path / "two.bin")
    with pytest.raises(InputError, match=r"a: in .*one\.bin and in .*two\.bin"):
        Pickles(pickle_files(tmp_path))
    (tmp_path / "two.bin").unlink()
    with pytest.raises(InputError, match=r"two\.bin: missing"):
        Pickles(pickle_files(tmp_path))
    (tmp_path / PICKLE_INDEX).write_text("{}")
    with pytest.raises(InputError, match=r"index\.json: damaged"):
        pickle_files(tmp_path)


class Runs:
    """Unpickled, it would make a folder."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_code_is_never_run(tmp_path):
    torch.save({"a": Runs(tmp_path / "made")}, tmp_path / PICKLE)
    with pytest.raises(InputError, match=r"pytorch_model\.bin: a pickle that needs code to be run \(\w+\.mkdir\)"):
        Pickles(pickle_files(tmp_path))
    assert not (tmp_path / "made").exists()
    torch.save(nn.Linear(2, 2), tmp_path / PICKLE)
    with pytest.raises(InputError, match=r"needs code to be run \(torch\.nn\.modules\.linear\.Linear\)"):
        Pickles(pickle_files(tmp_path))


@pytest.mark.parametrize("value", [[TENSORS["a"]], {"model": TENSORS}, {"a": 3}, {0: TENSORS["a"]}, TENSORS["a"]])
def test_other_things_than_tensors(tmp_path, value):
    torch.save(value, tmp_path / PICKLE)
    with pytest.raises(InputError, match="holds something other than tensors by name"):
        Pickles(pickle_files(tmp_path))


@pytest.mark.parametrize("change", [lambda b: b"", lambda b: b"hello", lambda b: b"\x80", lambda b: b[: len(b) // 2]])
def test_damage_is_one_line(tmp_path, change):
    torch.save(TENSORS, tmp_path / PICKLE)
    (tmp_path / PICKLE).write_bytes(change((tmp_path / PICKLE).read_bytes()))
    with pytest.raises(InputError, match=r"pytorch_model\.bin: damaged \(.+\); copy it again") as caught:
        Pickles(pickle_files(tmp_path))
    assert "\n" not in str(caught.value)
