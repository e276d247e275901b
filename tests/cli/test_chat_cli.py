"""seedbed chat: lines from a pipe, answers alone on stdout, Ctrl-C stops the answer and not the program."""

import io
import sys
from pathlib import Path

import pytest
from chat_templates import CHATML_PLAIN, chat_tokenizer
from tiny import config, quiet

from seedbed.api import fit
from seedbed.hub import models
from seedbed.serve.answer import Answer

OPTIONS = ("--max-new-tokens", 3, "--temperature", 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("chat") / "r"
    fit(config(tiny_store, folder, "train.steps=2", "model.vocab_size=310", "model.max_seq_len=96"), quiet, page=False)
    return folder


@pytest.fixture
def talked(seedbed, monkeypatch):
    """Say lines to a command."""

    def say(text: str, *arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return seedbed("chat", *arguments)

    return say


@pytest.fixture
def with_template(run, tmp_path, monkeypatch) -> None:
    """The run's tokenizer has a template and the tokens for it."""
    original = models.load_tokenizer

    def load(folder):
        place = tmp_path / "t"
        if place.exists():
            return original(place)
        return chat_tokenizer(original(folder), place, CHATML_PLAIN, control=["<|im_start|>", "<|im_end|>"])

    monkeypatch.setattr(models, "load_tokenizer", load)


@pytest.mark.usefixtures("with_template")
def test_answers_alone_are_on_stdout(talked, run):
    code, out, err = talked("a\n\n/reset\na\n/quit\nb\n", run, *OPTIONS)
    assert code == 0
    first, second = out.splitlines()
    assert first == second != ""
    assert err.splitlines() == [
        "the answer was ended at --max-new-tokens", "forgotten", "the answer was ended at --max-new-tokens",
    ]  # fmt: skip


@pytest.mark.usefixtures("with_template")
def test_a_full_context_is_said(talked, run):
    code, out, err = talked("a\n" * 4 + "the small stone " * 30 + "\n", run, *OPTIONS)
    assert code == 0
    assert len(out.splitlines()) == 4
    assert "the context is full: the oldest 2 turns are forgotten" in err
    assert err.splitlines()[-1].startswith("not sent: ")


@pytest.mark.usefixtures("with_template")
def test_ctrl_c_stops_the_answer_alone(talked, run, monkeypatch):
    add = Answer.add

    def interrupted(self, token):
        text = add(self, token)
        if len(self.ids) == 2 and not seen:
            seen.append(text)
            raise KeyboardInterrupt
        return text

    seen: list[str] = []
    monkeypatch.setattr(Answer, "add", interrupted)
    code, out, err = talked("a\nb\n", run, *OPTIONS)
    assert code == 0
    assert err.splitlines()[0] == "stopped; what was said so far is kept"
    assert len(out.splitlines()) == 2


def test_at_the_terminal_ctrl_c_does_not_leave(seedbed, run, monkeypatch):
    asked = iter([KeyboardInterrupt(), "the", EOFError()])

    def ask(_prompt: str) -> str:
        said = next(asked)
        if isinstance(said, str):
            return said
        raise said

    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr("builtins.input", ask)
    code, out, err = seedbed("chat", run, "--plain", *OPTIONS)
    assert code == 0
    assert out.strip()
    assert "/quit ends, Ctrl-C" in err
    assert err.splitlines()[2] == "/quit ends"


def test_plain_needs_no_template(talked, run):
    code, out, _ = talked("the\n", run, "--plain", *OPTIONS)
    assert code == 0
    assert out.strip()
    code, _, err = talked("the\n", run, *OPTIONS)
    assert code == 2
    assert "no chat template; pass --plain to go on with texts, or --chat-template" in err
    code, _, err = talked("the\n", run, "--chat-template", "chatml")
    assert code == 2
    assert "<|im_start|>, <|im_end|>, which are no tokens of the tokenizer" in err
    assert "`--special-token '<|im_start|>' --special-token '<|im_end|>'`" in err
    code, _, err = talked("the\n", run, "--plain", "--system", "x")
    assert code == 2
    assert "--system" in err


def test_what_a_terminal_must_not_get_is_escaped(talked, run, monkeypatch):
    monkeypatch.setattr(Answer, "add", lambda self, _token: (setattr(self, "finish", "stop"), "a\x1b[2J中")[1])
    code, out, _ = talked("the\n", run, "--plain")
    assert (code, out) == (0, "a\\x1b[2J中\n")
