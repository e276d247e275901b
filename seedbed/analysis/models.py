"""A model to look at while it reads: ours or one of Transformers, behind one way to run it.

Shapes: B rows, T tokens, V vocabulary.
"""

import inspect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import parameter_facts
from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder
from seedbed.model.attention import document_mask, document_starts
from seedbed.train.run import CONFIG, read_config
from seedbed.train.setup import checkpoint_of, load_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOGITS = 2**24
"""Logits held at once, at most (64 MB in fp32), where the model allows it."""


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

    @cached_property
    def facts(self) -> list[ParameterFact]:
        return parameter_facts(self.module)

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def read(self, ids: Tensor, doc_ids: Tensor | None = None) -> None:
        """Run the layers once on ids [B, T], for whoever has hooks in them; the logits are not made where that can be
        avoided.
        """
        with evaluating(self.module):
            if isinstance(self.module, Decoder):
                self.module(ids, doc_ids, hidden=True)
            else:
                _body(self.module)(**_inputs(self.module, ids, doc_ids))

    def losses(self, ids: Tensor, doc_ids: Tensor | None = None) -> Tensor:
        """Nats of each token after the first of its document, [B, T] fp32; 0 for first tokens and padding."""
        return self.scores(ids, doc_ids)[0]

    def scores(self, ids: Tensor, doc_ids: Tensor | None = None, ranks: bool = False) -> tuple[Tensor, Tensor | None]:
        """The same, and with ``ranks`` the number of tokens that are likelier than the one that came, [B, T] int64 (0:
        it was the likeliest).
        """
        predicted = predicted_tokens(ids, doc_ids)  # [B, T]
        losses = torch.zeros(ids.shape, dtype=torch.float32, device=ids.device)
        places = torch.zeros_like(ids) if ranks else None
        before = predicted.roll(-1, 1)  # the states that predict them
        with evaluating(self.module):
            if isinstance(self.module, Decoder):
                hidden = self.module(ids, doc_ids, hidden=True)[before]  # [N, D]
                head = self.module.head_weight
                make, width = (lambda rows: torch.mm(hidden[rows], head.T)), len(head)
            else:
                logits = self.module(**_inputs(self.module, ids, doc_ids)).logits[before]  # [N, V]
                make, width = (lambda rows: logits[rows]), logits.shape[-1]
            targets = ids[predicted]  # [N]
            found = torch.empty(len(targets), dtype=torch.float32, device=ids.device)
            ranked = torch.empty_like(targets)
            for rows in torch.arange(len(targets), device=ids.device).split(max(1, LOGITS // width)):
                scores, target = make(rows).float(), targets[rows, None]  # [C, V]
                own = scores.gather(1, target)  # [C, 1]
                found[rows] = torch.logsumexp(scores, 1) - own[:, 0]
                if ranks:
                    ranked[rows] = (scores > own).sum(1)
        losses[predicted] = found
        if places is not None:
            places[predicted] = ranked
        return losses, places


def predicted_tokens(ids: Tensor, doc_ids: Tensor | None) -> Tensor:
    """Which of ids [B, T] are predicted: all but padding and the first of each document."""
    documents = torch.zeros_like(ids) if doc_ids is None else doc_ids
    index = torch.arange(ids.shape[1], device=ids.device)
    return (index > document_starts(documents)) & (documents >= 0)


def open_model(path: str | Path, device: str = "cpu") -> LanguageModel:
    """A run (its newest whole checkpoint), a checkpoint, or a Hugging Face folder, in fp32 and with its tokenizer.

    Raises InputError where there is none, or it is not a causal language model.
    """
    path = Path(path)
    name = path.resolve().name
    if (path / CONFIG).is_file():
        folder = checkpoint_of(path)
        config = read_config(folder)
        model = Decoder(config.model)
        load_weights(model, folder)
        tokenizer = load_tokenizer(folder / "tokenizer")
        return LanguageModel(name, model.to(device).eval(), tokenizer, config.model.max_seq_len)
    if not (path / "config.json").is_file():
        raise InputError(f"{path}: neither {CONFIG} (a run) nor config.json (Hugging Face); give a checkpoint's folder")
    module = _transformers_model(path)
    module.to(device)  # pyright: ignore (its type of `to` is odd)
    length = getattr(module.config, "max_position_embeddings", None) or 2**20
    return LanguageModel(name, module, load_tokenizer(path), length)


def _transformers_model(path: Path) -> "PreTrainedModel":
    """As Transformers loads it, in fp32; no code in the folder is run."""
    try:
        from transformers import AutoModelForCausalLM
    except ImportError:
        raise InputError(
            f"{path}: is loaded by Transformers, which is not installed; pip install 'seedbed[hf]'"
        ) from None
    try:
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
    except Exception as error:
        raise InputError(f"{path}: Transformers cannot load it: {str(error).splitlines()[0]}") from None


def _body(module: nn.Module) -> nn.Module:
    """A Transformers model without its head."""
    return getattr(module, getattr(module, "base_model_prefix", ""), module)


def _inputs(module: nn.Module, ids: Tensor, doc_ids: Tensor | None) -> dict[str, Tensor | bool]:
    """What a Transformers model takes. Rows of one document with padding behind it need no mask: nothing sees ahead."""
    inputs: dict[str, Tensor | bool] = {"input_ids": ids, "use_cache": False}
    if doc_ids is None or _one_document_first(doc_ids):
        return inputs
    inputs["attention_mask"] = document_mask(doc_ids)  # [B, 1, T, T] bool
    places = torch.arange(ids.shape[1], device=ids.device) - document_starts(doc_ids)
    if "position_ids" in inspect.signature(_body(module).forward).parameters:
        inputs["position_ids"] = places
    return inputs


def _one_document_first(doc_ids: Tensor) -> bool:
    """Whether each row of doc_ids [B, T] is one document with nothing but padding behind it."""
    real = doc_ids >= 0
    one = (doc_ids == doc_ids[:, :1]) | ~real
    ordered = real[:, :-1] | ~real[:, 1:]  # never padding before a token
    return bool(one.all() and ordered.all() and real[:, 0].all())
