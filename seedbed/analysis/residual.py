"""How does the residual stream go through the layers of a model: its size, what branches add, what epsilons mask?"""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seedbed.analysis.chosen_texts import texts_for
from seedbed.analysis.residual_sources import Source, sources_of
from seedbed.data.batching import batches, padded
from seedbed.data.texts import Texts
from seedbed.errors import InputError
from seedbed.files.jsonl import OnBad
from seedbed.files.parts import Parts
from seedbed.hub.checkpoints import hashes_of, names_of
from seedbed.hub.identity import identity
from seedbed.hub.models import LanguageModel
from seedbed.measure.stream import following
from seedbed.measure.stream_sums import EMBEDDED, GROUPS, StreamSums
from seedbed.measure.table import Rows
from seedbed.report.residual_rows import MEASURES, Member, NormRow, ResidualResult, StreamRow

MOST = 8
"""Models side by side: so many that curves can be told apart."""
TOKENS = 2048
"""Of a batch, padding included; one longer document is a batch of its own."""


def analyze(
    paths: Sequence[Path],
    data: Sequence[Path],
    parts: Parts,
    tell: Callable[[str], None],
    every_checkpoint: bool = False,
    documents: int | None = 64,
    length: int = 1024,
    text_field: str = "text",
    on_bad: OnBad = "strict",
    tokens: int = TOKENS,
) -> ResidualResult:
    """Follow the stream of each model through ``documents`` texts of ``data``, or without any of those that the first
    model's run holds out, cut to ``length`` tokens.

    ``every_checkpoint`` measures all checkpoints of the runs among ``paths``, and the weights before the first step,
    drawn again from the run's configuration; damaged ones are passed over with the reason. One model is in memory at a
    time. Raises InputError for what cannot be opened or read, a stream that is not finite, and for more models than
    curves can be told apart.
    """
    if len(paths) > MOST:
        raise InputError(f"{paths[MOST]}: give at most {MOST} models; figures tell no more apart")
    problems: list[str] = []
    read: dict[tuple[str, int], Texts] = {}  # by tokenizer and length
    members, stream, norms = Rows[Member](), Rows[StreamRow](), Rows[NormRow]()
    for name, path in zip(names_of(paths), paths, strict=True):
        count = len(members)
        for source in sources_of(name, path, every_checkpoint, problems):
            model = None  # the one before goes first
            try:
                model = source.open()
            except (InputError, OSError) as error:
                if not every_checkpoint:
                    raise
                problems.append(f"{name}, {source.at}: passed over: {error}")
                continue
            source = source.opened(model)
            longest = min(length, model.max_length)
            key = model.tokenizer.hash, longest
            if key not in read:
                read[key] = texts_for(paths[0], data, model.tokenizer, longest, documents, text_field, on_bad)
            texts, weights = read[key], _digest(hashes_of(model))
            sums = _measured(model, source, texts, parts, tell, tokens)
            if broken := _broken(sums):
                if not every_checkpoint:
                    raise InputError(f"{path}: {broken}")
                problems.append(f"{name}, {source.at}: passed over: {broken}")
                continue
            members.append(_member(source, sums, texts, weights))
            stream += _stream_rows(source, sums)
            norms += _norm_rows(source, sums)
            problems += _problems(source, sums, stream)
        if len(members) == count:
            raise InputError(f"{path}: none of its checkpoints can be measured: {problems[-1]}")
    problems += [f"documents left out: {n:,} × {why}" for why, n in next(iter(read.values())).skipped.items()]
    if len({(member.tokens, member.documents) for member in members}) > 1:
        problems.append("the models read different numbers of tokens: they have other tokenizers or lengths")
    told = ", ".join(map(str, data)) or f"what {paths[0]} holds out"
    return ResidualResult(members, stream, norms, told, length, problems)


def _digest(texts: Iterable[str]) -> str:
    """SHA-256 over several texts, such as hashes."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _measured(
    model: LanguageModel,
    source: Source,
    texts: Texts,
    parts: Parts,
    tell: Callable[[str], None],
    tokens: int,
) -> StreamSums:
    groups, total = list(batches(texts.texts, tokens)), StreamSums()
    decides = identity(model)
    for number, group in enumerate(groups, 1):
        tell(f"{source.model}, {source.at}: batch {number:,} of {len(groups):,}")
        rows = padded(group, model.tokenizer.eos_id)
        ids, doc_ids = rows.ids.to(model.device), rows.doc_ids.to(model.device)

        def sums(ids=ids, doc_ids=doc_ids) -> dict:
            with following(model.module, model.facts, doc_ids) as found:
                model.read(ids, doc_ids)
            return asdict(found)

        batch = hashlib.sha256(rows.ids.numpy().tobytes() + rows.doc_ids.numpy().tobytes()).hexdigest()
        total.add(StreamSums(**parts.get(f"{decides} {batch}", sums)))
    return total


def _broken(sums: StreamSums) -> str | None:
    for layer in range(EMBEDDED, len(sums.stream) - 1):
        if not math.isfinite(sums.mean(sums.stream[str(layer)], "norm")):
            where = "the embedded input" if layer == EMBEDDED else f"the stream after layer {layer}"
            return f"{where} is not finite; look for broken weights"
    return None


def _member(source: Source, sums: StreamSums, texts: Texts, weights: str) -> Member:
    return Member(
        model=source.model,
        step=source.step,
        source=source.told,
        layers=len(sums.stream) - 1,
        width=sums.width,
        documents=len(texts.texts),
        tokens=sum(sums.tokens.values()),
        firsts=sums.tokens["first"],
        cut=texts.cut,
        attn=_module(sums, "attn"),
        mlp=_module(sums, "mlp"),
        weights_sha256=weights,
    )


def _module(sums: StreamSums, branch: str) -> str:
    """The modules whose outputs are added, a * for what differs from layer to layer."""
    names = {re.sub(r"\.\d+\.", ".*.", path, count=1) for path in sums.sources.get(branch, {}).values()}
    return ", ".join(sorted(names)) or "not measured"


def _stream_rows(source: Source, sums: StreamSums) -> Iterator[StreamRow]:
    for layer in map(str, range(EMBEDDED, len(sums.stream) - 1)):
        for group in filter(sums.tokens.get, GROUPS):
            values: dict[str, Any] = {}
            for name in ("norm", "variance", "largest", "massive", "flow"):
                values[name] = sums.mean(sums.stream[layer], name, [group])
                values[f"{name}_median"] = sums.median(f"stream {layer}", name, group)
            for name in ("norm", "norm_median"):
                values[name.replace("norm", "rms")] = values[name] / math.sqrt(sums.width)
            for branch in ("attn", "mlp"):
                own = None if layer in sums.unread else sums.branches.get(branch, {}).get(layer)
                known = own is not None
                values[f"{branch}_ratio"] = sums.mean(own, "ratio", [group]) if known else None
                values[f"{branch}_cosine"] = sums.mean(own, "cosine", [group]) if known else None
                values[f"{branch}_ratio_median"] = sums.median(f"{branch} {layer}", "ratio", group) if known else None
            most = sums.most(f"stream {layer}", "massive", group)
            values |= {"layer": int(layer), "tokens": group, "count": sums.tokens[group], "massive_most": most}
            yield StreamRow(model=source.model, step=source.step, **values)


def _norm_rows(source: Source, sums: StreamSums) -> Iterator[NormRow]:
    for name, kind in sums.kinds.items():
        if name in sums.unmeasured:
            continue
        for group in filter(sums.tokens.get, GROUPS):

            def norm(measure: str, name=name, group=group) -> float:
                return sums.mean(sums.norms[name], measure, [group])

            yield NormRow(
                model=source.model,
                step=source.step,
                norm=name,
                tokens=group,
                count=sums.tokens[group],
                second_moment=norm("second_moment"),
                masking=norm("masking"),
                masking_usual=norm("masking_usual"),
                **kind,
            )


def _problems(source: Source, sums: StreamSums, stream: Sequence[StreamRow]) -> Iterator[str]:
    """What could not be measured, with the reason, once for all layers that share it."""
    where = source.model if source.step is None else f"{source.model}, step {source.step}"
    for reason in dict.fromkeys(sums.unread.values()):
        layers = [layer for layer, told in sums.unread.items() if told == reason]
        yield f"{where}: branches not measured in {_some('layer', layers)}: {reason}"
    for reason in dict.fromkeys(sums.unmeasured.values()):
        norms = [name for name, told in sums.unmeasured.items() if told == reason]
        yield f"{where}: ε masking not measured of {_some('', norms)}: {reason}"
    broken = [
        f"{name} of {'the embedded input' if row.layer < 0 else f'layer {row.layer}'}"
        for row in stream
        if (row.model, row.step) == (source.model, source.step)
        for name in MEASURES
        if (value := getattr(row, name)) is not None and not math.isfinite(value)
    ]
    if broken:
        yield f"{where}: not finite: {_some('', list(dict.fromkeys(broken)))}; a vector in them is zero"


def _some(what: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{what} {', '.join(names[:4])}{more}".strip()
