"""Records of a file, whatever its format."""

import codecs
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.archive import AbstractArchiveFileSystem
from fsspec.implementations.local import LocalFileSystem

from seedbed.data.inputs import InputFile, file_system, name_in_source
from seedbed.errors import InputError
from seedbed.files.jsonl import (
    BOM,
    CRLF,
    NUL,
    OR_SKIP,
    OnBad,
    ReadCounts,
    count_lines,
    is_compressed,
    read_chunks,
    read_jsonl,
)

_ROWS = 256  # of a table in memory at once: few, since a text may have millions of characters


def read_records(
    file: InputFile, on_bad: OnBad, counts: ReadCounts, needed: Collection[str] = (), others: Collection[str] = ()
) -> Iterator[tuple[str, Any]]:
    """Yield (place, record): a line of JSONL, a row of a table (both counted from 1), or a text file as `id`, `text`.

    Of a part of a file, its records are read, with their places in the whole file.

    Only the columns ``needed`` and ``others`` of a table are read; all of them where ``needed`` is empty, or where one
    of it is missing, so that an error can name what is there. What cannot be decoded raises InputError with its place
    under "strict" and is counted under "skip"; a damaged file raises it under both.
    """
    if file.format == "dataset":
        yield from _rows(_dataset_tables(file, needed, others), file, on_bad, counts)
        return
    with _opened(file) as stream:
        match file.format:
            case "jsonl":
                start, stop = file.part.bounds(file.size) if file.part.of > 1 else (0, sys.maxsize)
                for number, record in read_jsonl(
                    file.path, on_bad, counts, stream, start=start, stop=stop, first=file.part.line
                ):
                    yield f"{file.path}:{number}", record
            case "parquet":
                yield from _rows(_parquet_tables(file, stream, needed, others), file, on_bad, counts)
            case "text":
                yield from _text(file, stream, on_bad, counts)


def lines_of(file: InputFile) -> int:
    """How many lines begin in a part of a JSONL file."""
    with _opened(file) as stream:
        return count_lines(file.path, stream, *file.part.bounds(file.size))


def is_divisible(file: InputFile) -> bool:
    """Whether its parts can be read without what is before them."""
    if file.format == "text" or (file.format == "jsonl" and is_compressed(file.path)):
        return False
    fs = file_system(file.source)[0]
    if isinstance(fs, LocalFileSystem):
        return True
    # a dataset is fetched whole, and what lies in an archive unpacked from its beginning
    if file.format == "dataset" or isinstance(fs, AbstractArchiveFileSystem):
        return False
    with _opened(file) as stream:
        return stream.seekable()


@contextmanager
def _opened(file: InputFile) -> Iterator[IO[bytes]]:
    fs, name = file_system(file.source, file.path)  # kept, since an archive closes with its last user
    try:
        stream = cast(IO[bytes], fs.open(name, "rb"))
    except OSError as error:
        raise InputError(f"{file.path}: cannot be read: {error.strerror or error}") from None
    with stream:
        yield stream


def _text(file: InputFile, stream: IO[bytes], on_bad: OnBad, counts: ReadCounts) -> Iterator[tuple[str, Any]]:
    """A text file as one record: no byte-order mark, no NUL, lines that end in LF."""
    content = b"".join(read_chunks(file.path, stream))
    if content.startswith(codecs.BOM_UTF8):
        counts.repaired[BOM] += 1
        content = content.removeprefix(codecs.BOM_UTF8)
    for found, mended, what in ((b"\0", b"", NUL), (b"\r\n", b"\n", CRLF)):
        if count := content.count(found):
            counts.repaired[what] += count
            content = content.replace(found, mended)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        if on_bad == "strict":
            problem = f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8"
            raise InputError(f"{file.path}: {problem}{OR_SKIP}") from None
        counts.skip("not UTF-8", file.path, content.decode("utf-8", "replace"))
    else:
        yield file.path, {"id": name_in_source(file), "text": text}


def _parquet_tables(
    file: InputFile, stream: IO[bytes], needed: Collection[str], others: Collection[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows of the file's part, and how many are before them."""
    with _naming(file, "damaged, or no Parquet file"), pq.ParquetFile(stream) as parquet:
        columns = _columns(parquet.schema_arrow.names, needed, others)
        start, stop = file.part.bounds(parquet.num_row_groups)
        before = sum(parquet.metadata.row_group(i).num_rows for i in range(start))
        for batch in parquet.iter_batches(_ROWS, list(range(start, stop)), columns):
            yield before, batch
            before += batch.num_rows


def _dataset_tables(
    file: InputFile, needed: Collection[str], others: Collection[str]
) -> Iterator[tuple[int, pa.Table]]:
    """Rows of the file's part, and how many are before them."""
    from datasets import Dataset, load_from_disk

    name = file_system(file.source, file.path)[1]
    with _naming(file, "damaged, or no saved dataset"):
        path = file.path if file.source.options or "://" in file.path else name
        dataset = load_from_disk(path, storage_options=file.source.options or None)
        assert isinstance(dataset, Dataset)
        columns = _columns(dataset.column_names, needed, others)
        dataset = dataset if columns is None else dataset.select_columns(columns)
        start, stop = file.part.bounds(len(dataset))
        tables = dataset.select(range(start, stop)).with_format("arrow").iter(batch_size=_ROWS)
        yield from zip(range(start, stop, _ROWS), tables, strict=True)


def _columns(names: list[str], needed: Collection[str], others: Collection[str]) -> list[str] | None:
    """Columns to read; None for all."""
    if not needed or not set(needed) <= set(names):
        return None
    return [name for name in names if name in needed or name in others]


def _rows(
    tables: Iterable[tuple[int, pa.RecordBatch | pa.Table]], file: InputFile, on_bad: OnBad, counts: ReadCounts
) -> Iterator[tuple[str, Any]]:
    for before, table in tables:
        try:
            records = table.to_pylist()
        except UnicodeDecodeError:  # a table does not check its texts; find the row
            records = [_row(table.slice(i, 1)) for i in range(table.num_rows)]
        for row, record in enumerate(records, start=before + 1):
            if record is not None:
                yield f"{file.path}:{row}", record
            elif on_bad == "strict":
                raise InputError(f"{file.path}:{row}: a text that is not UTF-8; write the table anew{OR_SKIP}")
            else:
                counts.skip("not UTF-8", f"{file.path}:{row}", None)


def _row(table: pa.RecordBatch | pa.Table) -> dict[str, Any] | None:
    """The one row of a table; None where its text is not UTF-8."""
    try:
        return table.to_pylist()[0]
    except UnicodeDecodeError:
        return None


@contextmanager
def _naming(file: InputFile, problem: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file.path}: {problem}: {' '.join(str(error).split())}") from None
