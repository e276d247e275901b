"""seedbed train CONFIG"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.output import Json, Overrides, print_json
from seedbed.errors import InputError
from seedbed.parallel.launched import launched

if TYPE_CHECKING:
    from seedbed.config import Config


def load_config(path: str, overrides: list[str]) -> "Config":
    """The configuration, on each rank; an error of one ends all of them."""
    from seedbed.config import Config

    _, size = launched()
    try:
        return Config.load(path, overrides)
    except InputError as error:
        if size == 1:
            raise
        from seedbed.parallel.world import fail_everywhere

        fail_everywhere(error)


def train(
    path: Annotated[str, typer.Argument(metavar="CONFIG", help="YAML or JSON file.")],
    overrides: Overrides = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove the run that is there and start over.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model; the same command on an unfinished run resumes it."""
    config = load_config(path, overrides or [])  # before anything heavy is imported
    from seedbed.api import fit

    run = fit(config, fresh=fresh)
    if launched()[0] > 0:
        return
    if as_json:
        print_json(asdict(run.summary))
    else:
        print(run.summary)
