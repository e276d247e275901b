"""The numbers of a store for people: tables, and histograms of bars."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.bar import Bar
from rich.table import Table
from rich.text import Text

from seedbed.cli.output import console, table, visible

SPLITS = ("train", "heldout")
BAR = 30  # characters of the longest bar
MOST_GROUPS = 40
FILLS = [*(f"{tenth * 10}–{tenth * 10 + 10} %" for tenth in range(10)), "full"]


def show_header(header: dict[str, Any]) -> None:
    """How a store is packed and kept, its streams, and what reading left out and mended."""
    print(
        f"{header['seq_len']:,} tokens a bin, packing {header['packing']}, position ids {header['position_ids']}; "
        f"stored as {header['storage']}, {header['dtype']}; vocabulary {header['vocab_size']:,}, tokenizer "
        f"{header['tokenizer_hash'][:12]}"
    )
    streams = header["streams"]
    keys = "documents", "bytes", "tokens", "predicted", "bins", "cut_documents", "cut_tokens"
    rows = [[key.replace("_", " "), *(f"{stream[key]:,}" for stream in streams.values())] for key in keys]
    filled = [_share(stream["tokens"], stream["tokens"] + stream["padding"]) for stream in streams.values()]
    rows.insert(keys.index("bins") + 1, ["fill of bins", *filled])
    console().print(table("", ["", *streams], rows))
    copies = {f"copies, {kind}": count for kind, count in header["duplicates"].items() if count}
    unread = sum(group["left_out_documents"] for group in header["groups"])
    mixture = {"not in the mixture, or beyond its share": unread} if unread else {}
    _show_bars("left out", ("reason", "records"), {**header["skipped"], **copies, **mixture})
    _show_bars("mended", ("what", "times"), header["repaired"])


def show_survey(header: dict[str, Any], surveys: Mapping[str, dict[str, Any]], split: str) -> None:
    """`show_header`, the mixture, and histograms of the streams of ``split``."""
    show_header(header)
    _show_mixture(header["mixture"])
    _show_groups(header["groups"], {name: found["groups"] for name, found in surveys.items()})
    for name, found in surveys.items():
        if name.partition("/")[0] == split:
            lengths = {_level(level): count for level, count in enumerate(found["lengths"])}
            _show_bars(f"{name}: length of documents", ("tokens", "documents"), _trimmed(lengths))
            _show_bars(
                f"{name}: fill of bins", ("filled", "bins"), _trimmed(dict(zip(FILLS, found["fill"], strict=True)))
            )


def _level(level: int) -> str:
    low, high = 2**level, 2 ** (level + 1) - 1
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _trimmed(counts: dict[str, int]) -> dict[str, int]:
    """Without the empty bars at either end."""
    filled = [number for number, count in enumerate(counts.values()) if count]
    return dict(list(counts.items())[filled[0] : filled[-1] + 1]) if filled else {}


def _show_bars(title: str, columns: tuple[str, str], counts: Mapping[str, int]) -> None:
    if any(counts.values()):
        rows = [[visible(name), f"{count:,}"] for name, count in counts.items()]
        console().print("", _with_bars(title, columns, rows, list(counts.values()), 1), sep="\n")


def _show_groups(groups: Sequence[dict[str, Any]], streams: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Tokens stored of each domain and language, in both splits; of very many groups, the largest."""
    stored = [
        [
            sum(found[i]["tokens"] for name, found in streams.items() if name.partition("/")[0] == split)
            for split in SPLITS
        ]
        for i in range(len(groups))
    ]
    largest = sorted(sorted(range(len(groups)), key=lambda i: -stored[i][0])[:MOST_GROUPS])
    rows = [
        [
            *(visible(groups[i][key]) for key in ("domain", "lang")),
            *(f"{count:,}" for count in (groups[i]["documents"], stored[i][1], stored[i][0])),
        ]
        for i in largest
    ]
    columns = "domain", "language", "documents", "tokens held out", "tokens"
    title = "domains in training" + (f", the largest of {len(groups):,}" if len(groups) > MOST_GROUPS else "")
    console().print("", _with_bars(title, columns, rows, [stored[i][0] for i in largest], 2), sep="\n")


def _show_mixture(shares: Sequence[dict[str, Any]]) -> None:
    if not shares:
        return
    total = sum(share["tokens"] for share in shares)
    rows = [
        [
            visible(share["domain"]),
            f"{share['weight']:.1%}",
            _share(share["tokens"], total),
            f"{share['available']:,}",
            f"{share['tokens']:,}",
            f"{share['documents']:,}",
            f"{share['epochs']:.3f}",
        ]
        for share in shares
    ]
    columns = ["domain", "asked", "share", "tokens there", "tokens taken", "documents taken", "epochs"]
    console().print("", table("mixture of training", columns, rows), sep="\n")


def _with_bars(title: str, columns: Sequence[str], rows: list[list[str]], values: Sequence[int], left: int) -> Table:
    """A table whose last columns are the share of each of ``values`` and a bar."""
    result = table(title, [*columns, "share"], [], left)
    result.add_column("", max_width=BAR)
    for row, value in zip(rows, values, strict=True):
        cells = map(Text, (*row, _share(value, sum(values))))
        result.add_row(*cells, Bar(max(values) or 1, 0, value))
    return result


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
