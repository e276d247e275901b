"""A model to look at while it reads: ours or one of Transformers, behind one way to run it.

A module at hand is wrapped as it is: ``LanguageModel("mine", module, tokenizer, max_length)``.
Shapes: B rows, T tokens, V vocabulary, N tokens that are predicted, C of them at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import parameter_facts
from seedbed.hub.apart import apart, one_document_first
from seedbed.hub.causal import body_of, causal_kind, causal_model, vocabulary_of
from seedbed.hub.checkpoints import exported_model
from seedbed.hub.exported import SEEDBED
from seedbed.hub.foreign import configuration, find_foreign
from seedbed.hub.foreign_tokenizer import foreign_tokenizer
from seedbed.hub.newest import of_newest, weights_of
from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder
from seedbed.model.attention import document_starts
from seedbed.train.run import read_config
from seedbed.train.setup import load_weights

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

LOGITS = 2**24
"""Logits held at once, at most (64 MB in fp32), where the model allows it."""
UNBOUNDED = 2**20
"""Tokens that a model without a table of positions is given at most."""


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model with its tokenizer. ``doc_ids`` [B, T] mark documents as everywhere: runs of one id see
    only themselves, negative ids are padding, on either side.
    """

    name: str
    module: nn.Module
    tokenizer: Tokenizer
    max_length: int
    """Tokens that it can read at once."""
    files: tuple[Path, ...] = ()
    """Of its weights, or what they are drawn from; none where it is a module at hand."""
    hashes: Mapping[str, str] | None = None
    """SHA-256 of the files by name, where they are known: a run that trains may remove them."""

    @cached_property
    def facts(self) -> list[ParameterFact]:
        return parameter_facts(self.module)

    @cached_property
    def known(self) -> Tensor:
        """Which ids it can read and write: [V] bool, on the CPU. A vocabulary has holes, and may have control tokens
        that were added behind the last row of the embedding."""
        return torch.from_numpy(self.tokenizer.known())[: vocabulary_of(self.module)]

    @cached_property
    def readable(self) -> frozenset[int]:
        """The same ids as a set."""
        return frozenset(self.known.nonzero()[:, 0].tolist())

    @property
    def configuration(self) -> str:
        """All of it; empty where the module has none."""
        return str(getattr(self.module, "config", ""))

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def read(self, ids: Tensor, doc_ids: Tensor | None = None) -> None:
        """Run the layers once on ids [B, T], for whoever has hooks in them; the logits are not made where that can be
        avoided.

        A Transformers model takes one document a row, with padding behind it, which needs no mask: whether it keeps
        documents of one row apart differs by class and release, and one that does not shows nothing of it. Raises
        InputError for other rows.
        """
        with evaluating(self.module):
            if isinstance(self.module, Decoder):
                self.module(ids, doc_ids, hidden=True)
            elif doc_ids is None or one_document_first(doc_ids):
                body_of(self.module)(input_ids=ids, use_cache=False)
            else:
                raise InputError(
                    f"{self.name}: {type(self.module).__name__} is not known to keep documents of one row apart; give "
                    "it one document a row, with padding behind it"
                )

    def losses(self, ids: Tensor, doc_ids: Tensor | None = None) -> Tensor:
        """Nats of each token after the first of its document, [B, T] fp32; 0 for first tokens and padding."""
        return self.scores(ids, doc_ids)[0]

    def scores(self, ids: Tensor, doc_ids: Tensor | None = None, ranks: bool = False) -> tuple[Tensor, Tensor | None]:
        """The same, and with ``ranks`` the number of tokens that are likelier than the one that came, [B, T] int64 (0:
        it was the likeliest); outputs beyond the vocabulary stand for no token.

        A Transformers model reads each document as a row of its own, which needs no mask, so that windows, ALiBi and
        recurrent layers see what they would alone. Raises ValueError for what is longer than it can read.
        """
        if isinstance(self.module, Decoder) or doc_ids is None or one_document_first(doc_ids):
            return self._scores(ids, doc_ids, ranks)
        losses = torch.zeros(ids.shape, dtype=torch.float32, device=ids.device)
        places = torch.zeros_like(ids) if ranks else None
        for rows in apart(ids, doc_ids):
            real = rows.row >= 0  # [D, L]
            found, ranked = self._scores(rows.ids, rows.row, ranks)
            losses[rows.row[real], rows.place[real]] = found[real]
            if places is not None and ranked is not None:
                places[rows.row[real], rows.place[real]] = ranked[real]
        return losses, places

    def _scores(self, ids: Tensor, doc_ids: Tensor | None, ranks: bool) -> tuple[Tensor, Tensor | None]:
        if ids.shape[1] > self.max_length:
            raise ValueError(f"rows of {ids.shape[1]} tokens; {self.name} reads at most {self.max_length} (max_length)")
        predicted = predicted_tokens(ids, doc_ids)  # [B, T]
        losses = torch.zeros(ids.shape, dtype=torch.float32, device=ids.device)
        places = torch.zeros_like(ids) if ranks else None
        before = predicted.roll(-1, 1)  # the states that predict them
        with evaluating(self.module):
            targets = ids[predicted]  # [N]
            found = torch.empty(len(targets), dtype=torch.float32, device=ids.device)
            ranked = torch.empty_like(targets)
            make, width = self.logits(ids, doc_ids, before)
            for rows in torch.arange(len(targets), device=ids.device).split(max(1, LOGITS // width)):
                scores, target = make(rows).float(), targets[rows, None]  # [C, V]
                own = scores.gather(1, target)  # [C, 1]
                found[rows] = torch.logsumexp(scores, 1) - own[:, 0]
                if ranks:
                    ranked[rows] = (scores[:, : self.tokenizer.vocab_size] > own).sum(1)
        losses[predicted] = found
        if places is not None:
            places[predicted] = ranked
        return losses, places

    def logits(self, ids: Tensor, doc_ids: Tensor | None, at: Tensor) -> tuple[Callable[[Tensor], Tensor], int]:
        """What gives logits [C, V] of any C of the chosen places (``at`` [B, T] bool, counted row by row), and V. Made
        when asked for where the model lets them be; ``doc_ids`` is one document a row, with padding behind it, for a
        model of Transformers. To be called, and used, within `evaluating`."""
        if isinstance(self.module, Decoder):
            hidden, head = self.module(ids, doc_ids, hidden=True)[at], self.module.head_weight  # [N, D], [V, D]
            return (lambda rows: torch.mm(hidden[rows], head.T)), len(head)
        if not self._has_plain_end:
            logits = self.module(input_ids=ids, use_cache=False).logits[at]  # [N, V]
            return (lambda rows: logits[rows]), logits.shape[-1]
        states = body_of(self.module)(input_ids=ids, use_cache=False)
        hidden = states.last_hidden_state[at]  # [N, D]
        end = partial(_end, self.module, type(states))
        return (lambda rows: end(hidden[None, rows])[0]), vocabulary_of(self.module)

    @cached_property
    def _has_plain_end(self) -> bool:
        """Whether what follows the body (head, soft cap, scale) works on each state by itself, found out by trying."""
        if body_of(self.module) is self.module:
            return False
        ids = torch.arange(3, device=self.device)[None] % vocabulary_of(self.module)
        with evaluating(self.module):
            whole = self.module(input_ids=ids, use_cache=False).logits
            states = body_of(self.module)(input_ids=ids, use_cache=False)
            try:
                parts = [_end(self.module, type(states), states.last_hidden_state[:, [i]]) for i in range(3)]
            except Exception:  # a class that does something of its own there: then all logits are made at once
                return False
        # losses, not logits: these may have a large part in common that changes no loss
        losses = [-logits.float().log_softmax(2) for logits in (torch.cat(parts, 1), whole)]  # [1, 3, V] each
        return torch.allclose(*losses, rtol=1e-5, atol=1e-4)


def reads(path: str | Path) -> int:
    """Tokens that the model at ``path`` can read at once, from its configuration. Raises InputError as open_model."""
    foreign = find_foreign(Path(path))
    if foreign is None:
        return read_config(path).model.max_seq_len
    return _longest(configuration(foreign))


def common_length(paths: Sequence[str | Path], length: int | None, default: int) -> int:
    """Tokens that documents are cut to for all of ``paths``: ``length``, and without it ``default``, or what the model
    that reads least can.

    Raises InputError where one cannot read ``length``.
    """
    longest = {path: reads(path) for path in paths}
    if length is None:
        return min(default, *longest.values())
    for path, most in longest.items():
        if length > most:
            raise InputError(f"--length {length}: {path} reads at most {most} tokens")
    return length


def predicted_tokens(ids: Tensor, doc_ids: Tensor | None) -> Tensor:
    """Which of ids [B, T] are predicted: all but padding and the first of each document."""
    documents = torch.zeros_like(ids) if doc_ids is None else doc_ids
    index = torch.arange(ids.shape[1], device=ids.device)
    return (index > document_starts(documents)) & (documents >= 0)


def open_model(path: str | Path, device: str = "cpu") -> LanguageModel:
    """A run (its newest whole checkpoint), a checkpoint, or a Hugging Face checkpoint (safetensors, PyTorch's files,
    GGUF), in fp32 and with its tokenizer.

    Raises InputError where there is none, it is not a causal language model, a tensor is missing, or the tokenizer
    gives ids that the model has no row for. Warns of tensors that the model does not use.
    """
    path = Path(path)
    foreign, name = find_foreign(path), path.resolve().name
    if foreign is None:
        opened = of_newest(path, lambda folder: _ours(name, folder, device))
        tokenizer = opened.tokenizer
    elif (config := configuration(foreign)).model_type == SEEDBED:
        tokenizer = foreign_tokenizer(foreign, config)
        model = exported_model(foreign, config).to(device)
        opened = LanguageModel(name, model, tokenizer, model.config.max_seq_len, tuple(foreign.files))
    else:
        kind, tokenizer = causal_kind(foreign, config), foreign_tokenizer(foreign, config)
        module = causal_model(foreign, kind)
        module.to(device)  # pyright: ignore (its type of `to` is odd)
        opened = LanguageModel(name, module, tokenizer, _longest(config), tuple(foreign.files))
    check_tokenizer(path, tokenizer, vocabulary_of(opened.module))
    return opened


def check_tokenizer(path: Path, tokenizer: Tokenizer, rows: int) -> None:
    """Raise InputError where texts become ids that an embedding of so many ``rows`` does not have."""
    if (largest := _largest_id(tokenizer)) >= rows:
        raise InputError(
            f"{path}: its tokenizer gives ids up to {largest}, the model has an embedding of {rows} rows; give the "
            "model its own tokenizer"
        )


def _ours(name: str, folder: Path, device: str) -> LanguageModel:
    config, files = read_config(folder), weights_of(folder)
    model = Decoder(config.model)
    load_weights(model, folder)
    tokenizer, hashes = load_tokenizer(folder / "tokenizer"), {file.name: files[file] for file in files}
    return LanguageModel(name, model.to(device).eval(), tokenizer, config.model.max_seq_len, tuple(files), hashes)


def _longest(config: "PreTrainedConfig") -> int:
    return getattr(config, "max_position_embeddings", None) or UNBOUNDED


def _largest_id(tokenizer: Tokenizer) -> int:
    """Of what texts become, begin and end with, at least the end's; Transformers may add control tokens that the model
    never saw."""
    known = tokenizer.known()  # [V]
    known[list(tokenizer.special_tokens.values())] = False
    named = [tokenizer.eos_id, *tokenizer.start, *([] if tokenizer.bos_id is None else [tokenizer.bos_id])]
    return max(int(known.nonzero()[0].max(initial=-1)), *named)


def _end(module: nn.Module, kind: type, states: Tensor) -> Tensor:
    """Logits [B, T, V] of states [B, T, D], by the model's own code behind its body, whose place the states take;
    ``kind`` is what the body returns."""
    body = body_of(module)
    body.forward = lambda *_, **__: kind(last_hidden_state=states)
    try:
        ids = torch.zeros(states.shape[:2], dtype=torch.int64, device=states.device)
        return module(input_ids=ids, use_cache=False).logits
    finally:
        del body.forward
