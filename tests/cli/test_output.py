"""Tables in the terminal: what folders are called is shown, not obeyed."""

import io

from rich.console import Console

from seedbed.cli.output import table


def test_brackets_are_text_in_titles_columns_and_cells():
    out = io.StringIO()
    Console(file=out, width=80).print(table("of [/x]", ["[bold]a", "[/b]"], [["[red]1", "[/]"]]))
    assert out.getvalue().split() == ["of", "[/x]", "[bold]a", "[/b]", "[red]1", "[/]"]
