"""What will this configuration do, before it is trained? Draws it, looks at it, and makes one step."""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from statistics import fmean

import torch
from torch import Tensor, nn

from seedbed.analysis.resources import timed_precision
from seedbed.analysis.scaling import branch_scaling
from seedbed.config import Config, InitConfig, ModelConfig
from seedbed.config.model import AttentionConfig
from seedbed.config.optim import OptimConfig
from seedbed.data.split import IGNORED, Batch
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact, in_order
from seedbed.facts.table import parameter_facts, parts_of
from seedbed.init import InitReport, apply_plan, make_plan
from seedbed.measure.budget import measure_budget, predicted_budget
from seedbed.measure.gradients import gradient_rows
from seedbed.measure.losses import LogitStats, logit_stats
from seedbed.measure.precision import bf16_errors, lost_share
from seedbed.measure.residual import residual_report
from seedbed.measure.sink import sink_report
from seedbed.model import Decoder
from seedbed.optim.groups import build_optimizers
from seedbed.parallel.world import pick_device
from seedbed.report.preflight_rows import Arm, FirstStep, LostRow
from seedbed.train.objective import cross_entropy_and_z

PRECISION_TOKENS = 256  # of one sequence: the bf16 pass keeps the states of all layers, twice
LOGIT_TOKENS = 256  # about so many show the scale of the logits; those of every token might not fit
WARM_UP_TOKENS = 16
LOST_ENTRIES = 2**18  # about so many of each matrix, in evenly spaced rows, show the share of updates lost
FP32_MAX = 2.0**128


def measure_arm(config: Config, batch: Batch) -> Arm:
    """Draw the model of ``config`` as its run would, measure it on ``batch``, and make one step on it.

    Raises InputError where the scale is so large that the first forward pass is not finite.
    """
    device = pick_device(config.train.device)
    model = Decoder(config.model)
    facts = parameter_facts(model)
    plan = make_plan(facts, config.init)
    receipt = apply_plan(model, plan, config.run.seed)
    model.to(device)
    batch = Batch(*(x.to(device) for x in batch))
    ids, _, doc_ids, positions = batch
    residual = residual_report(model, ids, doc_ids, positions)
    # a norm squares what it reads in fp32; the report does so in fp64
    highest = max(norm.second_moment for norm in residual.norms)
    if not (math.isfinite(residual.flow) and highest <= FP32_MAX):
        raise InputError(f"init: {plan.title}: the first forward pass overflows fp32; choose a smaller scale")
    budget = []
    if config.model.norm_placement == "pre":
        predicted = predicted_budget(config.model, drawn_std(facts, receipt))
        budget = measure_budget(model, ids, doc_ids, predicted, positions)
    few = [x[:1, :PRECISION_TOKENS] for x in (ids, doc_ids, positions)]
    return Arm(
        title=plan.title,
        plan=plan,
        scaling=branch_scaling(config.model, config.init),
        residual=residual,
        budget=budget,
        precision=bf16_errors(model, *few),
        precision_tokens=few[0].numel(),
        sink=sink_report(model, ids, doc_ids, positions),
        first=first_step(model, facts, config, batch),  # last: the weights change
    )


def drawn_std(facts: list[ParameterFact], receipt: InitReport) -> dict[tuple[int, str], float]:
    """(layer, role) -> std of the matrices in the layers: the target where it is drawn, else what it measures."""
    parts = [part for fact in facts for part in fact.parts()]
    rows = zip(parts, receipt.plan.rows, receipt.rows, strict=True)
    return {
        (part.layer, part.role): planned.distribution.std if planned.distribution.is_drawn else drawn.std
        for part, planned, drawn in rows
        if part.layer is not None and part.is_matrix
    }


def first_step(model: Decoder, facts: list[ParameterFact], config: Config, batch: Batch) -> FirstStep:
    """Loss and gradients of ``model`` on ``batch``, and one timed optimizer step at the peak rate, clipped as the run
    is. Precision is the run's, on a CPU fp32; not compiled. The weights of ``model`` change.
    """
    ids, targets, doc_ids, positions = batch
    supervised = int((targets != IGNORED).sum())
    bf16 = timed_precision(config, ids.device.type) == "bf16"
    autocast = torch.autocast(ids.device.type, torch.bfloat16) if bf16 else nullcontext()
    optimizers = build_optimizers(model, facts, config.optim)

    def forward_backward(tokens: int) -> tuple[Tensor, Tensor]:
        """The mean loss of the first ``tokens`` of each row, and the states [N, D] that the head reads; gradients are
        those of the z-loss too."""
        with autocast:
            hidden = model(ids[:, :tokens], doc_ids[:, :tokens], hidden=True, positions=positions[:, :tokens])
            head, z_loss = model.head_weight, config.train.z_loss
            loss, z = cross_entropy_and_z(hidden, head, targets[:, :tokens], 1 / supervised, z_loss)
        loss.backward()
        return loss.detach() - z, hidden.detach().flatten(0, 1)

    forward_backward(WARM_UP_TOKENS)  # kernels and memory are there when the clock runs
    _warm_up(config.optim, ids.device)
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.zero_()
    began = _now(ids.device)
    loss, hidden = forward_backward(ids.shape[1])
    pass_seconds = _now(ids.device) - began

    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    grads = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    pairs = zip(parts_of(facts, weights), parts_of(facts, grads), strict=True)
    gradients = gradient_rows((part, weight, gradient) for (part, weight), (_, gradient) in pairs)
    logits = _logits(hidden, model.head_weight)
    before = {part.name: weight.clone() for part, weight in _some_rows(model, facts)}
    began = _now(ids.device)
    nn.utils.clip_grad_norm_(model.parameters(), config.train.clip_norm or float("inf"))
    optimizers.step()
    update_seconds = _now(ids.device) - began
    return FirstStep(
        tokens=ids.numel(),
        loss=float(loss),
        logits=logits,
        gradients=gradients,
        lost=_lost(model, facts, before),
        pass_seconds=pass_seconds,
        update_seconds=update_seconds,
    )


def _warm_up(optim: OptimConfig, device: torch.device) -> None:
    """A step of a tiny model: the first one of a process loads what optimizers need, for seconds."""
    model = Decoder(ModelConfig(vocab_size=8, d_model=8, n_layers=1, attention=AttentionConfig(n_heads=1)))
    facts = parameter_facts(model)
    apply_plan(model, make_plan(facts, InitConfig(law="normal")), 0)
    model.to(device)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    build_optimizers(model, facts, optim).step()


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _logits(hidden: Tensor, head: Tensor) -> LogitStats:
    some = hidden[:: max(1, len(hidden) // LOGIT_TOKENS)]
    return logit_stats(some.float() @ head.detach().T)


def _some_rows(model: Decoder, facts: list[ParameterFact]) -> Iterator[tuple[ParameterFact, Tensor]]:
    """Every matrix of ``model`` with evenly spaced rows of it, about LOST_ENTRIES entries; views."""
    for part, weight in parts_of(facts, {name: p.detach() for name, p in model.named_parameters()}):
        if part.is_matrix:
            yield part, weight[:: -(-weight.numel() // LOST_ENTRIES)]


def _lost(model: Decoder, facts: list[ParameterFact], before: dict[str, Tensor]) -> list[LostRow]:
    """By role, the mean over its matrices, which are of one size."""
    shares: dict[str, list[float]] = {}
    for part, after in _some_rows(model, facts):
        shares.setdefault(part.role, []).append(lost_share(before[part.name], after - before[part.name]))
    return [LostRow(role, fmean(shares[role])) for role in in_order(shares)]
