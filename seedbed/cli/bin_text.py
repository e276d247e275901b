"""Bins of a store for people: in colour, and by marks alone where there is none."""

from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from seedbed.cli.output import console, is_visible, visible

if TYPE_CHECKING:
    from seedbed.data.look import Bin, Record, Run, Segment

# Colours of the terminal's own palette that stand out on dark and on light; meaning never hangs on them alone.
PREDICTED, MASKED, ESCAPE, HEAD, SEAM, CUT = "green", "dim", "red", "bold", "magenta", "bold red"


def show_legend() -> None:
    out = console()
    control, escape = Text("control token", f"{PREDICTED} reverse"), Text("\\x1b", ESCAPE)
    if _plain(out):
        legend = Text("text: predicted  ⟦masked: only read⟧  «control token»  \\x1b: a character that does not show")
    else:
        legend = Text("  ").join([Text("predicted", PREDICTED), Text("masked: only read", MASKED), control])
        legend = legend.append("  ").append(escape).append(" a character that does not show")
    out.print("", legend, sep="\n")


def show_record(split: str, record: "Record") -> None:
    """A record of a store of several outputs."""
    out = console()
    out.print("", Text(f"═══ {split} record {record.number} ", HEAD), sep="\n")
    for name, items in record.outputs.items():
        for number, item in enumerate(items):
            label = name if len(items) == 1 else f"{name} {number}"
            if isinstance(item, int | float):
                out.print(Text(f"{label}: {item:g}", HEAD))
            else:
                _show_segments(out, item, f"{label}: ")


def show_bin(split: str, shown: "Bin") -> None:
    """A bin, document by document."""
    out = console()
    filled = shown.tokens + shown.padding
    out.print("", Text(f"═══ {split} bin {shown.number}: {shown.tokens:,} of {filled:,} tokens ", HEAD), sep="\n")
    _show_segments(out, shown, "")


def _show_segments(out: Console, shown: "Bin", label: str) -> None:
    for segment in shown.segments:
        _show_segment(out, segment, label)
    if shown.padding:
        out.print(Text(f"▒ padding: {shown.padding:,} tokens", MASKED))


def _show_segment(out: Console, segment: "Segment", label: str) -> None:
    group = "/".join(visible(name) for name in (segment.domain, segment.lang) if name)
    head = Text(f"┌ {label}{group or 'document'}, {segment.tokens:,} tokens", HEAD)
    if segment.position:
        head.append(f", goes on from another bin at its token {segment.position:,}", SEAM)
    _print(out, head)
    body = _body(segment.runs, _plain(out))
    for line in body.wrap(out, max(out.width - 2, 2), overflow="fold", tab_size=4):
        _print(out, Text("│ ").append_text(line))
    if segment.goes_on:
        _print(out, Text("└ goes on in another bin", SEAM))
    elif segment.cut_tokens:
        _print(out, Text(f"└ cut off here: {segment.cut_tokens:,} more tokens", CUT))
    else:
        _print(out, Text("└ ends", HEAD))


def _print(out: Console, line: Text) -> None:
    out.print(line, soft_wrap=True)


def _body(runs: "list[Run]", plain: bool) -> Text:
    """The text of a segment; ``plain`` puts marks where there are no colours."""
    body = Text()
    for predicted, same in groupby(runs, key=lambda run: run.predicted):
        body.append("" if predicted or not plain else "⟦")
        for run in same:
            style = PREDICTED if predicted else MASKED
            if run.control:
                body.append(f"«{run.text}»" if plain else run.text, f"{style} reverse")
                continue
            for shown, characters in groupby(run.text, key=is_visible):
                text = "".join(characters)
                body.append(text if shown else visible(text), style if shown else f"{style} {ESCAPE}")
        body.append("" if predicted or not plain else "⟧")
    return body


def _plain(out: Console) -> bool:
    return out.color_system is None or out.no_color
