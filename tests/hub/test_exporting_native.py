"""A run whose architecture Transformers has goes out as that class, and an import as it came in."""

import pytest
import torch
from foreign import VOCAB, build
from safetensors.torch import load_file

from seedbed.hub.exporting import export
from seedbed.hub.importing import import_checkpoint

transformers = pytest.importorskip("transformers")
NAMES = {"gpt2": {}, "llama": {}, "qwen3": {}, "olmo2": {}, "mistral": {"sliding_window": None}}


def quiet(_: str) -> None:
    pass


@pytest.fixture
def came_and_went(foreign_tokenizer_folder, tmp_path):
    """Save a model of a family with a tokenizer, import it, export it: both folders."""

    def do(family, dtype=torch.float32, **told):
        build(family, **NAMES[family]).to(dtype).save_pretrained(tmp_path / "theirs")
        tokenizer = transformers.AutoTokenizer.from_pretrained(foreign_tokenizer_folder)
        tokenizer.save_pretrained(tmp_path / "theirs")
        import_checkpoint(tmp_path / "theirs", tmp_path / "run", quiet)
        return tmp_path / "theirs", export(tmp_path / "run", tmp_path / "ours", quiet, **told)

    return do


@pytest.mark.parametrize("family", NAMES)
def test_an_import_goes_out_as_it_came_in(family, came_and_went, tmp_path):
    dtype = torch.bfloat16 if family == "qwen3" else torch.float32
    theirs, found = came_and_went(family, dtype)
    assert not found.shipped
    assert found.dtype == str(dtype).removeprefix("torch.")
    before, after = load_file(theirs / "model.safetensors"), load_file(tmp_path / "ours" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) and before[name].dtype == after[name].dtype for name in before)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", local_files_only=True)
    assert model.config.model_type == family
    assert model.config.vocab_size == VOCAB
    assert max(case.difference for case in found.parity) < 1e-4
    assert f"Imported from `{theirs.resolve()}`" in (tmp_path / "ours" / "README.md").read_text()


def test_the_class_can_be_shipped_all_the_same(came_and_went, tmp_path):
    theirs, found = came_and_went("llama", shipped=True)
    assert found.shipped
    assert found.architecture == "SeedbedForCausalLM"
    told = {"trust_remote_code": True, "local_files_only": True}
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", **told)
    native = transformers.AutoModelForCausalLM.from_pretrained(theirs, local_files_only=True)
    ids = torch.arange(30)[None]
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, native(ids).logits, rtol=0, atol=1e-4)
