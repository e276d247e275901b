"""Weights that are copied from a checkpoint instead of drawn: safetensors, read tensor by tensor."""

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.table import canonical
from seedbed.files.atomic import COMMIT, folder_damage, sha256
from seedbed.files.safetensors import Tensors, spellings, weight_files
from seedbed.files.steps import step_folders
from seedbed.init.plan import Plan


@dataclass(frozen=True)
class Copies:
    """The parameters of a plan that are copied, found in a checkpoint."""

    tensors: Tensors
    places: dict[str, str]  # name of a parameter -> its name in the checkpoint
    sources: dict[str, str]  # SHA-256 of each file, by its name

    def read(self, parameter: str) -> Tensor:
        """As it is stored."""
        return self.tensors[self.places[parameter]]


def open_copies(plan: Plan, module: nn.Module) -> Copies:
    """Find every parameter of ``module`` that ``plan`` copies in the checkpoint that its option ``checkpoint`` names.

    Names there may have the prefix of a Transformers base model where those of the module lack it, and the reverse.
    Raises InputError naming all tensors that are missing or of another shape; and where the plan was carried out
    before, with other files.
    """
    copied = {row.parameter: row.tied for row in plan.rows if row.distribution.kind == "copied"}
    if not copied:
        return Copies(Tensors([]), {}, {})
    checkpoint = plan.options.get("checkpoint")
    if not isinstance(checkpoint, str):
        raise InputError(
            f"init: law '{plan.law}' copies {next(iter(copied))}, but has no option checkpoint, its source"
        )
    files = copied_files(Path(checkpoint).expanduser())
    tensors = Tensors(files)
    shapes = {canonical(name): tuple(parameter.shape) for name, parameter in module.named_parameters()}
    prefix = getattr(module, "base_model_prefix", "")
    places, problems = {}, []
    for name, tied in copied.items():
        known = (spelling for own in (name, *tied) for spelling in spellings(own, prefix))
        place = next((spelling for spelling in known if spelling in tensors), None)
        if place is None:
            problems.append(f"{name} is missing")
        elif tensors.shape(place) != shapes[name]:
            problems.append(f"{name} has shape {list(tensors.shape(place))} instead of {list(shapes[name])}")
        else:
            places[name] = place
    if not places:
        raise InputError(
            f"{checkpoint}: none of its {len(tensors)} tensors has a name of the model's; where a library renames them "
            "on loading, load them there, and draw the embeddings alone with only=[...]"
        )
    if problems:
        raise InputError(f"{checkpoint}: {'; '.join(problems)}; the checkpoint must be of the same architecture")
    _check_left_over(checkpoint, tensors, places, module, prefix)
    broken = [name for name, place in places.items() if not _is_finite(tensors[place])]
    if broken:
        raise InputError(f"{checkpoint}: {', '.join(broken)} holds NaN, infinity or whole numbers; nothing was copied")
    sources = {file.name: sha256(file) for file in files}
    if plan.sources and plan.sources != sources:
        raise InputError(f"{checkpoint}: holds other weights than those that were copied before (SHA-256 differs)")
    return Copies(tensors, places, sources)


def _check_left_over(checkpoint: str, tensors: Tensors, places: dict[str, str], module: nn.Module, prefix: str) -> None:
    """What the model has no place for: in a layer it means another architecture, outside (a head) it is told."""
    own = [canonical(name) for name, _ in (*module.named_parameters(remove_duplicate=False), *module.named_buffers())]
    known = {spelling for name in own for spelling in spellings(name, prefix)} | set(places.values())
    left_over = [name for name in tensors if canonical(name) not in known]
    in_layers = [name for name in left_over if re.search(r"\.\d+\.", name) and not name.endswith("inv_freq")]
    if in_layers:
        raise InputError(
            f"{checkpoint}: the model has no place for {in_layers[0]} and {len(in_layers) - 1} more of its layers; "
            "the checkpoint must be of the same architecture"
        )
    if left_over:
        warnings.warn(f"{checkpoint}: not used, the model has no place for it: {', '.join(left_over)}", stacklevel=4)


def _is_finite(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and bool(tensor.isfinite().all())


def copied_files(path: Path) -> list[Path]:
    """The files of a run's newest checkpoint, of a checkpoint's folder (ours or a Transformers one), or a file.

    Raises InputError where there are none, and where a file of ours is damaged.
    """
    if path.is_file() and path.suffix == ".safetensors":
        return [path]
    steps = step_folders(path)
    folder = steps[0] if steps else path
    if (steps or (folder / COMMIT).exists()) and (damage := folder_damage(folder)) is not None:
        raise InputError(f"{folder}: {damage}; name another checkpoint")
    return weight_files(folder)
