"""An arm of a preflight as if it had been measured: everything well, so that a test changes one thing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seedbed.config import Config
    from seedbed.report.preflight_rows import Arm

LAYERS = 3


def config(*overrides: str) -> "Config":
    from seedbed.config import Config

    return Config.load(None, ["model.vocab_size=512", "model.d_model=64", f"model.n_layers={LAYERS}", *overrides])


def arm(init: str = "gamma", options: dict[str, Any] | None = None, **changes: Any) -> "Arm":
    from seedbed.analysis.resources import meta_facts
    from seedbed.config import InitConfig
    from seedbed.init import make_plan
    from seedbed.measure.budget import BudgetRow
    from seedbed.measure.gradients import GradientRow
    from seedbed.measure.precision import LayerError
    from seedbed.measure.sink import SinkReport
    from seedbed.report.preflight_rows import Arm, Scaling

    plan = make_plan(meta_facts(config().model), InitConfig.model_validate({"law": init, **(options or {})}))
    roles = {"embed": 1e-3, "attn.q": 2e-3, "attn.k": 2e-3, "attn.v": 3e-3, "mlp.up": 4e-3, "head": 1e-3, "norm": 1e-3}
    told: dict[str, Any] = {
        "title": plan.title,
        "plan": plan,
        "scaling": {"attention": Scaling(2, 0.0, 1.0), "mlp": Scaling(3, 0.0, 5 / 6)},
        "residual": residual([1e-7] * (2 * LAYERS + 1)),
        "budget": [BudgetRow("q", 0.5, 0.51), BudgetRow("attention out", 0.2, 0.15), BudgetRow("per block", 0.1, 0.09)],
        "precision": [LayerError(layer, 0.003) for layer in range(LAYERS + 1)],
        "precision_tokens": 256,
        "sink": SinkReport(((0.1, 0.11),) * LAYERS, uniform=0.1, queries=500, length=64),
        "first": first([GradientRow(role, 64 * rms, rms, 0.1) for role, rms in roles.items()]),
    }
    return Arm(**(told | changes))


def residual(
    maskings: Sequence[float], attn: float = 0.5, mlp: float = 0.4, flow: float = 1.5, eps: float = 1e-12
) -> Any:
    """``flow`` after the last layer; the norms have the second moment that makes their masking."""
    from seedbed.measure.residual import LayerFlow, NormMasking, ResidualReport

    names = [f"layers.{layer}.{norm}" for layer in range(LAYERS) for norm in ("attn_norm", "mlp_norm")]
    norms = [
        NormMasking(name, eps, eps / m - eps, m, min(1.0, 100 * m))
        for name, m in zip([*names, "norm"], maskings, strict=True)
    ]
    layers = [LayerFlow(layer, attn, mlp, flow * (layer + 1) / LAYERS) for layer in range(LAYERS)]
    return ResidualReport(1000, 0.02, tuple(layers), tuple(norms), ())


def first(gradients: list[Any], loss: float = 6.25, variance: float = 0.01, lost: float = 0.01) -> Any:
    from seedbed.measure.losses import LogitStats
    from seedbed.report.preflight_rows import FirstStep, LostRow

    logits = LogitStats(variance, max_abs=0.5, log_z=6.24, entropy=6.23, uniform_loss=6.238)
    shares = [LostRow(row.role, lost) for row in gradients if row.role != "norm"]
    return FirstStep(512, loss, logits, gradients, shares, pass_seconds=2.0, update_seconds=0.5)
