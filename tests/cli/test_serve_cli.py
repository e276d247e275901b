"""seedbed serve: what it refuses before it serves, and how it ends."""

import signal
import socket
from pathlib import Path

import pytest
from server_process import started
from tiny import config, quiet

pytest.importorskip("transformers")
pytest.importorskip("fastapi")

from seedbed.api import fit


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    monkeypatch.delenv("SEEDBED_API_KEY", raising=False)


@pytest.fixture
def refused(seedbed):
    """What a command says that is refused."""

    def call(*arguments: object) -> str:
        code, out, told = seedbed("serve", *arguments)
        assert (code, out) == (2, "") and len(told.splitlines()) == 1
        return told

    return call


def test_a_port_in_use(refused):
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        assert f"--port {port}: Address already in use" in refused("m", "--port", port)


def test_a_host_that_is_not_here(refused, monkeypatch):
    monkeypatch.setenv("SEEDBED_API_KEY", "secret")
    told = refused("m", "--host", "203.0.113.7")
    assert "--host 203.0.113.7 --port 8000: " in told and "secret" not in told


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1"])
def test_other_hosts_need_a_key(refused, host):
    assert "needs an API key" in refused("m", "--host", host)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", "schlüssel".encode(), b"\xff"])
def test_a_key_that_no_header_carries(refused, tmp_path, content):
    file = tmp_path / "key"
    file.write_bytes(content)
    told = refused("m", "--api-key-file", file)
    assert f"--api-key-file {file}: " in told and "words" not in told


def test_the_key_of_the_environment_is_checked_too(refused, monkeypatch):
    monkeypatch.setenv("SEEDBED_API_KEY", "")
    assert "SEEDBED_API_KEY: give one key" in refused("m")


def test_no_such_model(refused, tmp_path):
    assert "no such folder" in refused(tmp_path / "none", "--port", 0)
    assert "no such file or directory" in refused("m", "--api-key-file", tmp_path / "none").lower()


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("run") / "r"
    fit(config(tiny_store, folder, "train.steps=2"), quiet, page=False)
    return folder


def stream_and_signal(process, url: str, signum: int, **fields) -> list[str]:
    """Lines of a stream whose server gets a signal behind the first one."""
    import httpx

    with httpx.Client(base_url=url, timeout=60) as client:
        asked = {"model": "r", "prompt": "a", "max_tokens": 20, "temperature": 0, "stream": True, **fields}
        with client.stream("POST", "/v1/completions", json=asked) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(signum)
            return [line for line in lines if line]


@pytest.mark.slow
def test_a_signal_lets_running_requests_finish(run):
    process, url = started(run)
    assert stream_and_signal(process, url, signal.SIGINT)[-1] == "data: [DONE]"
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in told
    assert told.splitlines()[-1] == "interrupted: SIGINT: the server has stopped; all answers were finished"


@pytest.mark.slow
def test_the_end_of_the_grace_time(run):
    process, url = started(run, "--grace", "0")
    last = stream_and_signal(process, url, signal.SIGTERM, n=32)[-1]
    _, told = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in told
    if "all answers were finished" in told:  # they were faster than the signal
        assert last == "data: [DONE]"
    else:
        assert "answers were cut off" in told and "shutting down" in last
