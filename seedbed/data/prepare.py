"""From raw files to a store, stage by stage. Killed at any moment, the same call goes on with what is not done."""

import json
import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from seedbed.data.filters import make_filter
from seedbed.data.header import FORMAT_VERSION
from seedbed.data.inputs import InputFile, list_inputs
from seedbed.data.pipeline import run
from seedbed.data.ray_engine import ray_engine
from seedbed.data.spec import Spec
from seedbed.data.stages import Engine, local_engine
from seedbed.data.steps import storage_type
from seedbed.data.template import load_template
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, commit, folder_damage, sync, write_atomic
from seedbed.files.lock import folder_lock

REQUEST = "request.json"
LISTS = ("rejects.jsonl", "duplicates.jsonl", "chat_template.jinja")
OURS = {REQUEST, "header.json", COMMIT, ".lock", "work", "tokenizer", "train", "heldout", *LISTS}


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
    made. ``workers`` units are worked on at a time (default: one a core), in processes of this machine or as Ray
    tasks. Raises InputError, before anything is read, for a specification that cannot work; where ``out`` holds
    something else, or a store of another request unless ``overwrite``; at a bad record under on_bad strict; and where
    no document is left.
    """
    out, workers = Path(out), workers or os.cpu_count() or 1
    tokenizer = load_tokenizer(spec.tokenizer)
    tools = any(section.tools is not None for sections in spec.texts().values() for section in sections)
    template = None if spec.chat_template is None else load_template(spec.chat_template, tokenizer, tools)
    make_filter(spec.filters)
    storage_type(spec, tokenizer.vocab_size)
    files = list_inputs(spec.sources)
    request = {
        "format_version": FORMAT_VERSION,
        "spec": spec.model_dump(mode="json"),
        "inputs": {file.path: file.fingerprint for file in files},
        "tokenizer": tokenizer.hash,
        "chat_template": template,
    }
    _check_place(out, files, request, overwrite)
    with folder_lock(out):
        if _is_there(out, request):
            return json.loads((out / "header.json").read_text(encoding="utf-8"))
        _start(out, request, tokenizer)
        with _open_engine(engine, workers, out / "work") as do:
            header = run(spec, out.resolve(), files, tokenizer, template, do)
        write_atomic(out / "header.json", json.dumps(header, indent=1, ensure_ascii=False))
        if not keep_work:
            shutil.rmtree(out / "work")
        commit(out, leave_out=(".lock", "work"))
    return header


def _check_place(out: Path, files: list[InputFile], request: dict[str, Any], overwrite: bool) -> None:
    """Raise InputError where writing to ``out`` would destroy, or seem to be, anything but what is asked for."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder, or move the file away")
    place = out.resolve()
    for path in [*(file.path for file in files), request["spec"]["tokenizer"]]:
        if Path(path).resolve().is_relative_to(place):
            raise InputError(f"{out}: holds the input {path}; choose another name for the store")
    entries = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
    if entries - {".lock"} and not (out / REQUEST).is_file():
        raise InputError(f"{out}: is not a store made here (no {REQUEST}), so it is kept; choose another name")
    if foreign := sorted(entries - OURS):
        raise InputError(f"{out}: holds {foreign[0]}, which was not written with it; move that away first")
    if (out / "header.json").is_file() and not overwrite and (different := _differences(_read_request(out), request)):
        raise InputError(
            f"{out}: is a store of another request: {'; '.join(different[:3])}; choose another name or pass --overwrite"
        )


def _read_request(out: Path) -> Any:
    try:
        return json.loads((out / REQUEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two requests differ, a phrase each."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in [*new, *(key for key in old if key not in new)]
            for line in _differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
        ]
    return [] if old == new else [f"{path} was {_short(old)}, asked is {_short(new)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _is_there(out: Path, request: dict[str, Any]) -> bool:
    return (
        (out / "header.json").is_file() and not _differences(_read_request(out), request) and folder_damage(out) is None
    )


def _start(out: Path, request: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Note what is asked for; from here on the folder is a store in the making. Shards that fit stay."""
    for name in (COMMIT, "header.json", *LISTS):
        (out / name).unlink(missing_ok=True)
    if _differences(_read_request(out), request):
        for name in ("train", "heldout", "tokenizer"):
            shutil.rmtree(out / name, ignore_errors=True)
    write_atomic(out / REQUEST, json.dumps(request, indent=1, ensure_ascii=False))
    tokenizer.save(out / "tokenizer")
    for entry in (out / "tokenizer").iterdir():
        sync(entry)
    if request["chat_template"] is not None:
        write_atomic(out / "chat_template.jinja", request["chat_template"])


def _open_engine(engine: str, workers: int, work: Path) -> AbstractContextManager[Engine]:
    return ray_engine(workers, work) if engine == "ray" else local_engine(workers)
