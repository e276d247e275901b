"""seedbed analyze tokens: on which tokens one model is better than another."""

from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.analyze.present import MODEL, Data, Out, command_line, documents_option, length_option, present, work
from seedbed.cli.options import Field, OnBad, OnBadPolicy, Overwrite
from seedbed.cli.output import Json
from seedbed.errors import InputError

LENGTH = 1024


def tokens(
    a: Annotated[Path, typer.Argument(metavar="A", help=f"The baseline: {MODEL}.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The model whose gain is asked, with the same tokenizer.")],
    data: Data = None,
    documents: Annotated[int | None, documents_option("all")] = None,
    length: Annotated[int | None, length_option(LENGTH)] = None,
    field: Field = "text",
    on_bad: OnBad = OnBadPolicy.strict,
    show: Annotated[int, typer.Option(min=0, help="Documents to colour token by token.")] = 6,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples behind intervals.")] = 0,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """On which tokens B predicts better than A.

    How the gain is spread, by difficulty, domain and language, and texts coloured by it (S0). Give text that neither
    model was trained on; without --data runs are compared on what their common store holds out.
    """
    with work(out, overwrite) as keep:
        from dataclasses import replace

        from seedbed.analysis.chosen_texts import shared_store
        from seedbed.analysis.provenance import provenance
        from seedbed.analysis.run import versions
        from seedbed.analysis.tokens import analyze, check_same_tokens
        from seedbed.data.progress import spinner
        from seedbed.data.texts import read_texts, texts_hash
        from seedbed.hub.checkpoints import fingerprint
        from seedbed.hub.identity import identity
        from seedbed.hub.models import common_length, open_model
        from seedbed.measure.table import Rows
        from seedbed.report.tokens_page import tokens_page

        length = common_length([a, b], length, LENGTH)
        texts = data or [shared_store([b, a])]
        with spinner(f"{a} and {b}") as tell:
            model_a, model_b = open_model(a), open_model(b)
            if model_a.name == model_b.name:
                model_a, model_b = replace(model_a, name=str(a)), replace(model_b, name=str(b))
            check_same_tokens(model_a, model_b)
            models = [identity(model) for model in (model_a, model_b)]
            if models[0] == models[1]:
                raise InputError(f"{a} and {b}: are the same weights; give two models")
            found = read_texts(texts, model_a.tokenizer, length, documents, field, on_bad.value)
            read = texts_hash(found.texts)
            key = {"analysis": "tokens", "models": models, "texts": read, "show": show, "versions": versions()}
            result, shown = analyze(model_a, model_b, found, length, keep(key), tell, show, seed)
        files = {f"A, {a}": fingerprint(model_a), f"B, {b}": fingerprint(model_b)}
        told = provenance(command_line(), files, ", ".join(map(str, texts)), {"tokens, domains, languages read": read})
        tables = {
            "overall": Rows([result.overall]),
            "bins": result.bins,
            "domains": result.domains,
            "languages": result.languages,
            "documents": result.documents,
            "gaining": result.gaining,
            "losing": result.losing,
        }
        present(result, tokens_page(result, shown, told), tables, out, as_json)
