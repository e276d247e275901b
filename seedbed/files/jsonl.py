"""JSON lines: one value a line, plain or compressed with gzip (.gz) or zstandard (.zst)."""

import codecs
import gzip
import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import zstandard

from seedbed.errors import InputError

OnBad = Literal["strict", "skip"]
BOM, CRLF, NUL = "byte-order marks removed", "CRLF line ends replaced by LF", "NUL bytes removed"
"""What is mended in the bytes of any text."""
OR_SKIP = " (or leave such lines out with on_bad: skip)"
"""What an error of one bad line, row or file ends with, where the policy is strict."""
_CHUNK = 1 << 20


@dataclass
class ReadCounts:
    """What was left out and what was mended, by reason."""

    skipped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    keep: Callable[[dict[str, Any]], None] | None = None
    """Given what is left out: `where` (file:line), `reason`, `record`."""

    def skip(self, reason: str, where: str, record: Any) -> None:
        """Count something that is left out, and keep it where that is wanted."""
        self.skipped[reason] += 1
        if self.keep is not None:
            self.keep({"where": where, "reason": reason, "record": record})


def read_jsonl(
    path: str | Path,
    on_bad: OnBad = "strict",
    counts: ReadCounts | None = None,
    stream: IO[bytes] | None = None,
    *,
    start: int = 0,
    stop: int = sys.maxsize,
    first: int = 1,
) -> Iterator[tuple[int, Any]]:
    """Yield (line number from 1, value) for each line that is not blank.

    Of a file that is not compressed, only the lines that begin in bytes ``start`` to ``stop`` may be read; ``first`` is
    the number of the first of them. So ranges that share the bytes of a file share its lines, wherever they end.

    ``stream`` is an open file to read instead of the local one at ``path``, which then only names it. A byte-order
    mark, the CR of CRLF, and NUL bytes, which JSON never contains, are taken off and counted. A line that is not one
    JSON value raises InputError with file and line, or is counted where ``on_bad`` is "skip". A compressed file that
    ends early or is damaged raises InputError under either policy.
    """
    counts = ReadCounts() if counts is None else counts
    before = max(start - 1, 0)  # one byte earlier: it tells whether a line begins at ``start``
    for number, line in enumerate(_lines(read_chunks(path, stream, before), before, start, stop), start=first):
        if line.startswith(codecs.BOM_UTF8):
            counts.repaired[BOM] += 1
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.endswith(b"\r"):
            counts.repaired[CRLF] += 1
            line = line[:-1]
        if b"\0" in line:
            counts.repaired[NUL] += line.count(b"\0")
            line = line.replace(b"\0", b"")
        if not line or line.isspace():
            counts.skipped["blank line"] += 1
            continue
        try:
            value = _parse(line, f"{path}:{number}")
        except InputError as error:
            if on_bad == "strict":
                raise InputError(f"{error}{OR_SKIP}") from None
            counts.skip("not one JSON value", f"{path}:{number}", line.decode("utf-8", "replace").strip())
            continue
        yield number, value


def count_lines(path: str | Path, stream: IO[bytes] | None, start: int, stop: int) -> int:
    """How many lines begin in bytes ``start`` to ``stop``, which is greater, of a file that is not compressed."""
    before = max(start - 1, 0)
    count, left = int(start == 0), stop - 1 - before  # a line begins at byte 0 and behind each newline
    for chunk in read_chunks(path, stream, before):
        count += chunk.count(b"\n", 0, left)
        left -= len(chunk)
        if left <= 0:
            break
    return count


def is_compressed(path: str | Path) -> bool:
    """Whether the name says so."""
    return Path(path).suffix.lower() in (".gz", ".zst")


def _parse(line: bytes, where: str) -> Any:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 at byte {error.start + 1} of the line; save the file as UTF-8") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            problem = f"a second value starts at column {error.colno}; write one value a line"
        elif error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            problem = "the line ends inside a value (cut short?); write the file anew"
        else:
            problem = f"not JSON: {error.msg} at column {error.colno}"
        raise InputError(f"{where}: {problem}") from None
    except RecursionError:
        raise InputError(f"{where}: lists or objects nested thousands deep cannot be read; flatten them") from None
    except ValueError:  # Python bounds the digits that it turns into a number
        raise InputError(f"{where}: an integer of thousands of digits cannot be read; write it as text") from None


def read_chunks(path: str | Path, stream: IO[bytes] | None = None, start: int = 0) -> Iterator[bytes]:
    """Yield the content of the file ``path``, or of ``stream``, decompressed as the name says (.gz, .zst).

    What is not compressed may be read from byte ``start`` on. Raises InputError that names the file where it cannot be
    read, is damaged or ends early.
    """
    try:
        with open(path, "rb") if stream is None else nullcontext(stream) as file:
            match Path(path).suffix.lower():
                case ".zst":
                    yield from _zstd_chunks(file)
                case ".gz":
                    with gzip.GzipFile(fileobj=file) as unzipped:
                        yield from _chunks(unzipped)
                case _:
                    if start:
                        file.seek(start)
                    yield from _chunks(file)
    except EOFError:
        raise InputError(f"{path}: the compressed file ends early; copy or write it anew") from None
    except (gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise InputError(f"{path}: damaged, or not compressed as its name says: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def _chunks(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    while data := file.read(_CHUNK):
        yield data


def _zstd_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """The decompressed bytes of all frames; EOFError when the last one is cut, which zstandard's reader hides."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame = decompressor.decompressobj()
    open_frame = False
    for data in _chunks(file):
        while data:
            yield frame.decompress(data)
            data, open_frame = frame.unused_data, not frame.eof
            if frame.eof:
                frame = decompressor.decompressobj()
    if open_frame:
        raise EOFError


def _lines(chunks: Iterable[bytes], at: int, start: int, stop: int) -> Iterator[bytes]:
    """The lines that begin in bytes ``start`` to ``stop`` of a file; ``chunks`` are its content from byte ``at`` on."""
    for line in _split_lines(chunks):
        if at >= start:
            yield line
        at += len(line) + 1
        if at >= stop:
            return


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    line: list[bytes] = []  # pieces of a line that spans chunks; joined once, so that long lines stay linear
    for chunk in chunks:
        head, *rest = chunk.split(b"\n")
        line.append(head)
        for start in rest:
            yield b"".join(line)
            line = [start]
    if last := b"".join(line):
        yield last
