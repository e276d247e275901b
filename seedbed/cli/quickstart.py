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
    from seedbed.data.place import check_place
    from seedbed.data.prepare import prepare
    from seedbed.data.spec import spec_from
    from seedbed.data.stdlib import stdlib_records
    from seedbed.files.atomic import folder_damage, require_replaceable, write_atomic

    texts, tokenizer_dir, store_dir = folder / "corpus.jsonl", folder / "tokenizer", folder / "store"
    check_place(store_dir, [str(texts), str(tokenizer_dir)])
    trained = folder_damage(tokenizer_dir) is None
    if not trained:
        require_replaceable(tokenizer_dir, "tokenizer.json")
    vocab_size, seq_len = config.model.vocab_size or VOCAB_SIZE, config.model.max_seq_len
    if not texts.is_file():
        note("1/5 corpus: the prose and source of Python's standard library")
        write_atomic(texts, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in stdlib_records()))
    if not trained:
        note("1/5 tokenizer: byte-level BPE on its training part")
        with open(texts, encoding="utf-8") as lines:
            records = map(json.loads, lines)
            train_tokenizer((r["text"] for r in records if r["split"] == "train"), vocab_size, tokenizer_dir)
    else:
        note(f"1/5 tokenizer: {tokenizer_dir} is there")
    note("2/5 token store: encoding and packing")
    spec = {
        "sources": [{"path": str(texts), "split_field": "split"}],
        "tokenizer": str(tokenizer_dir),
        "packing": {"seq_len": seq_len},
    }
    header = prepare(spec_from(spec, "quickstart"), store_dir)
    for name, stream in header["streams"].items():
        note(f"    {name}: {stream['documents']:,} documents, {stream['bytes']:,} bytes, {stream['tokens']:,} tokens")
    if header["vocab_size"] != vocab_size:
        raise InputError(
            f"{store_dir}: was made for model.vocab_size={header['vocab_size']}, asked is {vocab_size}; choose another "
            "--dir"
        )
