"""seedbed analyze tokens: on which tokens one model is better than another."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import Data, Out, command_line, present, work
from seedbed.cli.options import Overwrite
from seedbed.cli.output import Json
from seedbed.errors import InputError

LENGTH = 1024


def tokens(
    a: Annotated[Path, typer.Argument(metavar="A", help="The baseline: a run, a checkpoint, a Hugging Face folder.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The model whose gain is asked, with the same tokenizer.")],
    data: Data,
    texts: Annotated[
        int | None, typer.Option("--texts", min=1, help="Documents to read, at most.  [default: all]")
    ] = None,
    length: Annotated[
        int, typer.Option(min=2, help="Tokens of a document to read, at most; fewer where a model reads fewer.")
    ] = LENGTH,
    show: Annotated[int, typer.Option(min=0, help="Documents to colour token by token.")] = 6,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples behind intervals.")] = 0,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Gain of B over A on the same tokens: how it is spread, by difficulty, domain and language, and texts coloured by
    it (S0).

    Give text that neither model was trained on.
    """
    from dataclasses import replace

    from seedbed.analysis.checkpoints import fingerprint, open_checkpoint
    from seedbed.analysis.models import open_model
    from seedbed.analysis.texts import read_texts
    from seedbed.analysis.tokens import analyze, check_same_tokens, texts_hash
    from seedbed.measure.table import Rows
    from seedbed.report.tokens_page import tokens_page

    model_a, model_b = open_model(a), open_model(b)
    if model_a.name == model_b.name:
        model_a, model_b = replace(model_a, name=str(a)), replace(model_b, name=str(b))
    check_same_tokens(model_a, model_b)
    length = min(length, model_a.max_length, model_b.max_length)
    found = read_texts(data, model_a.tokenizer, length, texts)
    weights = [fingerprint(open_checkpoint(path)) for path in (a, b)]
    if weights[0] == weights[1]:
        raise InputError(f"{a} and {b}: are the same weights; give two models")
    read = texts_hash(found.texts)
    key = {"weights": weights, "texts": read, "show": show, "version": version("seedbed")}
    with work(out, overwrite, key, f"{a} and {b}") as (parts, tell):
        result, shown = analyze(model_a, model_b, found, length, parts, tell, show, seed)
        provenance = {
            "A": _files(a, weights[0]),
            "B": _files(b, weights[1]),
            "data": ", ".join(map(str, data)),
            "tokens, domains and languages read (SHA-256)": read,
            "versions": f"seedbed {version('seedbed')}, torch {version('torch')}",
            "command": command_line(),
        }
        tables = {
            "overall": Rows([result.overall]),
            "bins": result.bins,
            "domains": result.domains,
            "languages": result.languages,
            "documents": result.documents,
            "gaining": result.gaining,
            "losing": result.losing,
        }
        present(result, tokens_page(result, shown, provenance), tables, out, as_json, provenance=provenance)


def _files(path: Path, hashes: dict[str, str]) -> str:
    return f"{path}: " + ", ".join(f"{name} ({value})" for name, value in hashes.items())
