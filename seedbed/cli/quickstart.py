"""seedbed quickstart: the main job, from the text that comes with Python to a trained, inspected model."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.output import Json, Overrides, finite, note, print_json
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.config import Config

VOCAB_SIZE = 4096  # where the overrides set no model.vocab_size
RECIPE = Path(__file__).parent.parent / "recipes" / "cpu.yaml"


def quickstart(
    overrides: Overrides = None,
    folder: Annotated[Path, typer.Option("--dir", help="Where everything is kept.")] = Path("runs/quickstart"),
    as_json: Json = False,
) -> None:
    """Corpus, tokenizer, store, preflight, training, report: minutes on two cores.

    Killed at any moment, the same command goes on: tokenizer and store are kept once they are whole, training resumes
    from its last checkpoint.
    """
    from dataclasses import asdict

    from seedbed.api import fit
    from seedbed.cli.preflight import measure, parse_init, report_json
    from seedbed.cli.preflight_text import show
    from seedbed.config.load import with_init
    from seedbed.files.atomic import write_atomic
    from seedbed.report.preflight import preflight_page

    config = recipe_config(folder, overrides or [])
    corpus(folder, config)
    note("\n3/5 preflight: what each initialization does, before training")
    inits = [parse_init(text) for text in ("gpt2", "gamma,gamma=0.5", "gamma,gamma=1.0")]
    report = measure([with_init(config, init) for init in inits], sequences=4)
    show(report, stderr=as_json)
    write_atomic(folder / "preflight.json", json.dumps(finite(report_json(report)), indent=1))
    write_atomic(folder / "preflight.html", preflight_page(report))
    note(f"    kept in {folder / 'preflight.json'} and {folder / 'preflight.html'}")
    note("\n4/5 training")
    run = fit(config)
    note("\n5/5 done")
    if as_json:
        print_json({"preflight": report_json(report), "run": asdict(run.summary)})
    else:
        print(run.summary)
        print(f"preflight {folder / 'preflight.html'}")


def recipe_config(folder: Path, overrides: list[str]) -> "Config":
    """recipes/cpu.yaml with its paths inside ``folder``; refused here, before any work, where its parts do not fit."""
    from seedbed.config import Config
    from seedbed.optim.schedule import validate

    # quoted: a folder's name may hold what YAML has a meaning for
    store, run = (json.dumps(str(folder / name), ensure_ascii=False) for name in ("store", "run"))
    config = Config.load(str(RECIPE), [f"data.store={store}", f"run.dir={run}", *overrides])
    validate(config.train.steps, config.optim.schedule)
    return config


def corpus(folder: Path, config: "Config") -> None:
    """Stages 1 and 2: documents, tokenizer and store, each kept where it is whole."""
    from seedbed.data.bpe import train_tokenizer
    from seedbed.data.stdlib import stdlib_documents
    from seedbed.data.store import Store, prepare
    from seedbed.data.tokenizer import load_tokenizer
    from seedbed.files.atomic import folder_damage, require_replaceable

    tokenizer_dir, store_dir = folder / "tokenizer", folder / "store"
    kept = {path: folder_damage(path) is None for path in (tokenizer_dir, store_dir)}
    for path, marker in ((tokenizer_dir, "tokenizer.json"), (store_dir, "header.json")):
        if not kept[path]:
            require_replaceable(path, marker)
    vocab_size, seq_len = config.model.vocab_size or VOCAB_SIZE, config.model.max_seq_len
    documents = None
    if not kept[tokenizer_dir]:
        note("1/5 tokenizer: byte-level BPE on the prose and source of Python's standard library")
        documents = list(stdlib_documents())
        train_tokenizer((d.text for d in documents if d.split != "heldout"), vocab_size, tokenizer_dir)
    else:
        note(f"1/5 tokenizer: {tokenizer_dir} is there")
    if not kept[store_dir]:
        note("2/5 token store: encoding and packing")
        prepare(documents or stdlib_documents(), load_tokenizer(tokenizer_dir), store_dir, seq_len)
    else:
        note(f"2/5 token store: {store_dir} is there")
    header = Store(store_dir).header
    for name, part in header["splits"].items():
        note(f"    {name}: {part['documents']:,} documents, {part['bytes']:,} bytes, {part['tokens']:,} tokens")
    for what, there, asked in (
        ("model.max_seq_len", header["seq_len"], seq_len),
        ("model.vocab_size", header["vocab_size"], vocab_size),
    ):
        if there != asked:
            raise InputError(f"{store_dir}: was made for {what}={there}, asked is {asked}; choose another --dir")
