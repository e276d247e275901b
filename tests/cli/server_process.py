"""seedbed serve in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path


def started(model: Path, *options: str) -> tuple[subprocess.Popen, str]:
    """The process, once it listens, and its URL."""
    command = [sys.executable, "-m", "seedbed", "serve", str(model), "--port", "0", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    text = ""
    while not text.endswith("}\n"):
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        text += line
    return process, json.loads(text)["url"]


def resident(process: subprocess.Popen) -> float:
    """MiB of memory that it holds."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
