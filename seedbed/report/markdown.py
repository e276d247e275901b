"""A page as Markdown: text and tables, with links to the figures beside it."""

from collections.abc import Sequence

from seedbed.report.sections import Page, TableView


def page_markdown(page: Page) -> str:
    """The page's words and tables; its pictures are those that write_results puts into ``figures/``."""
    lines = [f"# {_text(page.title)}", "", _text(page.lead), ""]
    lines += [f"- {_text(what)}: {_text(value)}" for what, value in page.tiles.items()]
    for section in page.sections:
        lines += ["", f"## {_text(section.title)}", ""]
        lines += [line for problem in section.problems for line in (f"> {_text(problem)}", "")]
        lines += [line for paragraph in section.paragraphs for line in (_text(paragraph), "")]
        for picture in section.pictures:
            lines += [f"![{_text(picture.description)}](figures/{picture.name}.svg)", "", _text(picture.caption), ""]
        for table in section.tables:
            lines += [f"**{_text(table.title)}**", "", *_table(table), ""]
    lines += ["", "## Definitions", "", *(f"- {_text(key)}: {_text(told)}" for key, told in page.definitions.items())]
    lines += ["", "## What was run on what", ""]
    lines += [f"- {_text(key)}: {_text(told)}" for key, told in page.provenance.items()]
    return "\n".join(lines) + "\n"


def _table(table: TableView) -> Sequence[str]:
    numbers = range(table.left, len(table.columns) - table.notes)
    marks = ["---:" if place in numbers else "---" for place in range(len(table.columns))]
    rows = [table.columns, marks, *table.rows]
    cells = [[cell if row is marks else _text(cell).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in cells]


def _text(text: str) -> str:
    """On one line, with what Markdown would read as markup set apart."""
    text = " ".join(text.split())
    for mark in "\\`*_<>[]#":
        text = text.replace(mark, f"\\{mark}")
    return text
