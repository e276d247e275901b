"""What is done to one shard of text: clean files into pieces, sign a piece, encode a piece.

Each function is the work of a unit (see stages): it writes into the folder it is given and returns facts.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from seedbed.data.chat import Span
from seedbed.data.document import Document, Encoded, content, dump, identity, parse, readable, sequence_texts, text_hash
from seedbed.data.encode import Encoder
from seedbed.data.filters import make_filter
from seedbed.data.formats import lines_of
from seedbed.data.inputs import InputFile
from seedbed.data.layout import little
from seedbed.data.minhash import signatures
from seedbed.data.records import documents
from seedbed.data.sections import NearDuplicates
from seedbed.data.spec import Spec
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError
from seedbed.files.jsonl import OR_SKIP, ReadCounts

T = TypeVar("T")

PIECE_BYTES = 16_000_000  # of a piece of cleaned text: what one unit signs or encodes
BATCH_BYTES = 1 << 20  # of text encoded at once; the library keeps about 100 bytes a token while it encodes
TABLE = np.dtype(
    [
        ("offset", "<i8"),  # of the document's line in the piece
        ("hash", "<u8", (2,)),  # of its text
        ("identity", "<u8", (2,)),  # hash of all that it trains
        ("bytes", "<i8"),  # UTF-8 length of its text
        ("group", "<u4"),  # index into the groups of the unit
        ("split", "i1"),  # 0 train, 1 heldout, -1: the text decides
    ]
)


class _Pieces:
    """Writes documents and their table, a new pair of files whenever one is full."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.listing: list[dict[str, Any]] = []
        self.groups: dict[tuple[str, str], int] = {}
        self._lines: list[bytes] = []
        self._rows: list[tuple[Any, ...]] = []
        self._size = 0

    def append(self, document: Document, text: str) -> None:
        line = dump(document).encode("utf-8") + b"\n"
        group = self.groups.setdefault((document.domain, document.lang), len(self.groups))
        split = -1 if document.split is None else int(document.split == "heldout")
        hashed = text_hash(text)
        hashes = (np.frombuffer(one, "<u8") for one in (hashed, identity(document, hashed)))
        self._rows.append((self._size, *hashes, len(text.encode("utf-8")), group, split))
        self._lines.append(line)
        self._size += len(line)
        if self._size >= PIECE_BYTES:
            self.close()

    def close(self) -> None:
        if self._rows:
            name = f"{len(self.listing):05d}"
            (self.folder / f"documents-{name}.jsonl").write_bytes(b"".join(self._lines))
            np.save(self.folder / f"table-{name}.npy", np.array(self._rows, TABLE))
            self.listing.append({"name": name, "documents": len(self._rows)})
        self._lines, self._rows, self._size = [], [], 0


def count_lines(folder: Path, file: InputFile) -> dict[str, Any]:
    """How many lines begin in a part of a JSONL file."""
    return {"lines": lines_of(file)}


def clean_files(folder: Path, files: Sequence[InputFile], spec: Spec) -> dict[str, Any]:
    """Records of some files -> documents-NNNNN.jsonl and table-NNNNN.npy; what is rejected goes to rejects.jsonl."""
    with ExitStack() as stack:
        counts = kept_counts(folder, spec, stack)
        problem = make_filter(spec.filters)
        pieces = _Pieces(folder)
        for document in (document for file in files for document in documents(file, spec, counts)):
            reason = next(filter(None, map(problem, sequence_texts(document))), None)
            if reason is None:
                pieces.append(document, content(document))
            else:
                counts.skip(reason, document.where, readable(document))
        pieces.close()
    return {
        "pieces": pieces.listing,
        "groups": list(pieces.groups),
        "skipped": dict(counts.skipped),
        "repaired": dict(counts.repaired),
    }


def kept_counts(folder: Path, spec: Spec, stack: ExitStack) -> ReadCounts:
    """Counts that also write what is left out to rejects.jsonl, where the specification wants it."""
    if not spec.keep_rejects:
        return ReadCounts()
    rejects = stack.enter_context((folder / "rejects.jsonl").open("w", encoding="utf-8", errors="replace"))
    return ReadCounts(keep=lambda reject: print(json.dumps(reject, ensure_ascii=False, default=str), file=rejects))


def read_piece(folder: Path, name: str) -> Iterator[Document]:
    with open(folder / f"documents-{name}.jsonl", "rb") as lines:
        yield from map(parse, lines)


def sign_piece(folder: Path, clean: Path, name: str, near: NearDuplicates) -> dict[str, Any]:
    """MinHash signatures of a piece -> signatures.npy [documents, permutations] uint32."""
    texts = (content(document) for document in read_piece(clean, name))
    parts = [signatures(batch, near.ngram, near.permutations) for batch in batches(texts, len, BATCH_BYTES)]
    np.save(folder / "signatures.npy", np.concatenate(parts))
    return {}


class _EncodedOutput:
    """The sequences of one output, one after another: ids, which are trained, where each sequence and record begins."""

    def __init__(self, folder: Path, name: str, dtype: str, masked: bool, stack: ExitStack):
        self._stem, self._dtype = folder / name, little(dtype)
        self._ids = stack.enter_context(open(f"{self._stem}.ids.bin", "wb"))  # noqa: SIM115
        self._trained = stack.enter_context(open(f"{self._stem}.trained.bin", "wb")) if masked else None  # noqa: SIM115
        self._lengths: list[int] = []
        self._items: list[int] = []

    def append(self, sequences: Iterable[Encoded]) -> None:
        """The sequences of one record."""
        before = len(self._lengths)
        for ids, trained in sequences:
            self._ids.write(ids.astype(self._dtype).data)
            if self._trained is not None:
                self._trained.write((np.ones(len(ids), bool) if trained is None else trained).data)
            self._lengths.append(len(ids))
        self._items.append(len(self._lengths) - before)

    def close(self) -> None:
        np.save(f"{self._stem}.starts.npy", np.cumsum([0, *self._lengths], dtype=np.int64))
        np.save(f"{self._stem}.items.npy", np.cumsum([0, *self._items], dtype=np.int64))


def encode_piece(
    folder: Path, clean: Path, name: str, alive: np.ndarray, spec: Spec, tokenizer_dir: Path, template: str | None
) -> dict[str, Any]:
    """A piece -> for each output its tokens, and kept.npy [documents] bool: which of them were encoded.

    Left out are documents that are not ``alive`` [documents]; bad ones, which the chat template refuses or in which
    nothing is predicted where something should be (under on_bad strict the first raises InputError); and those of
    several outputs of which one is longer than a bin.
    """
    tokenizer = load_tokenizer(tokenizer_dir)
    encoder, dtype = Encoder(tokenizer, template), storage_type(spec, tokenizer.vocab_size)
    kept = np.zeros(len(alive), bool)
    with ExitStack() as stack:
        counts = kept_counts(folder, spec, stack)
        outputs = {
            output: _EncodedOutput(folder, output, dtype, any(s.action != "train" for s in sections), stack)
            for output, sections in spec.texts().items()
        }
        numbers: dict[str, list[list[float]]] = {name: [] for name in spec.numbers()}
        living = ((i, document) for i, document in enumerate(read_piece(clean, name)) if alive[i])
        for batch in batches(living, lambda item: len(content(item[1])), BATCH_BYTES):
            rendered: list[tuple[int, Document, dict[str, list[list[Span]]]]] = []
            for i, document in batch:
                try:
                    rendered.append((i, document, _spans(encoder, document, spec)))
                except InputError as error:
                    _bad_record(error, document, spec, counts)
            spans = [one for *_, record in rendered for sequences in record.values() for one in sequences]
            encoded = iter(encoder.encode_spans(spans))
            for i, document, record in rendered:
                found = {output: [next(encoded) for _ in sequences] for output, sequences in record.items()}
                if (problem := _nothing_predicted(found, spec)) is not None:
                    _bad_record(InputError(f"{document.where}: {problem}"), document, spec, counts)
                elif spec.outputs is not None and _longest(found) > spec.packing.seq_len:
                    counts.skip("longer than packing.seq_len", document.where, readable(document))
                else:
                    kept[i] = True
                    for output, file in outputs.items():
                        file.append(found[output])
                    for output, values in numbers.items():
                        values.append(document.numbers[output])
        for file in outputs.values():
            file.close()
    for output, values in numbers.items():
        np.save(folder / f"{output}.values.npy", np.array([value for row in values for value in row], np.float64))
        np.save(folder / f"{output}.items.npy", np.cumsum([0, *map(len, values)], dtype=np.int64))
    np.save(folder / "kept.npy", kept)
    return {"documents": int(kept.sum()), "skipped": dict(counts.skipped)}


def _spans(encoder: Encoder, document: Document, spec: Spec) -> dict[str, list[list[Span]]]:
    """The spans of each sequence of each output. Raises InputError where the chat template refuses one."""
    return {
        output: [encoder.spans(sequence, document.where) for sequence in document.texts[output]]
        for output in spec.texts()
    }


def _bad_record(error: InputError, document: Document, spec: Spec, counts: ReadCounts) -> None:
    """Raise the error, or count what it says under on_bad skip."""
    if spec.on_bad == "strict":
        raise InputError(f"{error}{OR_SKIP}") from error
    counts.skip(str(error).removeprefix(f"{document.where}: "), document.where, readable(document))


def _nothing_predicted(found: dict[str, list[Encoded]], spec: Spec) -> str | None:
    """What is wrong with a record of which an output that trains has a sequence without a target."""
    for output, sections in spec.texts().items():
        if any(section.trains for section in sections) and not all(one.predicts() for one in found[output]):
            return (
                f"{'' if spec.outputs is None else f'output {output!r}: '}no token is predicted: no message is of a "
                "trained role, or what is trained is empty; look at sections.action and roles"
            )
    return None


def _longest(found: dict[str, list[Encoded]]) -> int:
    return max(len(one.ids) for sequences in found.values() for one in sequences)


def storage_type(spec: Spec, vocab_size: int) -> str:
    """The type of stored ids. Raises InputError where the one that the specification sets cannot hold them."""
    smallest = "uint16" if vocab_size <= 2**16 else "uint32"
    if spec.storage.dtype == "auto":
        return smallest
    if spec.storage.dtype == "uint16" and smallest == "uint32":
        raise InputError(f"storage.dtype: uint16 cannot hold a vocabulary of {vocab_size:,}; use auto or uint32")
    return spec.storage.dtype


def batches(items: Iterable[T], size: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Runs of items that reach ``limit`` together, or one that does alone."""
    batch, total = [], 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= limit:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
