"""The files of a shard: its tokens in one of three forms, and an index of bins and segments that all forms share.

bins.bin       BIN records, one a bin and one more at the end: where it begins in the tokens and in the segments
segments.bin   SEGMENT records: a segment is a run of one document's tokens inside one bin
tokens.bin     bin: ids, little-endian; trained.bin has a byte a token, 1 where it is predicted (only if some are not)
tokens.h5      hdf5: datasets `tokens` and `trained`
documents.jsonl, lines.bin, starts.bin
               jsonl: the sequences; int64 each, where a sequence begins in that file and in the shard's tokens
"""

from pathlib import Path

import numpy as np

from seedbed.errors import InputError

AGAIN = "make the store again with `seedbed data prepare`"
BIN = np.dtype([("token", "<i8"), ("segment", "<i8")])
SEGMENT = np.dtype(
    [
        ("offset", "<u4"),  # its first token, counted in the bin
        ("position", "<u4"),  # that token's place in the document
        ("next", "<i4"),  # the document's next token, which the segment's last one predicts, or a value below 0
        ("cut", "<u4"),  # tokens of the document that were cut off behind it
        ("group", "<u2"),  # index into the header's groups
    ]
)
ENDS, MASKED = -1, -2
"""`next` of a segment that predicts nothing: the document ends or is cut off there; it goes on with a masked token."""
GROUPS = np.iinfo(SEGMENT["group"]).max + 1
"""Largest number of groups."""
PLACE = np.dtype("<i8")
TRAINED = np.dtype(np.bool_)


def little(dtype: str) -> np.dtype:
    """The type with the byte order of the files."""
    return np.dtype(dtype).newbyteorder("<")


def read_array(file: Path, dtype: np.dtype) -> np.ndarray:
    """The records of a file, memory-mapped: [n]. Raises InputError where its size is no multiple of a record."""
    size = file.stat().st_size
    if size % dtype.itemsize:
        raise InputError(f"{file}: damaged: {size} bytes are no whole records; {AGAIN}")
    if not size:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype=dtype, mode="r"))  # a plain view: slicing a memmap object is slow
