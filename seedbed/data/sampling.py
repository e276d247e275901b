"""A sample of documents that fits a number of bytes, the same whatever order they come in."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from seedbed.data.document import text_hash
from seedbed.data.tokenizer import SURROGATE
from seedbed.errors import InputError

_KEY = 16  # bytes of a text's hash


@dataclass
class SampleCounts:
    """Documents and bytes (UTF-8) of the sample, and what is not in it."""

    documents: int = 0
    bytes: int = 0
    documents_left_out: int = 0
    bytes_left_out: int = 0
    documents_cut: int = 0
    """Of those read, how many lost their end."""
    bytes_cut: int = 0

    def __str__(self) -> str:
        return f"{self.documents:,} documents, {self.bytes:,} bytes"


class Sample:
    """The documents with the smallest hashes, as many as ``max_bytes`` hold; every document has the same chance.

    Of a long document only the first ``max_document_bytes`` are taken, at most ``max_bytes``. One pass over the
    texts; memory is that of the sample and 60 bytes a document in it.
    """

    def __init__(self, texts: Iterable[str], max_bytes: int, max_document_bytes: int, show: Callable[[str], None]):
        """Read ``texts``; ``show`` is told the counts now and then. Raises InputError on a lone surrogate."""
        self.counts = counts = SampleCounts()
        longest = min(max_bytes, max_document_bytes)
        self._kept: list[bytes] = []  # a heap of (complement of the hash, text): the largest hash comes first
        refused = b""  # the smallest hash that had to leave: from there on nothing comes in
        for number, text in enumerate(texts, start=1):
            head = _head(text, longest, counts)
            entry = bytes(255 - byte for byte in text_hash(head.decode("utf-8"))) + head
            counts.documents += 1
            counts.bytes += len(head)
            if entry > refused:
                heapq.heappush(self._kept, entry)
                while counts.bytes > max_bytes:
                    refused = heapq.heappop(self._kept)
                    _leave_out(refused, counts)
            else:
                _leave_out(entry, counts)
            if number % 100 == 0:
                show(str(counts))
        show(str(counts))

    def take(self) -> Iterable[str]:
        """The texts, smallest hash first, each released when it was taken."""
        self._kept.sort()
        while self._kept:
            yield self._kept.pop()[_KEY:].decode("utf-8")


def _head(text: str, longest: int, counts: SampleCounts) -> bytes:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(SURROGATE) from None
    if len(data) <= longest:
        return data
    head = data[:longest].decode("utf-8", "ignore").encode("utf-8")  # without the bytes of a character that was cut
    counts.documents_cut += 1
    counts.bytes_cut += len(data) - len(head)
    return head


def _leave_out(entry: bytes, counts: SampleCounts) -> None:
    size = len(entry) - _KEY
    counts.documents -= 1
    counts.bytes -= size
    counts.documents_left_out += 1
    counts.bytes_left_out += size
