"""A model in memory as lm-evaluation-harness asks it: ours and those of Transformers alike, without an export.

What becomes tokens, and how, is as in the harness's own class for Transformers (`lm_eval.models.huggingface.HFLM`), so
that a model scores the same here and there: the tokenizer as Transformers reads its folder, which names of control
tokens in a prompt become, and what is put before an empty one; windows of long texts; what a prompt is cut to.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
import torch
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import (
    DEFAULT_MAX_LENGTH,
    configure_pad_token,
    handle_stop_sequences,
    has_bos_prefix,
    normalize_gen_kwargs,
    postprocess_generated_text,
)
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from torch import Tensor
from transformers import AutoTokenizer

from seedbed.data.batching import batches, padded
from seedbed.errors import GuardStop, InputError
from seedbed.hub.exported_tokenizer import export_tokenizer
from seedbed.hub.models import LOGITS, UNBOUNDED, LanguageModel
from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder
from seedbed.serve.generate import batched, generate
from seedbed.serve.options import Options
from seedbed.serve.prompts import check_ids

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

SEED = 1234
"""Of the first drawn answer."""
NEW_TOKENS = 256
"""Of an answer, at most, where a task does not say (as HFLM)."""


@dataclass
class Cuts:
    """What did not fit into the model: told beside the scores, since they are not comparable without it."""

    prompts: int = 0
    """Prompts of which tokens were left off in front."""
    tokens: int = 0
    answers: dict[int, int] = field(default_factory=dict)
    """Tokens that a task allows an answer -> those that it was given."""


class _Asked(NamedTuple):
    """One row for the model, and what is asked of it."""

    ids: list[int]
    places: list[int]
    """Of the requests; their continuations differ in the last token alone."""


class HarnessModel(TemplateLM):
    """``batch_tokens``: rows of a batch times its longest; scores do not depend on it. Raises GuardStop where the
    model's scores are not finite, InputError for what cannot be asked of it."""

    def __init__(self, model: LanguageModel, batch_tokens: int):
        super().__init__()
        self.model, self._batch_tokens = model, batch_tokens
        self.begin(lambda _: None)
        self._device = model.device
        self.tokenizer: Any = configure_pad_token(_tokenizer(model))
        self.max_length = DEFAULT_MAX_LENGTH if model.max_length == UNBOUNDED else model.max_length

    def begin(self, tell: Callable[[str], None]) -> None:
        """Count anew what is cut, for the next task. The terminal is the model's while it works, and only then."""
        self.cuts, self._tell, self._terminal = Cuts(), tell, sys.stderr

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        return self.eot_token_id if self.tokenizer.bos_token_id is None else self.tokenizer.bos_token_id

    @property
    def tokenizer_name(self) -> str:
        return self.model.tokenizer.hash

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Ids of a text; unless told otherwise with what the tokenizer itself adds, if the text does not begin so."""
        if add_special_tokens is None:
            begun = has_bos_prefix(string, self.tokenizer.decode(self.prefix_token_id))
            return self.tokenizer.encode(string, **({"add_special_tokens": False} if begun else {}))
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The conversation as text, without the system's turn where the template knows none."""

        def text(history: list[dict[str, str]]) -> str:
            return self.tokenizer.apply_chat_template(
                history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )

        try:
            return text(chat_history)
        except jinja2.TemplateError:
            return text([turn for turn in chat_history if turn["role"] != "system"])

    def loglikelihood(self, requests: "list[Instance]", disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        return super().loglikelihood(requests, disable_tqdm=True)

    def loglikelihood_rolling(self, requests: "list[Instance]", disable_tqdm: bool = True) -> list[float]:
        """Log probability of whole texts, in nats: each token once, in windows that share no token but the one that a
        window begins with."""
        owners, windows = [], []
        for owner, request in enumerate(requests):
            tokens = self.tok_encode(request.args[0])
            for window in get_rolling_token_windows(tokens, self.prefix_token_id, self.max_length, context_len=1):
                context, continuation = make_disjoint_window(window)
                windows.append((("", ""), context, continuation))
                owners.append(owner)
        sums = [0.0] * len(requests)
        for owner, found in zip(owners, self._loglikelihood_tokens(windows), strict=True):
            sums[owner] += found[0]
        return sums

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Log probability in nats of each continuation, and whether each of its tokens is the likeliest.

        Requests that differ in their last token alone, such as those for one of four letters, are read once.
        """
        rows: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, (_text, context, continuation) in enumerate(requests):
            rows[tuple(self._input(context, continuation))].append(place)
        continuations = [continuation for _, _, continuation in requests]
        found: dict[int, tuple[float, bool]] = {}
        with evaluating(self.model.module), redirect_stderr(self._terminal):
            for batch in batches([_Asked(list(ids), places) for ids, places in rows.items()], self._batch_tokens):
                found.update(self._answers(batch, continuations))
                self._tell(f"{len(found):,} of {len(requests):,} log likelihoods")
        return [found[place] for place in range(len(requests))]

    def _input(self, context: list[int], continuation: list[int]) -> list[int]:
        """What the model reads; the last token is only predicted. Cut in front where it is too long."""
        if not 0 < len(continuation) <= self.max_length:
            raise InputError(
                f"{self.model.name}: an answer to score has {len(continuation):,} tokens, of 1 to {self.max_length:,} "
                "that it reads; choose a model that reads more, or another task"
            )
        check_ids(self.model, context + continuation, "a prompt")
        cut = len(context) + len(continuation) - 1 - self.max_length
        if cut > 0:
            self.cuts.prompts += 1
            self.cuts.tokens += cut
        return (context + continuation)[max(cut, 0) : -1]

    def _answers(
        self, batch: Sequence[_Asked], continuations: list[list[int]]
    ) -> Iterator[tuple[int, tuple[float, bool]]]:
        """(place, (log probability, likeliest)) of the requests of a batch."""
        rows = padded(batch, 0)  # [B, T]
        longest = [max(len(continuations[place]) for place in asked.places) for asked in batch]
        at = torch.zeros(rows.ids.shape, dtype=torch.bool)
        for row, (asked, count) in enumerate(zip(batch, longest, strict=True)):
            at[row, len(asked.ids) - count : len(asked.ids)] = True
        make, width = self.model.logits(*(x.to(self._device) for x in (rows.ids, rows.doc_ids, at)))
        first = 0
        for asked, count in zip(batch, longest, strict=True):
            lasts = [continuations[place][-1] for place in asked.places]
            targets = torch.tensor([*asked.ids[-count:], 0])[1:, None].repeat(1, len(lasts))  # [C, M]
            targets[-1] = torch.tensor(lasts)
            own, likeliest = _followed(make, range(first, first + count), targets.to(self._device), width)
            first += count
            for column, place in enumerate(asked.places):
                length = len(continuations[place])
                nats = float(own[-length:, column].sum())
                if nats != nats:
                    raise GuardStop(f"{self.model.name}: its scores are not finite; look for the tensor that is not")
                yield place, (nats, bool(likeliest[-length:, column].all()))

    def generate_until(self, requests: "list[Instance]", disable_tqdm: bool = True) -> list[str]:
        """Answers to prompts, greedy or drawn as the task asks (by a seed for each), up to the first of its stops."""
        groups: dict[str, list[int]] = defaultdict(list)
        for place, request in enumerate(requests):
            groups[json.dumps(request.arguments[1], sort_keys=True)].append(place)
        found: dict[int, str] = {}
        for asked, places in groups.items():
            options = self._options(json.loads(asked))
            prompts = [self._prompt(requests[place].args[0], options.max_new_tokens) for place in places]
            lengths = list(map(len, prompts))
            rows = max(1, self._batch_tokens // (max(lengths) + options.max_new_tokens))
            for batch in batched(lengths, rows, self.max_length):
                seeds = [SEED + places[row] for row in batch]
                with redirect_stderr(self._terminal):
                    made = generate(self.model, [prompts[row] for row in batch], options, seeds, batch_size=rows)
                    self._tell(f"{len(found) + len(batch):,} of {len(requests):,} answers")
                for row, answer in zip(batch, made, strict=True):
                    text = self.tokenizer.decode(answer.ids, skip_special_tokens=True)
                    found[places[row]] = postprocess_generated_text(text, list(options.stop), None)
        return [found[place] for place in range(len(requests))]

    def _options(self, asked: dict[str, Any]) -> Options:
        """What a task asks of a generation, in our words."""
        kwargs: Any = normalize_gen_kwargs(asked, NEW_TOKENS)
        stops = handle_stop_sequences(kwargs.pop("until"), eos=self.tokenizer.decode(self.eot_token_id))
        new, sampled = self._room(kwargs.pop("max_gen_toks")), kwargs.pop("do_sample")
        temperature = kwargs.pop("temperature", 1.0 if sampled else 0.0)
        if kwargs.get("num_beams") == 1:  # no search
            del kwargs["num_beams"]
        if unknown := sorted(set(kwargs) - {"top_k", "top_p", "min_p", "repetition_penalty"}):
            raise InputError(f"{self.model.name}: the task asks for {unknown[0]} in generation, which is not done here")
        return Options(new, temperature, stop=tuple(stop for stop in stops if stop), **kwargs)

    def _room(self, asked: int) -> int:
        """Tokens that an answer is given: half of what the model reads where the task asks for all of that."""
        if asked < self.max_length:
            return asked
        self.cuts.answers[asked] = self.max_length // 2
        return self.max_length // 2

    def _prompt(self, text: str, new: int) -> list[int]:
        ids, room = self.tok_encode(text), self.max_length - new
        if len(ids) > room:
            self.cuts.prompts += 1
            self.cuts.tokens += len(ids) - room
        return ids[-room:]


def _tokenizer(model: LanguageModel) -> Any:
    """As Transformers reads it: beside the weights, or as an export of ours has it."""
    if not isinstance(model.module, Decoder):
        return AutoTokenizer.from_pretrained(model.tokenizer.folder, local_files_only=True, trust_remote_code=False)
    with TemporaryDirectory() as folder:
        export_tokenizer(model.tokenizer, Path(folder))
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _followed(make: Callable[[Tensor], Tensor], places: range, targets: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Of targets [C, M], those of the C ``places``: log probabilities in float64, and whether each is the likeliest."""
    own, likeliest = [], []
    indices = torch.arange(places.start, places.stop, device=targets.device)
    size = max(1, LOGITS // width)
    for part, wanted in zip(indices.split(size), targets.split(size), strict=True):
        logits = make(part).float()  # [c, V]
        own.append(logits.log_softmax(-1).gather(1, wanted).double())
        likeliest.append(logits.argmax(-1, keepdim=True) == wanted)
    return torch.cat(own), torch.cat(likeliest)
