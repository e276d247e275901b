"""Which of two sentences, alike but for one point of grammar, does a model hold likelier? (BLiMP: Warstadt et al. 2020;
S2 section 5.)

A sentence is scored by the log-probability of all of it, as it stands in the file: summed over all of its tokens, the
first included, behind what the tokenizer begins a text with, or its begin of text, or, where it has none, its end of
text. A pair counts 1 where the acceptable sentence is likelier, 0 where the other one is, and ½ where they are equal.
lm-evaluation-harness differs in two points: it puts a space before each sentence, and counts equal ones as right.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.errors import InputError
from seedbed.eval.likelihood import BATCH_TOKENS, Line, summed_losses
from seedbed.eval.scores import ALL, Items, Scored, macro, scored, unique
from seedbed.files.jsonl import read_jsonl
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel

TASK, ACCURACY = "minimal pairs", "accuracy"
_SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.gz")
_EQUAL = 0.5
_FIELDS = ("sentence_good", "sentence_bad", "UID", "field")


class Pair(NamedTuple):
    where: str
    """`file:line`."""
    good: str
    bad: str
    paradigm: str
    field: str
    """Of grammar, such as syntax."""


@dataclass(frozen=True)
class PairsRead:
    """What a model read of minimal pairs."""

    model: str
    pairs: int
    paradigms: int
    ties: int
    """Pairs whose sentences are equally likely, each counted as half right."""
    begins: str
    """The tokens that each sentence stands behind."""


def read_pairs(paths: Sequence[str | Path], limit: int | None = None) -> list[Pair]:
    """The pairs of files in BLiMP's format (JSONL, plain, .gz or .zst; or folders of them): `sentence_good`,
    `sentence_bad`, `UID` (the paradigm) and `field`; of each paradigm the first ``limit`` (None: all).

    Raises InputError for a file that is missing or damaged, a line that is no such pair, a paradigm in two fields,
    and where there is none.
    """
    counts: dict[str, int] = {}
    fields: dict[str, str] = {}
    found = []
    for pair in (pair for file in _files(paths) for pair in _pairs(file)):
        if fields.setdefault(pair.paradigm, pair.field) != pair.field:
            raise InputError(
                f"{pair.where}: UID {pair.paradigm!r} is of field {pair.field!r}, before of "
                f"{fields[pair.paradigm]!r}; a paradigm belongs to one field"
            )
        counts[pair.paradigm] = counts.get(pair.paradigm, 0) + 1
        if limit is None or counts[pair.paradigm] <= limit:
            found.append(pair)
    if not found:
        raise InputError(f"{paths[0]}: no pair to read; give files in BLiMP's format with --pairs")
    return found


def _files(paths: Sequence[str | Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in map(Path, paths):
        files = sorted(file for file in path.iterdir() if file.name.endswith(_SUFFIXES)) if path.is_dir() else [path]
        if not files:
            raise InputError(f"{path}: no file {', '.join(_SUFFIXES)} in it; name files of minimal pairs")
        for file in files:
            if file.resolve() in seen:
                raise InputError(f"{file}: given twice; its pairs would count twice")
            seen.add(file.resolve())
            yield file


def _pairs(file: Path) -> Iterator[Pair]:
    for line, record in read_jsonl(file):
        where = f"{file}:{line}"
        good, bad, paradigm, field = (_text(record, key, where) for key in _FIELDS)
        yield Pair(where, good, bad, paradigm, field)


def _text(record: Any, key: str, where: str) -> str:
    if not isinstance(record, dict):
        raise InputError(f"{where}: not an object with {', '.join(_FIELDS)}")
    if key not in record:
        raise InputError(f"{where}: no field {key!r}; it has {', '.join(map(repr, record)) or 'none'}")
    if not isinstance(record[key], str) or not record[key].strip():
        raise InputError(f"{where}: field {key!r} holds no text; minimal pairs need {', '.join(_FIELDS)}")
    return record[key]


def minimal_pairs(
    model: LanguageModel,
    pairs: Sequence[Pair],
    parts: Parts,
    tell: Callable[[str], None],
    name: str = TASK,
    batch_tokens: int = BATCH_TOKENS,
) -> tuple[list[Scored], PairsRead]:
    """Accuracy over all paradigms and over those of each field, each paradigm weighing the same, and of each paradigm.

    Each batch is a part, called after ``name``. Raises InputError for a sentence that is longer than the model can
    read, and where a loss is not finite.
    """
    tokenizer = model.tokenizer
    begins = tokenizer.start or [tokenizer.eos_id if tokenizer.bos_id is None else tokenizer.bos_id]
    encoded = tokenizer.encode_batch([text for pair in pairs for text in (pair.good, pair.bad)])
    lines = [
        Line(place, pairs[place // 2].where, begins + ids, len(ids))  # pair k has lines 2k, good, and 2k + 1, bad
        for place, ids in enumerate(encoded)
    ]
    for line in lines:
        if len(line.ids) > model.max_length:
            raise InputError(
                f"{line.where}: a sentence of {len(line.ids):,} tokens; {model.name} reads at most {model.max_length:,}"
            )
    nats = summed_losses(model, lines, parts, tell, name, batch_tokens)
    values = [_right(nats[i], nats[i + 1]) if encoded[i] != encoded[i + 1] else _EQUAL for i in range(0, len(lines), 2)]
    names = {i: token for token, i in tokenizer.special_tokens.items()}
    read = PairsRead(
        model=model.name,
        pairs=len(pairs),
        paradigms=len({pair.paradigm for pair in pairs}),
        ties=values.count(_EQUAL),
        begins=" ".join(names.get(i, f"id {i}") for i in begins),
    )
    return [scored(model.name, items, "share", "higher") for items in _items(pairs, values)], read


def _right(good: float, bad: float) -> float:
    """What a pair of sentences with losses ``good`` and ``bad`` counts."""
    return _EQUAL if good == bad else float(good < bad)


def _items(pairs: Sequence[Pair], values: Sequence[float]) -> list[Items]:
    """All, each field where there are several, and each paradigm in the order of fields."""
    ids = unique([f"{pair.paradigm}:{pair.where.rpartition(':')[2]}" for pair in pairs])
    fields = {pair.paradigm: pair.field for pair in pairs}
    of_paradigms = []
    for paradigm in sorted(fields, key=lambda one: (fields[one], one)):
        places = [place for place, pair in enumerate(pairs) if pair.paradigm == paradigm]
        chosen = [ids[place] for place in places], [values[place] for place in places]
        of_paradigms.append(Items(TASK, paradigm, ACCURACY, *chosen))
    groups = [macro(of_paradigms, ALL)]
    if len(names := sorted(set(fields.values()))) > 1:
        groups += [
            macro([one for one in of_paradigms if fields[one.subset] == name], f"field: {name}") for name in names
        ]
    return groups + (of_paradigms if len(of_paradigms) > 1 else [])


def told(read: PairsRead) -> list[str]:
    """What was read, in sentences."""
    return [
        f"{read.pairs:,} pairs of {read.paradigms:,} paradigms; each sentence stands behind {read.begins}.",
        *([f"{read.ties:,} pairs of equally likely sentences count as half right."] if read.ties else []),
    ]
