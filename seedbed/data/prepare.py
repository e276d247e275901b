"""From raw files to a store, stage by stage. Killed at any moment, the same call goes on with what is not done."""

import json
import os
import shutil
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from seedbed.data.filters import make_filter
from seedbed.data.header import FORMAT_VERSION
from seedbed.data.inputs import list_inputs
from seedbed.data.job import VERSION
from seedbed.data.minhash import SIGNATURE_VERSION
from seedbed.data.pipeline import run
from seedbed.data.place import LISTS, OURS, REQUEST, check_place, check_request, is_there
from seedbed.data.progress import say
from seedbed.data.ray_engine import ray_engine
from seedbed.data.spec import Spec
from seedbed.data.stages import Engine, local_engine
from seedbed.data.steps import storage_type
from seedbed.data.template import load_template
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, clear_leftovers, commit, sync, write_atomic
from seedbed.files.lock import folder_lock


def prepare(
    spec: Spec,
    out: str | Path,
    *,
    workers: int | None = None,
    engine: Literal["local", "ray"] = "local",
    overwrite: bool = False,
    keep_work: bool = False,
) -> dict[str, Any]:
    """Make the store that ``spec`` asks for at ``out``; returns its header.

    Where it is there already, whole, nothing is done; where it was interrupted or is damaged, the missing shards are
    made. ``workers`` units are worked on at a time (default: one for each core that this process may use), in processes
    of this machine or as Ray tasks. Raises InputError, before anything is read, for a specification that cannot work,
    and where ``out`` holds something else, or a store of another request unless ``overwrite``; then at a bad record
    under on_bad strict, and where no document is left: a new folder in which nothing was finished is removed again, and
    a store that was to be replaced stays.
    """
    out, workers = Path(out), workers or len(os.sched_getaffinity(0))
    tokenizer = load_tokenizer(spec.tokenizer)
    tools = any(section.tools is not None for sections in spec.texts().values() for section in sections)
    template = None if spec.chat_template is None else load_template(spec.chat_template, tokenizer, tools)
    make_filter(spec.filters)
    storage_type(spec, tokenizer.vocab_size)
    files = list_inputs(spec.sources)
    request = {
        "format_version": FORMAT_VERSION,
        "versions": {"stages": VERSION, "signatures": None if spec.dedup.near is None else SIGNATURE_VERSION},
        "spec": spec.model_dump(mode="json"),
        "inputs": {file.path: file.fingerprint for file in files},
        "tokenizer": [tokenizer.hash, tokenizer.bos_token, tokenizer.eos_token, tokenizer.padded_size],
        "chat_template": template,
    }
    read = [*(file.path for file in files), spec.tokenizer]
    _check(out, read, request, overwrite)  # before the lock, whose file has no place in a folder of somebody else
    with folder_lock(out):
        _check(out, read, request, overwrite)  # another process may have finished a store
        if is_there(out, request):
            say(f"{out}: is there already, whole, of the same request; nothing was done")
            _clear_work(out, keep_work)
            return json.loads((out / "header.json").read_text(encoding="utf-8"))
        clear_leftovers(out)
        new = not any((out / name).is_file() for name in (REQUEST, "header.json"))
        begin = partial(_begin, out, request, tokenizer)
        try:
            if not (out / "header.json").is_file():  # else a store, which stays until its successor is certain
                begin()
            _save(tokenizer, out / "work" / "tokenizer")
            with _open_engine(engine, workers, out / "work") as do:
                header = run(spec, out.resolve(), files, tokenizer, template, do, begin)
                header["libraries"] = _libraries(spec)
        except InputError:
            if new and not any((out / "work").rglob(COMMIT)):  # no unit was finished, so there is nothing to go on with
                _remove(out)
            raise
        write_atomic(out / "header.json", json.dumps(header, indent=1, ensure_ascii=False))
        clear_leftovers(out)
        commit(out, leave_out=(".lock", "work"))
        _clear_work(out, keep_work)
    return header


def _check(out: Path, read: Sequence[str], request: dict[str, Any], overwrite: bool) -> None:
    check_place(out, read)
    if not overwrite:
        check_request(out, request)


def _begin(out: Path, request: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Note what is asked for; from here on the folder is a store in the making. Shards that fit stay."""
    for name in (COMMIT, "header.json", *LISTS):
        (out / name).unlink(missing_ok=True)
    write_atomic(out / REQUEST, json.dumps(request, indent=1, ensure_ascii=False))
    _save(tokenizer, out / "tokenizer")
    if request["chat_template"] is not None:
        write_atomic(out / "chat_template.jinja", request["chat_template"])


def _save(tokenizer: Tokenizer, folder: Path) -> None:
    """Copy the tokenizer, and nothing of another one that was there. Raises InputError where the copy differs."""
    if folder.exists():
        shutil.rmtree(folder)
    tokenizer.save(folder)
    for entry in folder.iterdir():
        sync(entry)
    with warnings.catch_warnings(action="ignore"):  # what there is to say was said of the original
        copy = load_tokenizer(folder)
    if any(getattr(copy, name) != getattr(tokenizer, name) for name in ("hash", "bos_id", "eos_id")):
        raise InputError(f"{tokenizer.folder}: changed while it was read; run the same command again")


def _libraries(spec: Spec) -> dict[str, str]:
    """Versions of the libraries that decide what the store holds."""
    used = {
        "tokenizers": True,
        "rensa": spec.dedup.near is not None,
        "markdown-it-py": "markdown" in spec.clean,
        "jinja2": spec.chat_template is not None,
        "datatrove": bool(spec.filters.datatrove),
    }
    return {library: version(library) for library, is_used in used.items() if is_used}


def _clear_work(out: Path, keep_work: bool) -> None:
    """Remove the stages' files; also those of a run that was killed after it had committed the store."""
    if not keep_work:
        shutil.rmtree(out / "work", ignore_errors=True)


def _remove(out: Path) -> None:
    """Remove what was written into a folder that was new."""
    for name in OURS - {".lock"}:
        path = out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _open_engine(engine: str, workers: int, work: Path) -> AbstractContextManager[Engine]:
    return ray_engine(workers, work) if engine == "ray" else local_engine(workers)
