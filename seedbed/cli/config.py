"""seedbed config show | schema"""

from typing import Annotated

import typer

from seedbed.cli.output import Json, Overrides, print_json

app = typer.Typer(no_args_is_help=True)


@app.command()
def show(
    path: Annotated[str | None, typer.Argument(metavar="[CONFIG]", help="YAML or JSON file.")] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Print the complete configuration that a file and overrides resolve to."""
    from seedbed.config import Config
    from seedbed.config.load import to_yaml
    from seedbed.optim.schedule import validate

    if path is not None and "=" in path:
        path, overrides = None, [path, *(overrides or [])]
    config = Config.load(path, overrides or [])
    validate(config.train.steps, config.optim.schedule)
    print_json(config.dump()) if as_json else print(to_yaml(config), end="")


@app.command()
def schema(as_json: Json = False) -> None:
    """Print the JSON Schema of a configuration; the options of each law are in it."""
    from seedbed.config.schema import schema as config_schema

    print_json(config_schema())
