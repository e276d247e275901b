"""`seedbed analyze`: one command a question to checkpoints and runs; heavy imports wait inside the commands."""

import typer

from seedbed.cli.analyze.attention import attention
from seedbed.cli.analyze.cohort import cohort
from seedbed.cli.analyze.compare import compare
from seedbed.cli.analyze.dynamics import dynamics
from seedbed.cli.analyze.ifd import ifd
from seedbed.cli.analyze.residual import residual
from seedbed.cli.analyze.tokens import tokens
from seedbed.cli.analyze.weights import weights

app = typer.Typer(help="Look inside models: weights, and what they do with text.", no_args_is_help=True)
for command in (
    attention,
    cohort,
    compare,
    dynamics,
    ifd,
    residual,
    tokens,
    weights,
):  # fmt: skip
    app.command()(command)
