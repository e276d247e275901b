"""`seedbed data inspect`: what people see, in colour and without."""

import json
import re

import pytest


def test_summaries_for_people_say_where_and_what(seedbed, prepare, tmp_path):
    _, out, err = seedbed(*prepare)
    assert str(tmp_path / "s") in out
    assert re.search(r"empty text +1 ", out)
    assert "writing: 2/2 shards" in err
    _, out, err = seedbed(*prepare)
    assert f"{tmp_path / 's'}: is there already, whole, of the same request; nothing was done" in err
    code, out, _ = seedbed("data", "inspect", tmp_path / "s", "--bins", 1)
    assert code == 0
    assert "═══ train bin 0: " in out
    assert "┌ a, " in out
    assert "└ " in out
    assert "«<|bos|>»" in out
    for heading in ("left out", "domains in training", "train: length of documents", "train: fill of bins"):
        assert heading in out


EVIL = (
    "\x1b[31mred\x1b[0m \x07\x9b5n \u202eturned\u202c \u2066x \x00 [bold]no[/bold] [link=a]b :smile: 中\u3000文\r\n\t"
)


@pytest.mark.parametrize("colour", [False, True])
def test_a_text_cannot_speak_to_the_terminal(seedbed, corpus, tokenizer, tmp_path, monkeypatch, colour):
    """Control characters, changes of direction and rich's markup are shown, in text, domains and languages."""
    rows = [{"text": EVIL, "domain": f"[red]d\x1b[2J{i}", "lang": "[/]\u202e"} for i in range(3)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    mixture = {"weights": {row["domain"]: 1 for row in rows}}
    spec = {"sources": [str(corpus)], "tokenizer": str(tokenizer), "heldout": 0, "mixture": mixture}
    (tmp_path / "s.json").write_text(json.dumps(spec))
    assert seedbed("data", "prepare", "--spec", tmp_path / "s.json", "-o", tmp_path / "s", "--workers", 1)[0] == 0
    if colour:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.delenv("NO_COLOR", raising=False)
    code, out, _ = seedbed("data", "inspect", tmp_path / "s")
    assert code == 0
    assert ("\x1b[" in out) == colour
    text = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert all(character.isprintable() or character in "\n\u3000" for character in text), ascii(text)
    for shown in (
        r"\x1b[31mred\x1b[0m \x07\x9b5n \u202eturned\u202c \u2066x",
        "[bold]no[/bold] [link=a]b :smile: 中",
        r"\r",
    ):
        assert shown in text
    tables = [line for line in text.splitlines() if line.startswith(r"[red]d\x1b[2J0 ")]
    assert len(tables) == 2  # of the mixture, and of the domains
    assert r"[/]\u202e" in text


def test_colour_and_marks(seedbed, prepare, tmp_path, monkeypatch):
    """Colours where the terminal has them; marks instead under NO_COLOR and in a pipe."""
    assert seedbed(*prepare)[0] == 0
    inspect = ("data", "inspect", tmp_path / "s")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "⟦masked: only read⟧" in seedbed(*inspect)[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = seedbed(*inspect)[1]
    assert "⟦" not in out
    assert "\x1b[2;7m<|bos|>" in out  # masked, and a control token
    assert "\x1b[32m" in out
    monkeypatch.setenv("NO_COLOR", "1")
    out = seedbed(*inspect)[1]
    assert "⟦«<|bos|>»⟧" in re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert "\x1b[32m" not in out


def test_which_bins_and_outputs_are_shown(seedbed, prepare, corpus, tokenizer, tmp_path):
    assert seedbed(*prepare, "--seq-len", 8, "--heldout", 0.5)[0] == 0
    inspect = ("data", "inspect", tmp_path / "s")
    told = json.loads(seedbed(*inspect, "--bins", 2, "--first", 3, "--split", "heldout", "--json")[1])
    assert (told["split"], [one["number"] for one in told["bins"]]) == ("heldout", [3, 4])
    rows = [{"q": "the cat", "a": "sat", "b": "sad", "r": [0.5, i]} for i in range(4)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "sources": [str(corpus)],
        "tokenizer": str(tokenizer),
        "heldout": 0,
        "packing": {"strategy": "none", "seq_len": 16},
        "outputs": {
            "good": {"sections": [{"field": "q", "action": "mask"}, {"field": "a"}]},
            "bad": {"sections": [{"field": "q", "action": "mask"}, {"field": "b"}]},
            "rewards": {"numbers": "r"},
        },
    }
    (tmp_path / "o.yaml").write_text(json.dumps(spec))
    assert seedbed("data", "prepare", "--spec", tmp_path / "o.yaml", "-o", tmp_path / "o", "--workers", 1)[0] == 0
    code, out, _ = seedbed("data", "inspect", tmp_path / "o", "--record", 2)
    assert code == 0
    for shown in ("═══ train record 2", "┌ good: a, ", "⟦«<|bos|>»the cat⟧sat«<|eos|>»", "rewards 1: 2"):
        assert shown in out
    told = json.loads(seedbed("data", "inspect", tmp_path / "o", "--output", "rewards", "--bins", 2, "--json")[1])
    assert told["records"] == [{"number": i, "outputs": {"rewards": [0.5, i]}} for i in range(2)]
    for arguments, problem in (
        ((tmp_path / "o", "--output", "god"), "--output god: its outputs are good, bad, rewards"),
        ((tmp_path / "s", "--output", "good"), "--output good: its records have one output, without a name"),
        ((tmp_path / "o", "--record", 4), "--first 4: train has 4 records, numbered from 0"),
        ((tmp_path / "s", "--split", "test"), "--split test: a store has train and heldout"),
    ):
        code, out, err = seedbed("data", "inspect", *arguments)
        assert (code, out) == (2, "")
        assert problem in err.splitlines()[-1]
