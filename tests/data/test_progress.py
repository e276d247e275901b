"""Progress where stderr is no terminal: one line for what is short, one now and then for what is long."""

import time

import pytest
from rich.console import Console

from seedbed.data.progress import spinner


def test_short_work_says_one_line(capsys):
    with spinner("reading:") as show:
        show("1/2 shards")
        show("2/2 shards")
    assert capsys.readouterr().err == "reading: 2/2 shards (0 s)\n"


def test_long_work_says_now_and_then_how_far_it_is(capsys, monkeypatch):
    """Also while its state does not change."""
    monkeypatch.setattr("seedbed.data.progress.SECONDS_BETWEEN_LINES", 0.1)
    with spinner("reading:") as show:
        show("1/2 shards")
        time.sleep(0.35)
        show("2/2 shards")
    *now_and_then, last = [line.partition(" (")[0] for line in capsys.readouterr().err.splitlines()]
    assert set(now_and_then) == {"reading: 1/2 shards"}
    assert last == "reading: 2/2 shards"


def test_work_that_fails_says_no_last_line_and_nothing_later(capsys, monkeypatch):
    monkeypatch.setattr("seedbed.data.progress.SECONDS_BETWEEN_LINES", 0.1)
    with pytest.raises(ZeroDivisionError), spinner("reading:"):
        raise ZeroDivisionError
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_names_with_brackets_are_shown_as_they_are(monkeypatch):
    terminal = Console(force_terminal=True, force_interactive=True, record=True, width=80)
    monkeypatch.setattr("seedbed.data.progress.Console", lambda **_: terminal)
    with spinner("runs/[/x]") as show:
        show("[bold]y")
    assert "runs/[/x] [bold]y" in terminal.export_text()
