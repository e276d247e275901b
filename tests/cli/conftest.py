"""The command line in this process."""

import sys

import pytest

from seedbed import cli


@pytest.fixture
def seedbed(monkeypatch, capsys):
    """Call a command: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["seedbed", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, out, err

    return call
