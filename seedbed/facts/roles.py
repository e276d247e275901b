"""What a parameter is: by the type of the module that holds it, and by its name where the type leaves that open."""

from collections.abc import Mapping
from functools import partial

from torch import nn

from seedbed.facts.blocks import declared_blocks
from seedbed.facts.geometry import CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS, is_conv1d
from seedbed.facts.norms import norm_role, of_a_norm
from seedbed.facts.patterns import INTERLEAVED, MAPS, PARAMETERS, QKV, TABLES, Roles, look_up

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def roles_of(name: str, parameter: nn.Parameter, modules: Mapping[str, nn.Module]) -> Roles | None:
    """The role that module type and name tell, the roles of a fused matrix, or None."""
    path, _, attribute = name.rpartition(".")
    owner = modules[path]
    if named := look_up(PARAMETERS, name):
        return named
    if of_a_norm(owner, attribute):
        return norm_role(owner, attribute)
    if attribute == "bias":
        return "bias"
    if attribute != "weight" or isinstance(owner, nn.Embedding):
        named = look_up(TABLES, path if attribute == "weight" else name)
        if named == "pos" and not parameter.requires_grad:
            return "kept"  # a table of sines
        return named or ("embed" if isinstance(owner, nn.Embedding) else None)
    if declared := declared_blocks(owner):
        parent = path.rpartition(".")[0]
        told = [_map_role(f"{parent}.{block}".lstrip("."), modules) for block in declared]
        return tuple(role if isinstance(role, str) else "linear" for role in told)
    named = _map_role(path, modules)
    if isinstance(owner, CONVOLUTIONS + TRANSPOSED_CONVOLUTIONS):
        return named if named in ("patch", "head") else "conv"
    if isinstance(owner, nn.Linear) or is_conv1d(owner):
        return named or "linear"
    return named if named == "moe.router" else None


def _map_role(path: str, modules: Mapping[str, nn.Module]) -> Roles | None:
    """What the table of maps tells of a module: by its path, once that says what PyTorch's own types around it do, and
    where it says nothing by the name of the class around it, as in a ``mixer`` that is attention in one block and a
    feed-forward network in the next."""
    parent_path, _, last = path.rpartition(".")
    parent = modules[parent_path]
    if isinstance(parent, nn.MultiheadAttention):
        path = f"attn.{last}"
    elif isinstance(parent, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        path = f"mlp.{last}"
    elif isinstance(parent, nn.Sequential) and isinstance(modules.get(path), nn.Linear):
        linear = [name for name, child in parent.named_children() if isinstance(child, nn.Linear)]
        path = f"{parent_path}.linear{1 + linear.index(last)}".lstrip(".")
    paths = (path, path.removeprefix(f"{_model_path(modules)}."), f"{type(parent).__name__}.{last}")
    role = next((told for told in map(partial(look_up, MAPS), paths) if told), None)
    if role == "mlp.gate" and hasattr(parent, "experts"):
        return "moe.router"
    return "attn.qkv" if role == QKV and _is_interleaved(parent) else role


def _is_interleaved(attention: nn.Module) -> bool:
    """Whether its fused matrix has q, k and v in turns: by its class, or GPTBigCode's where all heads have keys."""
    return type(attention).__name__ in INTERLEAVED or getattr(attention, "multi_query", None) is False


def _model_path(modules: Mapping[str, nn.Module]) -> str:
    """The path of the model within modules that hold it and nothing else: names are as they would be without those."""
    path = ""
    while True:
        module = modules[path]
        inner = [name for name, child in module.named_children() if _has_parameters(child)]
        if len(inner) != 1 or any(True for _ in module.parameters(recurse=False)) or isinstance(module, CONTAINERS):
            return path
        path = f"{path}.{inner[0]}".lstrip(".")


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())
