"""The law ``balanced`` by measurement: the gamma of each branch at which it has a chosen size, on real tokens."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from seedbed.analysis.scaling import branch_scaling
from seedbed.config import InitConfig, ModelConfig
from seedbed.data.split import Batch
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import parameter_facts
from seedbed.init import apply_plan, make_plan
from seedbed.init.apply import drawn_parts
from seedbed.measure.branches import Branch, branch_ratios
from seedbed.model import Decoder

FAMILIES: dict[Branch, str] = {"attn": "attention", "mlp": "mlp"}  # as branch_scaling names them
LOWEST, HIGHEST = 0.0, 2.0  # gamma of a branch: from entries of std 1 to far below what trains (choice)
TOLERANCE = 1e-3  # of the ratio, relative
MOST = 50  # measurements of a branch; about 6 are enough where log ratio is smooth in gamma


@dataclass(frozen=True)
class BranchBalance:
    """One family of branches, attention (attn) or feed-forward (mlp), and its gamma in all layers."""

    family: Branch
    gamma: float
    analytic: float  # 1/2 + gamma_e/k, what the law `balanced` gives: constant in width at a ratio of its own
    ratio: float  # ||branch(norm(e))|| / ||e|| at `gamma`, mean over layers and tokens
    measurements: int  # it took


@dataclass(frozen=True)
class Balance:
    target: float  # the ratio asked for
    gamma: float  # of what is outside the branches, where by_role has no other
    by_role: dict[str, float]  # gammas of roles outside the branches, as they were given
    replaced: dict[str, float]  # gammas of roles in the branches, as they were given: what is found takes their place
    tokens: int  # measured on
    branches: tuple[BranchBalance, ...]

    @property
    def init(self) -> InitConfig:
        """The initialization that was found, for a configuration: ``gamma`` with a gamma for each family."""
        return _init(self.gamma, self.by_role | {branch.family: branch.gamma for branch in self.branches})


def balance(config: ModelConfig, ratio: float, init: InitConfig, batch: Batch, seed: int) -> Balance:
    """Find the gamma of attention and of the feed-forward network at which ||branch(norm(e))|| / ||e|| is ``ratio``.

    Everything else is drawn by ``init``, the law ``gamma``, or ``balanced``, which is the same outside the branches;
    what its ``by_role`` says of roles in the branches is replaced. The ratio is the mean over layers and tokens of
    ``batch``, of each branch by itself on the embedded input (choice): so the two searches do not disturb each other,
    and what lower layers add to the stream does not count. The weights are those of a run with that seed, the same
    Gaussian numbers at every gamma; the epsilon is the model's. What is found holds at this width; at another one,
    search again. A measurement costs one pass of one branch of each layer, and there are about 6 a branch.
    Raises InputError when the ratio is not positive, needs a gamma outside 0 to 2 or cannot be searched for, for a
    law without a gamma, for gammas that cannot be drawn, and where norms stand behind the branches.
    """
    if not (ratio > 0 and math.isfinite(ratio)):
        raise InputError(f"balance: a branch cannot be {ratio:g} of its input; ask for a ratio above 0, such as 0.5")
    if init.law not in ("gamma", "balanced"):
        raise InputError(
            f"balance: init.law={init.law} has no gamma of the embedding to balance the branches for; "
            "set init.law=gamma init.gamma=1.0"
        )
    if config.norm_placement != "pre":
        raise InputError(
            "balance: with model.norm_placement=post the norm behind a branch decides how large it is, whatever its "
            "gamma; set model.norm_placement=pre"
        )
    gamma: float = init.options["gamma"]
    by_role: dict[str, float] = init.options.get("by_role") or {}
    replaced = {role: value for role, value in by_role.items() if role.partition(".")[0] in FAMILIES}
    outside = {role: value for role, value in by_role.items() if role not in replaced}
    model = Decoder(config)
    start = _init(gamma, {**outside, **dict.fromkeys(FAMILIES, LOWEST)})
    apply_plan(model, make_plan(parameter_facts(model), start), seed)
    parts = list(drawn_parts(model))
    scaling, branches = branch_scaling(config, start), []
    for family, name in FAMILIES.items():
        matrices = [(part, tensor) for part, tensor in parts if part.role.startswith(f"{family}.")]
        found, reached, measurements = _search(_measure(model, family, matrices, batch), family, ratio)
        branches.append(BranchBalance(family, found, scaling[name].balancing, reached, measurements))
    return Balance(ratio, gamma, outside, replaced, int((batch.doc_ids >= 0).sum()), tuple(branches))


def _init(gamma: float, by_role: dict[str, float]) -> InitConfig:
    return InitConfig.model_validate({"law": "gamma", "gamma": gamma, "by_role": by_role})


def _measure(
    model: Decoder, family: Branch, matrices: list[tuple[ParameterFact, Tensor]], batch: Batch
) -> Callable[[float], float]:
    """A function from gamma to the ratio of ``family`` there; ``matrices`` are its, drawn at LOWEST, and in place."""
    drawn_at = LOWEST

    def ratio_at(gamma: float) -> float:
        nonlocal drawn_at
        for part, tensor in matrices:
            tensor.mul_(part.d_in ** (drawn_at - gamma))
        drawn_at = gamma
        return float(branch_ratios(model, family, batch.ids, batch.doc_ids, batch.positions).mean())

    return ratio_at


def _search(ratio_at: Callable[[float], float], family: Branch, target: float) -> tuple[float, float, int]:
    """Gamma, the ratio there, and the number of measurements.

    False position within a bracket: the next point is where the line through both ends crosses, since log ratio is
    nearly a line in gamma. So 6 measurements do for the 17 of a bisection.
    """

    def excess(gamma: float) -> float:
        """Log of ratio / target."""
        ratio = ratio_at(gamma)
        if not (ratio > 0 and math.isfinite(ratio)):
            raise InputError(
                f"balance: at gamma {gamma:g} {family} is {ratio:g} of its input, no number to search by; "
                "choose another init.gamma, or a larger model.norm_eps"
            )
        return math.log(ratio / target)

    low, high = LOWEST, HIGHEST
    above, below = excess(low), excess(high)
    if not above >= 0 >= below:
        raise InputError(
            f"balance: ratio {target:g} is out of reach of {family}: from gamma {LOWEST:g} to {HIGHEST:g} its ratio "
            f"goes from {target * math.exp(above):.3g} to {target * math.exp(below):.3g}; ask for one between"
        )
    for measurements in range(3, MOST + 1):
        gamma = low + (high - low) * above / (above - below)
        found = excess(gamma)
        if abs(found) < TOLERANCE:
            return gamma, target * math.exp(found), measurements
        if found > 0:
            low, above = gamma, found
        else:
            high, below = gamma, found
    raise InputError(
        f"balance: after {MOST} measurements {family} is still not {target:g} of its input, between gamma {low:g} "
        f"and {high:g}; ask for another ratio"
    )
