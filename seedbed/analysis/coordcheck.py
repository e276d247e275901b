"""The coordinate check of µP (Yang et al. 2022; S3): train a few steps at several widths and compare the changes.

An activation's change is its RMS distance, over the tokens of one batch and over features, from what it was before
training. Where it is the same at every width, learning rates tuned at one width hold at others; where it grows with the
width, a wider model is less stable at the same rate, and where it falls, a part of it learns less.
"""

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seedbed.analysis.scaling import at_width, family_of
from seedbed.config import Config, InitConfig
from seedbed.config.load import from_tree, with_init
from seedbed.config.parametrization import forget
from seedbed.data.split import IGNORED, Batch, Split
from seedbed.errors import GuardStop, InputError
from seedbed.facts.table import parameter_facts
from seedbed.init import Plan, apply_plan, make_plan
from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder
from seedbed.optim.groups import build_optimizers
from seedbed.report.preflight_rows import ChangeRow, CoordCheck
from seedbed.train.objective import chunked_cross_entropy

WIDTHS = (64, 128, 256, 512)
SEQUENCES, LENGTH, SEEDS = 4, 32, 2  # (choice) the check of a usual vocabulary takes less than a minute
BRANCHES = (".attn", ".mlp")


def coord_check(
    config: Config,
    init: InitConfig | None = None,
    widths: Sequence[int] = WIDTHS,
    steps: int = 3,
    seeds: int = SEEDS,
    split: Split | None = None,
) -> CoordCheck:
    """Train ``config``, drawn by ``init`` (its own without), for ``steps`` steps at each width (:func:`variant`).

    All steps are made on one batch, the first windows of ``split`` cut to ``LENGTH`` tokens or random ids without one,
    by the configured optimizer at its peak rate, in fp32 on the CPU, without clipping or weight decay. Raises
    InputError without a vocabulary and for widths that are not multiples of the smallest or fewer than two; GuardStop
    where a change is not finite, and where nothing changes.
    """
    widths = family_of(widths)
    vocab = config.model.vocab_size
    if vocab is None:
        raise InputError("model.vocab_size is not set; set it, or data.store, which has one")
    config = config if init is None else with_init(config, init)
    batch = _batch(split, vocab)
    variants = [variant(config, width, widths[0]) for width in widths]
    runs = [[_trained(variant, seed, batch, steps) for seed in range(seeds)] for variant in variants]
    rows = [
        _row(name, step, widths, np.array([[run[step - 1][name] for run in of_width] for of_width in runs]))
        for name in runs[0][0][0]
        for step in range(1, steps + 1)
    ]
    if all(row.slope is None for row in rows):
        raise GuardStop(f"coordinate check: {steps} steps change nothing; every gradient is 0, or lost in rounding")
    return CoordCheck(
        title=Plan(config.init.law, config.init.options, ()).title,
        optimizer=config.optim.name,
        lr=config.optim.lr,
        data="random ids" if split is None else f"the first windows of split {split.name}",
        tokens=batch.ids.numel(),
        seeds=seeds,
        widths=tuple(widths),
        rows=tuple(rows),
    )


def variant(config: Config, width: int, smallest: int) -> Config:
    """``config`` with its model :func:`at_width`, and the multipliers and rates that go with that under ``mup``."""
    tree = config.dump()
    tree["model"] = at_width(config.model, width, smallest).model_dump(mode="json")
    if config.init.law == "mup":
        forget(tree)
    return from_tree(tree, "coordinate check")


def changes(model: Decoder, initial: Decoder, batch: Batch) -> dict[str, float]:
    """The change of each activation from ``initial`` to ``model``, by name, in the order of the forward pass.

    Of a branch also what its own weights change, apart from what comes with its input: ``initial``'s branch is given
    the input of ``model``'s.
    """
    moved: dict[str, Tensor] = {}
    with evaluating(model), evaluating(initial):
        before, after = _passed(initial, batch), _passed(model, batch)
        for name, (args, out) in after.items():
            moved[name] = out - before[name][1]
            if name.endswith(BRANCHES):
                moved[f"{name} weights"] = out - initial.get_submodule(name)(*args)
    return {name: change.square().mean().sqrt().item() for name, change in moved.items()}


def _passed(model: Decoder, batch: Batch) -> dict[str, tuple[tuple[Any, ...], Tensor]]:
    """Arguments and result of each branch and of the last norm, and with none the embedded input and the logits."""
    passed: dict[str, tuple[tuple[Any, ...], Tensor]] = {}

    def enter(_: nn.Module, args: tuple[Any, ...]) -> None:
        passed["embedded input"] = (), args[0]

    def leave(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        return lambda _, args, out: passed.update({name: (args, out)})

    with ExitStack() as stack:
        stack.callback(model.layers[0].register_forward_pre_hook(enter).remove)
        for name, module in model.named_modules():
            if name.endswith(BRANCHES) or module is model.norm:
                stack.callback(module.register_forward_hook(leave(name)).remove)
        passed["logits"] = (), model(batch.ids, batch.doc_ids, positions=batch.positions)
    return passed


def _batch(split: Split | None, vocab: int) -> Batch:
    if split is not None:
        return Batch(*(x[:, :LENGTH] for x in split.windows(range(min(SEQUENCES, len(split))))))
    ids = torch.randint(vocab, (SEQUENCES, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    doc_ids = torch.zeros(SEQUENCES, LENGTH, dtype=torch.int64)
    return Batch(ids[:, :-1], ids[:, 1:], doc_ids, torch.arange(LENGTH).expand_as(doc_ids))


def _trained(config: Config, seed: int, batch: Batch, steps: int) -> list[dict[str, float]]:
    """The change of each activation after each step."""
    model = Decoder(config.model)
    facts = parameter_facts(model)
    apply_plan(model, make_plan(facts, config.init), seed)
    optimizers = build_optimizers(model, facts, config.optim.model_copy(update={"weight_decay": 0.0}))
    initial, n_targets, result = copy.deepcopy(model), int((batch.targets != IGNORED).sum()), []
    for step in range(1, steps + 1):
        hidden = model(batch.ids, batch.doc_ids, hidden=True, positions=batch.positions)
        chunked_cross_entropy(hidden, model.head_weight, batch.targets, scale=1 / n_targets).backward()
        optimizers.step()
        optimizers.zero_grad()
        result.append(changes(model, initial, batch))
        broken = next((name for name, change in result[-1].items() if not math.isfinite(change)), None)
        if broken:
            raise GuardStop(
                f"coordinate check: at width {config.model.d_model} {broken} is not finite after step {step}; "
                "a lower optim.lr often helps"
            )
    return result


def _row(name: str, step: int, widths: Sequence[int], changes: np.ndarray) -> ChangeRow:  # [widths, seeds]
    if not changes.all():
        return ChangeRow(name, step, tuple(changes.mean(1).tolist()), None)
    logs = np.log(changes).mean(1)
    slope = np.polyfit(np.log(widths), logs, 1)[0]
    return ChangeRow(name, step, tuple(np.exp(logs).tolist()), float(slope))
