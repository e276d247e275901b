"""A trained run of the class that ships with a checkpoint: a chat template, and a vocabulary that is padded."""

from pathlib import Path

from stores import Text, make_store
from tiny import config, sentences

CONTROL = ["<|im_start|>", "<|im_end|>"]
ROWS = 320  # outputs of the model; its tokenizer has fewer tokens


def padded_run(folder: Path) -> Path:
    """Two steps of a gated model on short texts."""
    from seedbed.api import fit
    from seedbed.data.bpe import train_tokenizer
    from seedbed.data.template import CHATML

    texts = sentences(60, seed=0)
    tokenizer = train_tokenizer(
        texts, 300, folder / "tokenizer", special_tokens=CONTROL, chat_template=CHATML, pad_to=ROWS
    )
    make_store([Text(str(i), text) for i, text in enumerate(texts)], tokenizer, folder / "store", seq_len=32)
    told = ["model.attention.gate=elementwise", "train.steps=2", "train.eval_every=1", "optim.lr=0.02"]
    fit(config(folder / "store", folder / "run", *told), lambda _: None)
    return folder / "run"
