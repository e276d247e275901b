"""seedbed analyze cohort: the scales of trained models, for the laws that read them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.analyze.present import MODELS, command_line, interruptible
from seedbed.cli.options import Overwrite, require_new
from seedbed.cli.output import Json, console, note, print_json, table
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.laws.cohort import Cohort, Curve


def cohort(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(metavar="CHECKPOINT", help=f"{MODELS}."),
    ],
    *,
    remark: Annotated[str, typer.Option("--note", help="Kept in the file: how the checkpoints came about.")] = "",
    out: Annotated[Path, typer.Option("-o", "--out", help="Cohort to write (JSON).")],
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """How trained models are scaled, as a file that laws read.

    Scale and effective rank per component over relative depth, mean and spread over checkpoints (S2). The laws
    magnitude, magnitude+spectrum and realistic read the file: init.cohort=FILE.
    """
    from seedbed.analysis.cohort import measure, pool
    from seedbed.data.progress import spinner
    from seedbed.files.atomic import write_atomic

    require_new(out, overwrite, checkpoints)
    if out.is_dir():
        raise InputError(f"{out}: is a folder; name the file to write")
    measured = []
    with interruptible(lambda: "nothing is kept"):
        for place, path in enumerate(checkpoints, 1):
            with spinner(f"{path} ({place} of {len(checkpoints)})") as say:
                measured.append(measure(path, say))
    result = pool(measured, remark, command_line())
    write_atomic(out, result.to_json())
    for member in result.members:
        for line in member.left_out:
            note(f"left out of {member.name}: {line}")
    if as_json:
        print_json({"cohort": str(out), **result.model_dump(mode="json")})
    else:
        count = "1 checkpoint" if len(measured) == 1 else f"{len(measured)} checkpoints"
        print(f"{out}: a cohort of {count}; use it with init.law=magnitude init.cohort={out}")
        console().print(_table(result))


def _table(result: "Cohort"):
    """RMS and effective rank / r of each component at the first, middle and last relative depth."""
    ends = (0, len(result.depth) // 2, len(result.depth) - 1)
    rows = [
        [name, str(one.checkpoints), *(_at(curve, i) for curve in (one.rms, one.rank_share) for i in ends)]
        for name, one in result.components.items()
    ]
    places = [f"{what} at z = {z}" for what in ("RMS", "effective rank / r") for z in ("0", "½", "1")]
    return table("mean ± standard deviation over checkpoints", ["component", "checkpoints", *places], rows)


def _at(curve: "Curve", index: int) -> str:
    return f"{curve.mean[index]:.4f}" + ("" if curve.std is None else f" ± {curve.std[index]:.4f}")
