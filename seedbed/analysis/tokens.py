"""On which tokens is one model better than another? Losses of both on the same tokens, and where they differ (S0
sections 2.5 and 4.7).

Shapes: N predicted tokens of all texts, in their order; D documents.
"""

import base64
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch

from seedbed.analysis.token_rows import Scores, document_rows, group_rows, histogram, shown_text, token_rows
from seedbed.analysis.token_texts import spread
from seedbed.data.batching import batches, padded
from seedbed.data.texts import Text, Texts
from seedbed.errors import InputError
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel, predicted_tokens
from seedbed.measure.gains import RESAMPLES, difficulty_bins, difficulty_slope, probability_gain
from seedbed.model import Decoder
from seedbed.report.tokens_rows import ShownText, TokenGains

BINS = 10
BATCH_TOKENS = 8192
BATCH_LOGITS = 2**26
"""Of one model on a batch, at most: what Transformers models make at once (256 MB in fp32)."""
_KINDS = {"a": "<f4", "b": "<f4", "rank_a": "<i4", "rank_b": "<i4"}
"""What is kept of a batch, and how its bytes are read."""


def check_same_tokens(a: LanguageModel, b: LanguageModel) -> None:
    """Raise InputError unless both read the same tokens, and have an output for each of them."""
    if a.tokenizer.hash != b.tokenizer.hash and not a.tokenizer.same_tokens(b.tokenizer):
        raise InputError(
            f"{a.name} and {b.name}: their vocabularies differ ({a.tokenizer.vocab_size:,} and "
            f"{b.tokenizer.vocab_size:,} tokens), so no token is the same for both; give two models of one tokenizer"
        )
    for model in (a, b):
        if outputs(model) < model.tokenizer.vocab_size:
            raise InputError(
                f"{model.name}: predicts {outputs(model):,} ids, fewer than the {model.tokenizer.vocab_size:,} tokens "
                "of its tokenizer; give the model's own tokenizer"
            )


def _check_same_reading(a: LanguageModel, b: LanguageModel, texts: Texts, length: int) -> None:
    """Raise InputError where one vocabulary, with other rules, cuts a text into other tokens."""
    if (a.tokenizer.hash, a.tokenizer.start) == (b.tokenizer.hash, b.tokenizer.start):
        return
    for text in texts.texts:
        if (b.tokenizer.start + b.tokenizer.encode(text.text))[:length] != text.ids:
            raise InputError(
                f"{a.name} and {b.name}: their tokenizers cut {text.id} into different tokens; give two models of one "
                "tokenizer"
            )


def outputs(model: LanguageModel) -> int:
    """Ids that ``model`` gives a probability to."""
    if isinstance(model.module, Decoder):
        return len(model.module.head_weight)
    return model.module.get_output_embeddings().weight.shape[0]  # pyright: ignore[reportCallIssue]


def analyze(
    a: LanguageModel,
    b: LanguageModel,
    texts: Texts,
    length: int,
    parts: Parts,
    tell: Callable[[str], None],
    show: int = 6,
    seed: int = 0,
    batch_tokens: int = BATCH_TOKENS,
) -> tuple[TokenGains, list[ShownText]]:
    """Gain of ``b`` over ``a`` on ``texts``, which were encoded by the tokenizer of ``a`` and cut to ``length``; and
    ``show`` of them token by token.

    Each batch is a part. Raises InputError where the tokens of the models differ, where a loss is not finite, and for
    fewer than ten tokens.
    """
    check_same_tokens(a, b)
    _check_same_reading(a, b, texts, length)
    shown = spread(texts.texts, show)
    batch_tokens = min(batch_tokens, BATCH_LOGITS // max(outputs(a), outputs(b)))
    found = _measure(a, b, texts.texts, shown, batch_tokens, parts, tell)
    scores = [found[id(text)] for text in texts.texts]
    loss_a = np.concatenate([one.a for one in scores]).astype(np.float64)  # [N]
    loss_b = np.concatenate([one.b for one in scores]).astype(np.float64)
    if len(loss_a) < BINS:
        raise InputError(f"{len(loss_a)} predicted tokens: too few for {BINS} bins of difficulty; give more text")
    tell("intervals")
    ids = np.concatenate([text.ids[1:] for text in texts.texts])
    documents = np.repeat(np.arange(len(scores)), [len(one.a) for one in scores])
    lengths = a.tokenizer.token_bytes()
    groups = {
        "all": (["all"], np.zeros_like(documents)),
        "difficulty": ([str(number) for number in range(1, BINS + 1)], difficulty_bins((loss_a + loss_b) / 2, BINS)),
        "domain": _numbered([text.domain for text in texts.texts], documents),
        "language": _numbered([text.lang for text in texts.texts], documents),
    }
    tables = group_rows(loss_a, loss_b, documents, lengths[ids], groups, seed)
    gaining, losing = token_rows(loss_a, loss_b, ids, texts.texts, documents, a.tokenizer, lengths)
    gain, p_gain = loss_a - loss_b, probability_gain(loss_a, loss_b)
    reach = float(np.quantile(np.abs(gain), 0.995)) or 1.0
    result = TokenGains(
        a=a.name,
        b=b.name,
        tokenizer=a.tokenizer.hash,
        vocabulary=a.tokenizer.vocab_size,
        length=length,
        cut_documents=sum(text.cut > 0 for text in texts.texts),
        cut_tokens=texts.cut,
        skipped=dict(texts.skipped),
        remarks=_remarks(a, b),
        resamples=RESAMPLES,
        seed=seed,
        overall=tables["all"][0],
        loss_std_a=float(loss_a.std()),
        loss_std_b=float(loss_b.std()),
        slope=difficulty_slope(loss_a, loss_b),
        bins=tables["difficulty"],
        domains=tables["domain"],
        languages=tables["language"],
        documents=document_rows(texts.texts, loss_a, loss_b, documents),
        gaining=gaining,
        losing=losing,
        gain_histogram=histogram(gain, np.linspace(-reach, reach, 82)),
        probability_gain_histogram=histogram(p_gain, np.linspace(-1, 1, 42)),
    )
    return result, [shown_text(text, found[id(text)], a.tokenizer, lengths) for text in shown]


def _numbered(names: Sequence[str], documents: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The distinct ``names`` of documents, and for each token [N] which one its document has."""
    distinct, numbers = np.unique([name or "(none)" for name in names], return_inverse=True)
    return distinct.tolist(), numbers[documents]


def _remarks(a: LanguageModel, b: LanguageModel) -> list[str]:
    """What stands between the numbers and their plain reading."""
    found = []
    for model in (a, b):
        if more := outputs(model) - model.tokenizer.vocab_size:
            found.append(
                f"{model.name} has {more:,} outputs beyond the vocabulary; what probability they take is missing from "
                "its tokens."
            )
    if not a.tokenizer.lossless:
        found.append("Text does not survive the tokenizer: bytes, and so bits per byte, are approximate.")
    return found


def _measure(
    a: LanguageModel,
    b: LanguageModel,
    texts: Sequence[Text],
    shown: Sequence[Text],
    batch_tokens: int,
    parts: Parts,
    tell: Callable[[str], None],
) -> dict[int, Scores]:
    """Scores by ``id`` of the text; those in ``shown`` come first, so that no text is read twice for its ranks."""
    ahead = {id(text) for text in shown}
    rest = [text for text in texts if id(text) not in ahead]
    work = [(batch, True) for batch in batches(shown, batch_tokens)]
    work += [(batch, False) for batch in batches(rest, batch_tokens)]
    found: dict[int, Scores] = {}
    for number, (batch, ranks) in enumerate(work, 1):
        tell(f"batch {number} of {len(work)}")
        kept = parts.get(f"batch {number}", lambda batch=batch, ranks=ranks: _batch(a, b, batch, ranks))
        arrays = {name: np.frombuffer(base64.b64decode(text), _KINDS[name]) for name, text in kept.items()}
        ends = np.cumsum([len(text.ids) - 1 for text in batch])[:-1]
        split = {name: np.split(array, ends) for name, array in arrays.items()}
        for row, text in enumerate(batch):
            found[id(text)] = Scores(**{name: of_rows[row] for name, of_rows in split.items()})
    return found


def _batch(a: LanguageModel, b: LanguageModel, batch: Sequence[Text], ranks: bool) -> dict[str, str]:
    """Losses, and ranks where asked for, of all predicted tokens of ``batch``, row by row, as base64 text."""
    ids, doc_ids = padded(batch, pad_id=batch[0].ids[0])
    predicted = predicted_tokens(ids, doc_ids)  # [B, T]
    found: dict[str, np.ndarray] = {}
    for name, model in (("a", a), ("b", b)):
        losses, places = model.scores(ids.to(model.device), doc_ids.to(model.device), ranks)
        found[name] = losses.cpu()[predicted].numpy()
        if not np.isfinite(found[name]).all():
            raise InputError(
                f"{model.name}: its loss is not finite on {_named(batch, losses.cpu())}; its weights are damaged, or "
                "overflow: see `seedbed analyze weights`"
            )
        if places is not None:
            found[f"rank_{name}"] = places.cpu()[predicted].numpy() + 1
    return {name: base64.b64encode(array.astype(_KINDS[name]).tobytes()).decode() for name, array in found.items()}


def _named(batch: Iterable[Text], losses: torch.Tensor) -> str:
    """The first text of ``batch`` with a loss [B, T] that is not finite."""
    bad = ~losses.isfinite().all(1)
    return next(text.id for text, is_bad in zip(batch, bad.tolist(), strict=True) if is_bad)
