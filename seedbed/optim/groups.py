"""Which optimizer updates which parameter, decided from the parameter table alone."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seedbed.config.tree import OptimConfig
from seedbed.errors import InputError
from seedbed.facts.fact import EMBEDDING_ROLES, ParameterFact
from seedbed.facts.table import canonical
from seedbed.optim.muon import Muon

# Group -> whether it decays. Embeddings and head do; gains, shifts and biases do not.
DECAYS = {"block matrices": True, "other matrices": True, "embeddings": True, "head": True, "norms and biases": False}


def group_of(fact: ParameterFact) -> str:
    """The group of a parameter. Only block matrices may go to Muon: a tied head is an embedding and never does."""
    if not fact.is_matrix:
        return "norms and biases"
    if fact.role in EMBEDDING_ROLES:
        return "embeddings"
    if fact.role == "head":
        return "head"
    inside = all(part.role.startswith(("attn.", "mlp.")) for part in fact.parts())
    return "block matrices" if inside else "other matrices"


class Optimizers:
    """The optimizers of one model, stepped together; their state is keyed by canonical parameter names.

    State is allocated here rather than at the first step, so that its names and its memory are known from the start.
    """

    def __init__(self, optimizers: list[torch.optim.Optimizer], peak: float):
        self.optimizers = optimizers
        self.peak = peak

    def set_rate(self, factor: float) -> float:
        """Set every group's rate to ``factor`` times the peak rate; returns that rate."""
        for _, group in self._groups():
            group["lr"] = self.peak * factor
        return self.peak * factor

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Tensor]:
        """``{"<canonical name>.<key>": tensor}`` of the whole state; the tensors themselves, not copies."""
        return {
            f"{name}.{key}": value
            for optimizer, group in self._groups()
            for name, parameter in zip(group["param_names"], group["params"], strict=True)
            for key, value in optimizer.state[parameter].items()
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy ``tensors`` into the state, by name.

        Raises InputError, before anything is changed, when a name is missing, unknown, or of another shape.
        """
        own = self.state_dict()
        problems = [f"{name} is missing" for name in own.keys() - tensors.keys()]
        problems += [f"{name} belongs to no parameter" for name in tensors.keys() - own.keys()]
        problems += [
            f"{name} has shape {list(tensors[name].shape)} instead of {list(own[name].shape)}"
            for name in own.keys() & tensors.keys()
            if tensors[name].shape != own[name].shape
        ]
        if problems:
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise InputError(
                f"optimizer state: {'; '.join(sorted(problems)[:3])}{more}; "
                "resume with the model and optimizer that wrote it, or start anew from its weights (train.init_from)"
            )
        for name, value in own.items():
            value.copy_(tensors[name])

    def rows(self) -> list[dict[str, Any]]:
        """One row a group: group, optimizer, tensors, parameters, lr (now), weight_decay."""
        return [
            {
                "group": group["name"],
                "optimizer": type(optimizer).__name__,
                "tensors": len(group["params"]),
                "parameters": sum(parameter.numel() for parameter in group["params"]),
                "lr": group["lr"],
                "weight_decay": group["weight_decay"],
            }
            for optimizer, group in self._groups()
        ]

    def __str__(self) -> str:
        lines = [f"{'group':<18}{'optimizer':<11}{'tensors':>8}{'parameters':>15}{'lr':>11}{'weight decay':>14}"]
        lines += [
            f"{r['group']:<18}{r['optimizer']:<11}{r['tensors']:>8}{r['parameters']:>15,}{r['lr']:>11.3g}"
            f"{r['weight_decay']:>14g}"
            for r in self.rows()
        ]
        return "\n".join(lines)

    def _groups(self) -> list[tuple[torch.optim.Optimizer, dict[str, Any]]]:
        return [(optimizer, group) for optimizer in self.optimizers for group in optimizer.param_groups]


def build_optimizers(model: nn.Module, facts: list[ParameterFact], optim: OptimConfig) -> Optimizers:
    """Muon for the block matrices and AdamW for the rest, or AdamW for all (``optim.name``), at the peak rate.

    Raises InputError when the facts do not cover each parameter of ``model`` exactly once; warns when parameters are
    kept in less than fp32.
    """
    parameters = {canonical(name): p for name, p in model.named_parameters(remove_duplicate=False)}
    _check_cover(model, parameters, facts)
    _warn_low_precision(model)
    groups: dict[str, dict[str, Any]] = {}
    for fact in facts:
        name = group_of(fact)
        empty = {"name": name, "params": [], "rows": [], "weight_decay": optim.weight_decay if DECAYS[name] else 0.0}
        group = groups.setdefault(name, empty)
        group["params"].append((fact.name, parameters[fact.name]))
        group["rows"].append(tuple(block.rows for block in fact.blocks) or None)
    muon_groups = [groups.pop("block matrices")] if optim.name == "muon" and "block matrices" in groups else []
    optimizers: list[torch.optim.Optimizer] = []
    if muon_groups:
        optimizers.append(Muon(muon_groups, lr=optim.lr, **optim.muon.model_dump()))
    if groups:
        optimizers.append(_adamw([groups[name] for name in DECAYS if name in groups], optim))
    return Optimizers(optimizers, optim.lr)


def _adamw(groups: list[dict[str, Any]], optim: OptimConfig) -> torch.optim.AdamW:
    adamw = torch.optim.AdamW(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True)
    for group in adamw.param_groups:
        for parameter in group["params"]:
            adamw.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return adamw


def _check_cover(model: nn.Module, parameters: dict[str, nn.Parameter], facts: list[ParameterFact]) -> None:
    unknown = [fact.name for fact in facts if fact.name not in parameters]
    covered = [id(parameters[fact.name]) for fact in facts if fact.name in parameters]
    uncovered = [canonical(name) for name, p in model.named_parameters() if id(p) not in set(covered)]
    if unknown or uncovered or len(set(covered)) != len(covered):
        listed = ", ".join((unknown + uncovered)[:3]) or "a tensor twice"
        raise InputError(f"optimizer groups: the facts are not those of this model ({listed}); build them from it")


def _warn_low_precision(model: nn.Module) -> None:
    low = [p for p in model.parameters() if torch.finfo(p.dtype).bits < 32]
    if low:
        warnings.warn(
            f"{len(low)} parameter tensors ({sum(p.numel() for p in low):,} entries) are {low[0].dtype}: "
            "AdamW keeps their moments in it too, and updates below 1/256 of a weight are lost; "
            "keep weights in fp32 and set train.precision=bf16",
            stacklevel=3,
        )
