"""seedbed preflight CONFIG"""

import re
import shlex
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.output import Json, Overrides, note, print_json
from seedbed.cli.preflight_parts import balanced, counts, heldout_batch
from seedbed.cli.preflight_text import show
from seedbed.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seedbed.config import Config, InitConfig
    from seedbed.report.preflight import PreflightReport

Arms = Annotated[
    list[str] | None,
    typer.Option("--init", help="An initialization to set beside: a law and options, gamma,gamma=0.5. Repeatable."),
]


MOST_WIDTH = 8192


def preflight(
    path: Annotated[str, typer.Argument(metavar="CONFIG", help="YAML or JSON file.")],
    overrides: Overrides = None,
    init: Arms = None,
    sequences: Annotated[int, typer.Option(min=1, help="Most held-out sequences to measure on.")] = 8,
    widths: Annotated[str | None, typer.Option(help="Widths to fit slopes of the branches over: 64,128,256.")] = None,
    coord_check: Annotated[
        bool,
        typer.Option("--coord-check", help="Compare the changes of 3 steps over widths 64-512, or --widths."),
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write the page with figures to this file.")] = None,
    params_only: Annotated[bool, typer.Option("--params-only", help="Only count parameters; needs no data.")] = False,
    ratio: Annotated[
        float | None, typer.Option("--measure", help="Only find the γ at which each branch is this share of its input.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a configuration will do before it is trained: norms, stream, gradients, first loss, memory, time."""
    from seedbed.config import Config, InitConfig
    from seedbed.config.load import with_init
    from seedbed.files.atomic import write_atomic
    from seedbed.optim.schedule import validate
    from seedbed.report.preflight import preflight_page

    config = Config.load(path, overrides or [])
    validate(config.train.steps, config.optim.schedule)
    if (params_only or ratio is not None) and (init or widths or coord_check or html):
        alone = "--params-only" if params_only else "--measure"
        raise InputError(f"{alone} does one thing: leave out --init, --widths, --coord-check and --html")
    if html is not None and html.is_dir():
        raise InputError(f"--html {html}: is a folder; name the file to write")
    if params_only:
        counts(config, as_json)
        return
    if config.train.init_from is not None:
        raise InputError(
            f"train.init_from={config.train.init_from}: preflight measures initializations, and this run starts from "
            "weights; leave it out with train.init_from=null"
        )
    if ratio is not None:
        balanced(config, ratio, sequences, as_json)
        return
    inits = dict.fromkeys([config.init.model_dump_json(), *(parse_init(text).model_dump_json() for text in init or [])])
    configs = [with_init(config, InitConfig.model_validate_json(told)) for told in inits]  # each one once
    report = measure(configs, sequences, parse_widths(widths), coord_check)
    if html is not None:
        write_atomic(html, preflight_page(report))
        note(f"preflight: {html} has the page")
    if as_json:
        print_json(report_json(report))
    else:
        show(report)


def parse_init(text: str) -> "InitConfig":
    """``"gamma,gamma=0.5"`` -> InitConfig. Raises InputError with a suggestion."""
    from seedbed.config import Config

    law, *options = re.split(r",(?![^{\[]*[}\]])", text)  # commas inside braces belong to an option
    if not all("=" in option for option in options):
        raise InputError(f"--init {text}: write LAW or LAW,option=value, for example gamma,gamma=0.5")
    names = [option.partition("=")[0] for option in options]
    if len(set(names)) < len(names):
        raise InputError(f"--init {text}: gives an option twice")
    try:
        return Config.load(None, [f"init.law={law}", *(f"init.{option}" for option in options)]).init
    except InputError as error:
        raise InputError(f"--init {text}: {error}") from None


def parse_widths(text: str | None) -> list[int]:
    """``"64,128"`` -> [64, 128]. Raises InputError where that is no list of whole numbers, or one is too large."""
    if text is None:
        return []
    try:
        widths = [int(width) for width in text.split(",")]
    except ValueError:
        raise InputError(f"--widths {text}: write whole numbers with commas between, for example 64,128,256") from None
    if max(widths) > MOST_WIDTH:
        raise InputError(f"--widths {text}: models up to {MOST_WIDTH} wide are made; slopes show below that")
    return widths


def measure(
    configs: "list[Config]", sequences: int, widths: "Sequence[int]" = (), coord_check: bool = False
) -> "PreflightReport":
    """Measure the initialization of each configuration on the first held-out sequences of their store.

    They differ in initialization and in what follows from it; memory and time are those of the first.
    """
    from seedbed.analysis.coordcheck import WIDTHS
    from seedbed.analysis.coordcheck import coord_check as check
    from seedbed.analysis.preflight import measure_arm
    from seedbed.analysis.resources import measuring_bytes, memory_parts, resources
    from seedbed.analysis.run import store_summary, versions
    from seedbed.analysis.verdicts import verdicts
    from seedbed.analysis.widths import over_widths
    from seedbed.report.preflight import PreflightReport
    from seedbed.train.setup import resolve

    config, store = resolve(configs[0])
    batch = heldout_batch(config, store, sequences)
    length, train = store.split("heldout").seq_len, store.split("train")
    parts = memory_parts(config, length)
    run_needs, mine = sum(parts.values()), measuring_bytes(config, parts, length, batch.ids.numel())
    note(f"preflight: the run will need about {run_needs / 2**20:,.0f} MiB, this {mine / 2**20:,.0f} MiB")
    arms = []
    for one in configs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they have to say was said of the first
            one, _ = resolve(one)
        # first what may refuse the widths
        slopes, gammas = over_widths(one.model, one.init, widths, batch) if widths else ([], [])
        coordinates = check(one, widths=widths or WIDTHS, split=train) if coord_check else None
        arms.append(replace(measure_arm(one, batch), slopes=slopes, gammas=gammas, coordinates=coordinates))
        note(f"preflight: measured {arms[-1].title}")
    return PreflightReport(
        config=config.dump(),
        command=shlex.join(["seedbed", *sys.argv[1:]]),
        arms=arms,
        verdicts=[verdicts(arm, one) for arm, one in zip(arms, configs, strict=True)],
        resources=resources(config, length, arms[0].first),
        data=store_summary(store),
        versions=versions(),
    )


def report_json(report: "PreflightReport") -> dict[str, Any]:
    return {
        "arms": [
            {
                "init": {"law": arm.plan.law, **arm.plan.options},
                "plan": arm.plan.dump()["rows"],
                "verdicts": [asdict(verdict) for verdict in found],
                "scaling": {branch: asdict(scaling) for branch, scaling in arm.scaling.items()},
                "residual": asdict(arm.residual),
                "budget": [asdict(row) for row in arm.budget],
                "precision": {"tokens": arm.precision_tokens, "layers": [asdict(row) for row in arm.precision]},
                "sink": asdict(arm.sink),
                "first_loss": arm.first.loss,
                "logits": asdict(arm.first.logits),
                "gradients": [asdict(row) for row in arm.first.gradients],
                "lost_updates": [asdict(row) for row in arm.first.lost],
                "widths": [asdict(row) for row in arm.slopes],
                "gammas": [asdict(row) for row in arm.gammas],
                "coordinates": arm.coordinates and {**asdict(arm.coordinates), "flat": arm.coordinates.flat},
            }
            for arm, found in zip(report.arms, report.verdicts, strict=True)
        ],
        "resources": {**asdict(report.resources), "seconds": report.resources.seconds},
    }
