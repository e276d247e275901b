"""A page as Markdown: for a README, an issue, or a diff."""

from collections.abc import Iterable

from seedbed.report.sections import Page, TableView


def page_markdown(page: Page) -> str:
    """The page's text and tables; its figures are linked as `write_results` names them."""
    blocks = [f"# {_text(page.title)}", _text(page.lead)]
    blocks.append(_listed(f"{what}: {value}" for what, value in page.tiles.items()))
    for section in page.sections:
        blocks += [f"## {_text(section.title)}", *map(_text, section.paragraphs)]
        for picture in section.pictures:
            blocks += [f"![{_text(picture.description)}](figures/{picture.name}.png)", _text(picture.caption)]
        for view in section.tables:
            blocks += [f"### {_text(view.title)}", _table(view)]
        blocks.append(_listed(section.problems))
    blocks += ["## How each number is computed", _listed(f"{name}: {told}" for name, told in page.definitions.items())]
    blocks += ["## What was run", _listed(f"{name}: {told}" for name, told in page.provenance.items())]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _table(view: TableView) -> str:
    last = len(view.columns) - view.notes
    rule = ["---:" if view.left <= place < last else "---" for place in range(len(view.columns))]
    rows = [[_text(cell) for cell in row] for row in (view.columns, *view.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_text(line)}" for line in lines)


def _text(text: str) -> str:
    """One line in which nothing is markup: names of folders and domains may hold anything."""
    for character in "\\`*_[]<>|#":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
