"""The type of stored ids follows the vocabulary."""

from pathlib import Path

import pytest
import tokenizers
from stores import Text, make_store
from tokenizers import decoders, models, pre_tokenizers

from seedbed.data.store import Store
from seedbed.data.tokenizer import Tokenizer, load_tokenizer

pytestmark = pytest.mark.usefixtures("no_flush")


def large_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    """The byte alphabet, fillers, and bos and eos as the last two ids."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*alphabet, *(f"filler{i}" for i in range(vocab_size - 258))])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    backend.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    backend.add_special_tokens(["<s>", "</s>"])
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}')
    return load_tokenizer(folder)


@pytest.mark.parametrize(
    ("vocab_size", "dtype", "forms"),
    [(65_536, "uint16", ["bin"]), (65_537, "uint32", ["bin"]), (70_000, "uint32", ["bin", "hdf5", "jsonl"])],
)
def test_storage_type_follows_the_vocabulary(tmp_path, vocab_size, dtype, forms):
    """The last id is written and comes back, also as the target in another bin."""
    tokenizer = large_tokenizer(tmp_path / "t", vocab_size)
    assert (tokenizer.vocab_size, tokenizer.eos_id) == (vocab_size, vocab_size - 1)
    texts = [Text("0", "ab", "train"), Text("1", "cde", "train")]
    for form in forms:
        header = make_store(texts, tokenizer, tmp_path / form, 4, storage={"format": form})
        assert header["dtype"] == dtype
        batch = Store(tmp_path / form).split("train").windows([0, 1, 2])
        assert batch.ids[0, 0] == vocab_size - 2
        assert batch.ids[0, 3] == batch.targets[0, 2] == vocab_size - 1
        assert batch.ids[2, 0] == batch.targets[1, 3] == vocab_size - 1
