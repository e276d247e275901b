"""What a preflight found as tables, which terminal and page show alike: a row each quantity, a cell each arm."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from seedbed.facts.fact import in_order
from seedbed.init import Plan
from seedbed.init.plan import PlanRow
from seedbed.init.report import starred
from seedbed.measure.residual import USUAL_EPS
from seedbed.report.preflight_rows import Arm, CoordCheck
from seedbed.report.render import count, number, signed
from seedbed.report.style import short


@dataclass(frozen=True)
class Row:
    labels: tuple[str, ...]
    cells: list[tuple[str, ...]]  # one an arm, each with the table's parts


@dataclass(frozen=True)
class Table:
    title: str
    labels: tuple[str, ...]  # headings of what stands left of the arms
    arms: list[str]
    rows: list[Row]
    parts: tuple[str, ...] = ("",)  # what the numbers of a cell are, where it has several


def plan_table(plans: Sequence[Plan]) -> Table:
    """Distributions side by side, equal rows of all layers joined as ``layers.*``."""
    joined: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for rows in zip(*(plan.rows for plan in plans), strict=True):
        key = (starred(rows[0].name), "×".join(map(str, rows[0].shape)), tuple(told(row) for row in rows))
        joined.setdefault(key, []).append(rows[0].name)
    rows = [
        Row((_name(name, names), str(len(names)), shape), [(law,) for law in laws])
        for (name, shape, laws), names in joined.items()
    ]
    return Table("Plan", ("parameter", "tensors", "shape"), [plan.title for plan in plans], rows)


def _name(name: str, names: Sequence[str]) -> str:
    """What stands for ``names``, all the same but for the layer: ``layers.*.attn.q``, or the one that is alone."""
    return (name if len(names) > 1 else names[0]).removesuffix(".weight")


def told(row: PlanRow) -> str:
    """How one row comes about, a joint draw marked with the matrix that it is a part of."""
    name = str(row.distribution)
    return name if row.joint is None else f"{name}, in {row.joint.name.split('.')[-2]}"


def masking_table(arms: Sequence[Arm]) -> Table:
    """Of every norm, at the model's epsilon and at the usual one."""
    eps = arms[0].residual.norms[0].eps
    title = f"Masking: share of ε in σ² + ε, at the model’s ε = {short(eps)} and at the usual ε = {short(USUAL_EPS)}"
    rows = [
        Row((norms[0].name,), [(percent(norm.masking), percent(norm.masking_usual)) for norm in norms])
        for norms in zip(*(arm.residual.norms + arm.residual.qk_norms for arm in arms), strict=True)
    ]
    return Table(title, ("norm",), titles(arms), rows, (f"at {short(eps)}", f"at {short(USUAL_EPS)}"))


def residual_table(arms: Sequence[Arm]) -> Table:
    tokens = count(arms[0].residual.tokens)
    return Table(
        f"Residual stream, on {tokens} held-out tokens: branches over the stream before them, flow ‖h−e‖/‖e‖",
        ("layer",),
        titles(arms),
        [
            Row((str(layers[0].layer),), [(number(x.attn), number(x.mlp), number(x.flow)) for x in layers])
            for layers in zip(*(arm.residual.layers for arm in arms), strict=True)
        ],
        ("attention", "mlp", "flow"),
    )


def budget_table(arms: Sequence[Arm]) -> Table:
    return Table(
        "Variance budget, relative to the branch’s normed input; the last two rows are of the stream: predicted for an "
        "embedded input of variance 1, measured relative to what the embedded input has",
        ("quantity",),
        titles(arms),
        [
            Row((rows[0].quantity,), [(number(row.predicted), number(row.measured)) for row in rows])
            for rows in zip(*(arm.budget for arm in arms), strict=True)
        ],
        ("predicted", "measured"),
    )


def first_table(arms: Sequence[Arm]) -> Table:
    """First loss and logits."""
    quantities: list[tuple[str, Callable[[Arm], str]]] = [
        ("rms of the embedded input", lambda arm: number(arm.residual.embed_rms)),
        ("first loss, nats per token", lambda arm: f"{arm.first.loss:.4f}"),
        ("ln V", lambda arm: f"{arm.first.logits.uniform_loss:.4f}"),
        ("std of the logits", lambda arm: number(arm.first.logits.variance**0.5)),
        ("largest |logit|", lambda arm: number(arm.first.logits.max_abs)),
    ]
    rows = [Row((name,), [(value(arm),) for arm in arms]) for name, value in quantities]
    return Table("First step", ("",), titles(arms), rows)


def gradient_table(arms: Sequence[Arm]) -> Table:
    """By component; the columns are equal in which components there are, since the arms share a shape."""
    lost = [{row.role: row.share for row in arm.first.lost} for arm in arms]
    return Table(
        "First gradient and update at the peak rate: lost is the share that rounding undoes in bf16 weights; "
        "embeddings of tokens that the batch lacks move by weight decay alone",
        ("component",),
        titles(arms),
        [
            Row(
                (rows[0].role,),
                [
                    (number(row.norm), number(row.rms), percent(shares.get(row.role) if row.norm else None))
                    for row, shares in zip(rows, lost, strict=True)
                ],
            )
            for rows in zip(*(arm.first.gradients for arm in arms), strict=True)
        ],
        ("norm", "rms", "lost"),
    )


def layer_table(arms: Sequence[Arm]) -> Table:
    """bf16 error and sink score over layers; the last row is of the logits, which have no sinks."""
    first = arms[0]
    title = (
        f"Per layer: error of a bf16 forward pass ({count(first.precision_tokens)} tokens), and sink score "
        f"(uniform attention: {number(first.sink.uniform)}, length {count(first.sink.length)})"
    )

    def cells(index: int) -> list[tuple[str, ...]]:
        return [
            (percent(arm.precision[index].error), number(scores[index] if index < len(scores) else None))
            for arm, scores in ((arm, arm.sink.layers) for arm in arms)
        ]

    names = [*map(str, range(len(first.sink.layers))), "logits"]
    return Table(
        title, ("layer",), titles(arms), [Row((n,), cells(i)) for i, n in enumerate(names)], ("bf16 error", "sink")
    )


def width_table(arms: Sequence[Arm]) -> Table:
    """Ratios at each width, and the slope with its standard error beside what theory expects."""
    rows = []
    for of_branch in zip(*(arm.slopes for arm in arms), strict=True):
        name = of_branch[0].branch
        for index, width in enumerate(of_branch[0].widths):
            rows.append(Row((name, f"ratio at d = {width}"), [(number(row.ratios[index]),) for row in of_branch]))
        rows.append(Row((name, "slope"), [(f"{row.slope:.3f} ± {row.stderr:.3f}",) for row in of_branch]))
        rows.append(Row((name, "expected"), [(number(row.expected),) for row in of_branch]))
    tokens = count(arms[0].slopes[0].tokens)
    return Table(f"Over widths, on {tokens} tokens: ‖branch‖/‖e‖ ∝ d^slope", ("branch", ""), titles(arms), rows)


def gamma_table(arms: Sequence[Arm]) -> Table:
    """What gamma each law is, by role; a dash where it draws nothing."""
    fits = [{row.role: f"{row.gamma:.3f} ± {row.stderr:.3f}" for row in arm.gammas} for arm in arms]
    roles = in_order(role for of in fits for role in of)
    rows = [Row((role,), [(of.get(role, "–"),) for of in fits]) for role in roles]
    return Table("Over widths: γ as drawn, std ∝ d_in^−γ", ("component",), titles(arms), rows)


def coordinate_table(checks: Sequence[CoordCheck]) -> Table:
    """The slope of each activation's change, a number a step; a dash where nothing has moved."""
    steps = sorted({row.step for row in checks[0].rows})
    slopes = [{(row.activation, row.step): row.slope for row in check.rows} for check in checks]
    names = list(dict.fromkeys(row.activation for row in checks[0].rows))
    return Table(
        f"Coordinate check, widths {', '.join(map(str, checks[0].widths))}: change of each activation ∝ d^slope",
        ("activation",),
        [check.title for check in checks],
        [Row((name,), [tuple(signed(of[name, step], 2) for step in steps) for of in slopes]) for name in names],
        tuple(f"step {step}" for step in steps),
    )


def titles(arms: Iterable[Arm]) -> list[str]:
    return [arm.title for arm in arms]


def percent(share: float | None) -> str:
    return "–" if share is None or share != share else f"{number(100 * share, 2)} %"
