"""A run that removes its checkpoints while they are looked at."""

import shutil
from pathlib import Path

import pytest
from tiny import config, quiet

from seedbed.analysis.weights import analyze
from seedbed.api import fit
from seedbed.errors import InputError
from seedbed.files.atomic import sha256
from seedbed.files.steps import step_folders
from seedbed.hub.checkpoints import fingerprint, hashes_of, open_checkpoint
from seedbed.hub.models import open_model
from seedbed.hub.newest import of_newest

CHECKPOINTS = ["train.steps=3", "model.d_model=16", "train.checkpoint_every=1", "train.keep_checkpoints=3"]


@pytest.fixture
def run(tmp_path, tiny_store) -> Path:
    fit(config(tiny_store, tmp_path / "run", *CHECKPOINTS), quiet)
    return tmp_path / "run"


def test_the_newest_that_stays_is_read(run):
    newest, before, _ = step_folders(run)
    seen = []

    def read(folder: Path) -> Path:
        seen.append(folder)
        if len(seen) == 1:
            shutil.rmtree(folder)
        (folder / "config.yaml").stat()
        return folder

    assert of_newest(run, read) == before
    assert seen == [newest, before]


def test_one_line_where_none_stays(run):
    with pytest.raises(InputError, match=r"run: it removes checkpoints while it trains; name .* train\.keep_"):
        of_newest(run, lambda folder: (shutil.rmtree(folder), (folder / "config.yaml").stat()))


def test_what_is_wrong_with_a_checkpoint_that_stays_is_said(run):
    with pytest.raises(FileNotFoundError):
        of_newest(run, lambda folder: (folder / "none").stat())


def test_what_was_opened_is_measured_without_its_folder(run):
    opened, model = open_checkpoint(run), open_model(run)
    (file,) = opened.files
    told = {file.name: sha256(file)}
    whole = analyze(opened)
    shutil.rmtree(file.parent)
    assert analyze(opened) == whole
    assert fingerprint(opened) == fingerprint(model) == told
    assert hashes_of(opened) == list(told.values())
