"""What do the measurements of an initialization mean? One sentence each, with its numbers and what to do about it.

Thresholds are ours (choice); each stands beside the rule that reads it.
"""

import math
from collections.abc import Callable, Iterator

from seedbed.config import Config
from seedbed.facts.fact import EMBEDDING_ROLES
from seedbed.report.preflight_rows import FLAT_SLOPE, Arm, Verdict
from seedbed.report.render import number


def verdicts(arm: Arm, config: Config) -> list[Verdict]:
    """All that can be said of ``arm``, measured under ``config``: warnings first, what is well last."""
    found = [verdict for rule in RULES for verdict in rule(arm, config)]
    return sorted(found, key=lambda verdict: ("warning", "note", "good").index(verdict.level))


MASKING_WARNS, MASKING_NOTED = 0.5, 0.05


def masking(arm: Arm, config: Config) -> Iterator[Verdict]:
    """Share of epsilon in what the norms divide by (S0 section 2.1)."""
    norms = sorted(arm.residual.norms, key=lambda norm: norm.masking)
    least, most, eps = norms[0], norms[-1], config.model.norm_eps
    numbers = {"least": least.masking, "most": most.masking, "norm": most.name, "norm_eps": eps}
    if most.masking < MASKING_NOTED:
        yield Verdict("good", f"ε masks at most {percent(most.masking)} of the scale in any norm.", numbers)
        return
    level = "warning" if most.masking >= MASKING_WARNS else "note"
    threshold = MASKING_WARNS if level == "warning" else MASKING_NOTED
    above = sum(norm.masking >= threshold for norm in norms)
    if above == len(norms):
        what = f"ε masks {spread(least.masking, most.masking)} of the scale in every norm"
    else:
        what = (
            f"ε masks {percent(threshold)} of the scale or more in {above} of {len(norms)} norms, "
            f"most in {most.name}, {percent(most.masking)}"
        )
    # the second moment of the input that is masked most: an epsilon of a hundredth of it masks 1 %
    safe_eps = min(1e-12, 10.0 ** math.floor(math.log10(max(most.second_moment, 1e-35) / 100)))
    numbers |= {"safe_norm_eps": safe_eps}
    advice = f"lower model.norm_eps from {eps:g} to {safe_eps:g}"
    gamma = -math.log(9 * eps) / (2 * math.log(config.model.d_model))  # masks 10 % of an input of std d^-gamma
    if gamma > 0 and config.model.norm_placement == "pre":  # else the norms read branches, not the embedding
        numbers |= {"gamma": gamma}
        advice += f", or embed at γ below {math.floor(100 * gamma) / 100:g} (std above {number(3 * eps**0.5, 2)})"
    yield Verdict(level, f"{what}: {advice}.", numbers)


BRANCH_SMALL, BRANCH_LARGE, EXPONENT = 0.05, 2.0, 0.05


def branches(arm: Arm, config: Config) -> Iterator[Verdict]:
    """Each branch against the stream that it is added to, and what becomes of it at other widths (S0 section 5)."""
    for branch, field, name in (("attention", "attn", "attention"), ("mlp", "mlp", "MLP")):
        shares = [getattr(layer, field) for layer in arm.residual.layers]
        small, large = max(shares) < BRANCH_SMALL, max(shares) > BRANCH_LARGE
        numbers: dict = {"least": min(shares), "most": max(shares), "width": config.model.d_model}
        text, advice = f"The {name} branch adds {spread(min(shares), max(shares))} of the stream", ""
        if small or large:
            what, raised = "its maps", small
            if config.model.norm_placement == "post":  # the branch has the size of its norm's gain
                what, raised = "the embedding", large
            advice = f": {'raise' if raised else 'lower'} the std of {what}"
        scaling = arm.scaling.get(branch)
        if scaling is not None:
            numbers |= {"exponent": scaling.exponent, "balancing_gamma": scaling.balancing}
        if scaling is not None and abs(scaling.exponent) > EXPONENT:
            text += f" and {'grows' if scaling.exponent > 0 else 'shrinks'} with width as d^{scaling.exponent:.2g}"
            if "gamma" in arm.plan.options:
                gamma = fraction(scaling.balancing)
                advice = f": γ {gamma} in its {scaling.maps} maps would balance it (init.law=balanced)"
            else:  # a std that does not follow the width
                advice = ": choose the std anew at another width, or init.law=balanced, which keeps the share"
        elif scaling is not None:
            text += ", at every width alike"
        level = "warning" if small or large else "note" if advice else "good"
        yield Verdict(level, f"{text}{advice}.", numbers)


GROWTH = 10.0


def growth(arm: Arm, config: Config) -> Iterator[Verdict]:
    """What all layers together make of the embedded input: the residual flow (S0 section 2.4)."""
    flow, depth = arm.residual.flow, config.model.n_layers
    text = f"Over {depth} layers the stream moves by {number(flow)} times the embedded input"
    numbers = {"flow": flow, "layers": depth}
    if flow <= GROWTH:
        yield Verdict("good", f"{text}.", numbers)
        return
    advice = f"raise the embedding’s std {number(flow / GROWTH)} times"
    if config.model.norm_placement == "pre":
        advice += ", or lower those of attn.o and mlp.down as much"
    yield Verdict("warning", f"{text}, which is {percent(1 / flow)} of it at the end: {advice}.", numbers)


BUDGET = 2.0


def budget(arm: Arm, config: Config) -> Iterator[Verdict]:
    """S1's algebra against the measurement, where they differ most."""
    if config.model.norm_placement != "pre":
        text = (
            "No variance budget: S1’s algebra takes a branch to read a norm, and here norms stand behind the branches."
        )
        yield Verdict("note", text, {"norm_placement": config.model.norm_placement})
        return
    # the rows of the stream take its input to have variance 1, as no embedding has: they would always differ
    branch = [row for row in arm.budget if row.quantity not in ("per block", "after L blocks")]
    rows = [(row, row.measured / row.predicted) for row in branch if row.predicted and row.measured]
    if not rows:
        return
    row, ratio = max(rows, key=lambda pair: abs(math.log(pair[1])))
    factor = max(ratio, 1 / ratio)
    numbers = {"quantity": row.quantity, "predicted": row.predicted, "measured": row.measured}
    if factor <= BUDGET:
        text = f"The variance budget is right within a factor of {factor:.2f}, in “{row.quantity}”."
        yield Verdict("good", text, numbers)
        return
    averaging = row.quantity == "attention out"
    reason = "it ignores that attention averages over tokens" if averaging else "its normal variables are not these"
    yield Verdict(
        "note",
        f"The variance budget predicts {number(row.predicted)} in “{row.quantity}”, and {number(row.measured)} is "
        f"measured, {number(factor, 2)} times {'more' if ratio > 1 else 'less'}: "
        f"{reason}; go by the measurement.",
        numbers,
    )


LOSS_WARNS, LOSS_NOTED = 0.5, 0.1


def first_loss(arm: Arm, config: Config) -> Iterator[Verdict]:
    """The first loss is ln V while logits are small; independent normal ones of std s add s²/2."""
    loss, uniform, std = arm.first.loss, arm.first.logits.uniform_loss, arm.first.logits.variance**0.5
    excess, numbers = loss - uniform, {"loss": loss, "ln_v": uniform, "logit_std": std}
    if excess <= LOSS_NOTED:
        yield Verdict(
            "good", f"The first loss is {loss:.3f}, ln V = {uniform:.3f}; logits have std {number(std)}.", numbers
        )
        return
    table = "embedding, which is the head too," if config.model.tied else "head"
    factor = number((2 * LOSS_NOTED) ** 0.5 / std, 2)
    yield Verdict(
        "note" if excess <= LOSS_WARNS else "warning",
        f"The first loss is {loss:.3f}, {excess:.2f} above ln V = {uniform:.3f}, since logits have std {number(std)}: "
        f"multiply the std of the {table} by {factor}.",
        numbers,
    )


RATIO = 1e4


def gradients(arm: Arm, config: Config) -> Iterator[Verdict]:
    """Components that get no gradient, one that is not finite, one that the optimizer's epsilon swallows, or a far
    smaller one than others."""
    rows = arm.first.gradients
    broken = [row.role for row in rows if not math.isfinite(row.norm)]
    if broken:
        text = f"The gradient of {listed(broken)} is not finite: lower the std of the matrices behind it."
        yield Verdict("warning", text, {"roles": listed(broken)})
        return
    yield from _dead(arm)
    alive = [row for row in rows if row.rms and "." in row.role and row.relative is not None]
    if not alive:
        return
    low, high = min(alive, key=lambda row: row.rms), max(alive, key=lambda row: row.rms)
    numbers = {"smallest": low.rms, "role": low.role, "largest": high.rms, "of": high.role}
    factor = number(high.rms / low.rms, 2)
    if config.optim.name == "adamw" and low.rms < config.optim.eps:
        eps = 10.0 ** math.floor(math.log10(low.rms) - 2)
        yield Verdict(
            "warning",
            f"The gradient of {low.role} has rms {number(low.rms)}, below optim.eps = {config.optim.eps:g}, so that "
            f"AdamW moves it by less than its rate: lower optim.eps to {eps:g}.",
            {**numbers, "eps": config.optim.eps},
        )
    elif high.rms > RATIO * low.rms:
        yield Verdict(
            "note",
            f"Gradients differ {factor} times in rms, from {low.role} ({number(low.rms)}) to "
            f"{high.role} ({number(high.rms)}): AdamW and Muon rescale each; train.clip_norm sees the latter alone.",
            numbers,
        )
    else:
        text = f"The gradients of the matrices in the layers are within a factor of {factor} in rms, below {RATIO:g}."
        yield Verdict("good", text, numbers)


def _dead(arm: Arm) -> Iterator[Verdict]:
    """Exact zeros; behind a head or queries that are zero by design they are meant to be there."""
    dead = [row.role for row in arm.first.gradients if row.norm == 0]
    if not dead:
        return
    zero = {row.role for row in arm.plan.rows if row.distribution.kind == "constant" and row.distribution.value == 0}
    numbers = {"roles": listed(dead)}
    if "head" in zero:
        yield Verdict("good", "The head is zero by design: at step 0 it alone gets a gradient.", numbers)
    elif "attn.q" in zero and set(dead) == {"attn.k"}:
        yield Verdict("good", "Queries are zero by design: keys get no gradient at step 0.", numbers)
    else:
        text = f"No gradient reaches {listed(dead)}, which cannot learn: give what stands behind it a std above 0."
        yield Verdict("warning", text, numbers)


PRECISION = 0.05


def precision(arm: Arm, config: Config) -> Iterator[Verdict]:
    """The bf16 forward pass against fp32; one rounding is off by up to 0.4 %."""
    broken = [row.layer for row in arm.precision if not math.isfinite(row.error)]
    if broken:
        text = f"A bf16 forward pass is not finite from layer {broken[0]} on: train in fp32, or at a smaller scale."
        yield Verdict("warning", text, {"layer": broken[0]})
        return
    worst = max(arm.precision, key=lambda row: row.error)
    where = "the logits" if worst.layer == config.model.n_layers else f"the stream after layer {worst.layer}"
    numbers = {"error": worst.error, "layer": worst.layer}
    text = f"A bf16 forward pass is off by {percent(worst.error)} at most, in {where}"
    if worst.error <= PRECISION:
        yield Verdict("good", f"{text}.", numbers)
    else:
        level = "warning" if config.train.precision in ("bf16", "pure_bf16") else "note"
        yield Verdict(
            level, f"{text}: train the first steps with train.precision=fp32, or at a smaller scale.", numbers
        )


LOST = 0.1


def lost(arm: Arm, config: Config) -> Iterator[Verdict]:
    """Updates that a bf16 copy of the weights would lose."""
    # what gets no gradient moves by weight decay alone, and so do embeddings of tokens that the batch lacks
    learning = {row.role for row in arm.first.gradients if row.norm} - {*EMBEDDING_ROLES}
    rows = [row for row in arm.first.lost if row.role in learning and not math.isnan(row.share)]
    if not rows:
        return
    row = max(rows, key=lambda row: row.share)
    numbers = {"share": row.share, "role": row.role, "lr": config.optim.lr}
    what = f"of the first update of {row.role} at rate {config.optim.lr:g} would be lost in bf16 weights"
    apart = "; embeddings apart, whose rows move only for tokens of the batch"
    if row.share <= LOST:
        yield Verdict("good", f"At most {percent(row.share)} {what}{apart}.", numbers)
    elif config.train.precision == "pure_bf16":
        text = f"{percent(row.share)} {what}{apart}: keep weights in fp32 with train.precision=bf16."
        yield Verdict("warning", text, numbers)
    else:
        yield Verdict("note", f"{percent(row.share)} {what}{apart}: keep weights in fp32, as this run does.", numbers)


SINK = 1.5


def sinks(arm: Arm, config: Config) -> Iterator[Verdict]:
    """Attention on the first token, before anything has been learned."""
    scores, uniform = arm.sink.layers, arm.sink.uniform
    layer = max(range(len(scores)), key=lambda index: scores[index])
    numbers = {"score": scores[layer], "layer": layer, "uniform": uniform, "length": arm.sink.length}
    if scores[layer] <= SINK * uniform:
        text = f"Attention starts without sinks, at most {number(scores[layer])} of it on the first token"
        yield Verdict("good", f"{text}; uniform attention has {number(uniform)}.", numbers)
        return
    yield Verdict(
        "warning",
        f"Layer {layer} starts with {number(scores[layer])} of its attention on the first token, "
        f"{number(scores[layer] / uniform, 2)} times what uniform attention has: lower the std of attn.q and attn.k.",
        numbers,
    )


def coordinates(arm: Arm, config: Config) -> Iterator[Verdict]:
    """Whether a learning rate holds at other widths; FLAT_SLOPE is the threshold."""
    check = arm.coordinates
    if check is None:
        return
    row = check.steepest
    numbers = {"slope": row.slope, "activation": row.activation, "step": row.step, "flat": FLAT_SLOPE}
    where = f"over widths {check.widths[0]} to {check.widths[-1]}"
    if check.flat:
        text = f"The coordinate check is flat {where}: the steepest slope is {row.slope:+.2f}, of {row.activation}."
        yield Verdict("good", text, numbers)
        return
    text = f"The change of {row.activation} after step {row.step} goes with the width as d^{row.slope:.2g} {where}"
    if arm.plan.law == "mup":
        yield Verdict("warning", f"{text}, where mup should keep it flat: lower optim.lr, and check again.", numbers)
    else:
        yield Verdict("note", f"{text}: tune optim.lr at each width, or set init.law=mup.", numbers)


Rule = Callable[[Arm, Config], Iterator[Verdict]]
RULES: tuple[Rule, ...] = (
    masking, branches, growth, budget, first_loss, gradients, precision, lost, sinks, coordinates,
)  # fmt: skip


def percent(share: float) -> str:
    return f"{number(100 * share, 2)} %"


def spread(low: float, high: float) -> str:
    """``1.2 %`` or ``1.2 to 3.4 %``."""
    first, last = number(100 * low, 2), number(100 * high, 2)
    return f"{last} %" if first == last else f"{first} to {last} %"


def fraction(value: float) -> str:
    """A gamma as people write it: 5/6, 1, 0.71."""
    for below in range(1, 7):
        if abs(value * below - round(value * below)) < 0.002 * below:
            return f"{round(value * below)}/{below}" if below > 2 else f"{round(value * below) / below:g}"
    return f"{value:.2f}"


def listed(names: list[str]) -> str:
    return ", ".join(names)
