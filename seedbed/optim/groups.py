"""Which optimizer updates which parameter, decided from the parameter table alone."""

import warnings
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from seedbed.config.optim import OptimConfig
from seedbed.errors import InputError
from seedbed.facts.fact import EMBEDDING_ROLES, ParameterFact
from seedbed.facts.table import canonical
from seedbed.optim.adamw import AdamWFp32
from seedbed.optim.muon import Muon

# Group -> whether it decays. Embeddings and head do; gains, shifts and biases do not.
DECAYS = {"block matrices": True, "other matrices": True, "embeddings": True, "head": True, "norms and biases": False}


def group_of(fact: ParameterFact) -> str:
    """The group of a parameter; a tied head is an embedding. Matrices that are stored otherwise than [d_out, d_in],
    transposed or in stacks, are no block matrices: those go to Muon, whose blocks are rows."""
    if not fact.is_matrix:
        return "norms and biases"
    if fact.role in EMBEDDING_ROLES:
        return "embeddings"
    if fact.role == "head":
        return "head"
    plain = len(fact.shape) == 2 and not fact.transposed
    inside = all(part.role.startswith(("attn.", "mlp.")) for part in fact.parts())
    return "block matrices" if plain and inside else "other matrices"


def optimizer_of(fact: ParameterFact, optim: OptimConfig) -> Literal["adamw", "muon"]:
    """What updates a parameter: Muon has the block matrices under ``optim.name`` muon, and with its option
    ``embeddings`` each table of tokens or positions too, as one matrix [rows, d]; AdamW has the rest.

    Rows without a gradient so far, as of padding, stay as they are under both but for weight decay: they are zero in
    the momentum, and in what is orthogonalized."""
    kind = group_of(fact)
    table = fact.role in ("embed", "pos") and len(fact.shape) == 2 and optim.muon.embeddings == "muon"
    return "muon" if optim.name == "muon" and (kind == "block matrices" or table) else "adamw"


def rate_factor(fact: ParameterFact, base_width: int | None, optimizer: Literal["adamw", "muon"]) -> float:
    """The share of the rate at ``base_width`` that a parameter gets at its own width d, so that its updates change
    activations by the same amount at every width (µP: Yang et al. 2022, S3); 1 without a base width.

    Hidden matrices add up over an input that grows with d: AdamW's entries have the size of the rate, so d of them in
    step grow as d, and the factor is base_width/d. Muon's update has the spectral norm 0.2*sqrt(max(m, n)) times the
    rate, which grows as sqrt(d) however the matrix is shaped, and the factor is sqrt(base_width/d). Embeddings, norms
    and biases add up over nothing, and the head's sum is divided by the output multiplier: their factor is 1. So it is
    for tables under Muon, whose entries change by 0.2 of the rate (root mean square); of a tied one the embedding
    decides (choice), and what it changes as a head falls as sqrt(base_width/d) then.

    d is the width of the stream that the matrix reads or writes (choice); all its sides are taken to grow with it.
    """
    if base_width is None or not fact.is_matrix or fact.role in (*EMBEDDING_ROLES, "head"):
        return 1.0
    share = base_width / (fact.d_out if fact.writes_residual else fact.d_in)
    return share**0.5 if optimizer == "muon" else share


class Optimizers:
    """The optimizers of one model, stepped together; their state is keyed by canonical parameter names.

    State is allocated here rather than at the first step, so that its names and its memory are known from the start.
    """

    def __init__(self, optimizers: list[torch.optim.Optimizer], peak: float):
        self.optimizers = optimizers
        self.peak = peak

    def set_rate(self, factor: float) -> float:
        """Set the rate to ``factor`` times the peak, of each group times its own factor; returns the rate itself."""
        for _, group in self._groups():
            group["lr"] = self.peak * factor * group["rate_factor"]
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


def build_optimizers(
    model: nn.Module, facts: list[ParameterFact], optim: OptimConfig, process_group: dist.ProcessGroup | None = None
) -> Optimizers:
    """Each parameter with its optimizer (:func:`optimizer_of`), at the peak rate.

    One group for each kind and :func:`rate_factor`. A step decays weights by rate times weight_decay; the latter is
    divided by the factor, so that the share is that of the base width at every width (choice; Yang et al. 2022).
    Raises InputError when the facts do not cover each parameter of ``model`` exactly once; warns when parameters are
    kept in less than fp32. The ranks of ``process_group`` share Muon's work.
    """
    parameters = {canonical(name): p for name, p in model.named_parameters(remove_duplicate=False)}
    _check_cover(model, parameters, facts)
    _warn_low_precision(model)
    groups: dict[tuple[str, str, float], dict[str, Any]] = {}
    for fact in facts:
        kind = group_of(fact)
        optimizer = optimizer_of(fact, optim)
        factor = rate_factor(fact.parts()[0], optim.base_width, optimizer)  # blocks of a fused matrix read one input
        empty = {
            "name": kind,
            "rate_factor": factor,
            "lr": optim.lr * factor,
            "weight_decay": optim.weight_decay / factor if DECAYS[kind] else 0.0,
            "params": [],
            "rows": [],
        }
        group = groups.setdefault((optimizer, kind, factor), empty)
        group["params"].append((fact.name, parameters[fact.name]))
        group["rows"].append(tuple(block.rows for block in fact.blocks) or None)
    in_order = sorted(groups.items(), key=lambda item: list(DECAYS).index(item[0][1]))
    muon, adamw = ([group for (name, *_), group in in_order if name == wanted] for wanted in ("muon", "adamw"))
    optimizers: list[torch.optim.Optimizer] = []
    if muon:
        options = optim.muon.model_dump(exclude={"embeddings"})
        optimizers.append(Muon(muon, lr=optim.lr, **options, process_group=process_group))
    if adamw:
        optimizers.append(_adamw(adamw, optim))
    return Optimizers(optimizers, optim.lr)


def _adamw(groups: list[dict[str, Any]], optim: OptimConfig) -> torch.optim.AdamW:
    """Moments are fp32, or fp64 as the weights are."""
    low = any(torch.finfo(parameter.dtype).bits < 32 for group in groups for _, parameter in group["params"])
    kind = AdamWFp32 if low else torch.optim.AdamW
    adamw = kind(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True)
    for group in adamw.param_groups:
        for parameter in group["params"]:
            dtype = torch.promote_types(parameter.dtype, torch.float32)
            adamw.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, dtype=dtype),
                "exp_avg_sq": torch.zeros_like(parameter, dtype=dtype),
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
            f"{len(low)} parameter tensors ({sum(p.numel() for p in low):,} entries) are {low[0].dtype}: an update "
            "below 1/512 of its weight is LOST, one below 1/256 may be, and at small rates that is most of them "
            "(lost_updates in the metrics tells the share); gradients are rounded too. The optimizer's state alone is "
            "fp32. Keep weights in fp32 with train.precision=bf16",
            stacklevel=3,
        )
