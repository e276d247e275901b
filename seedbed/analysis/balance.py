"""The law ``balanced`` by measurement: the gamma of each branch at which it has a chosen size, on real tokens."""

import math
from dataclasses import dataclass

from seedbed.config import InitConfig, ModelConfig
from seedbed.data.split import Batch
from seedbed.errors import InputError
from seedbed.facts.table import parameter_facts
from seedbed.init import apply_plan, make_plan
from seedbed.init.apply import drawn_parts
from seedbed.measure.branches import Branch, branch_ratios
from seedbed.model import Decoder

FAMILIES: tuple[Branch, ...] = ("attn", "mlp")
LOWEST, HIGHEST = 0.0, 2.0  # gamma of a branch: from entries of std 1 to far below what trains (choice)
TOLERANCE = 1e-3  # of the ratio, relative


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
    gamma_e: float  # of everything outside the branches
    tokens: int  # measured on
    branches: tuple[BranchBalance, ...]

    @property
    def init(self) -> InitConfig:
        """The initialization that was found, for a configuration: ``gamma`` with a gamma for each family."""
        by_role = {branch.family: branch.gamma for branch in self.branches}
        return InitConfig.model_validate({"law": "gamma", "gamma": self.gamma_e, "by_role": by_role})


def balance(config: ModelConfig, ratio: float, gamma_e: float, batch: Batch, seed: int) -> Balance:
    """Find the gamma of attention and of the feed-forward network at which ||branch(norm(e))|| / ||e|| is ``ratio``.

    ``gamma_e`` is that of everything else. The ratio is the mean over layers and tokens of ``batch``, of each branch
    by itself on the embedded input (choice): so the two searches do not disturb each other, and what lower layers add
    to the stream does not count. The weights are those of a run with that seed, the same Gaussian numbers at every
    gamma; the epsilon is the model's. What is found holds at this width; at another one, search again. A measurement
    costs one pass of one branch of each layer, and there are about 6 a branch.
    Raises InputError when the ratio is not positive or needs a gamma outside 0 to 2, and for a gamma_e that cannot be
    drawn.
    """
    if not (ratio > 0 and math.isfinite(ratio)):
        raise InputError(f"balance: a branch cannot be {ratio:g} of its input; ask for a ratio above 0, such as 0.5")
    if not math.isfinite(gamma_e):
        raise InputError(f"balance: gamma of the embedding must be finite, not {gamma_e:g}")
    model = Decoder(config)
    facts = parameter_facts(model)
    init = InitConfig.model_validate({"law": "gamma", "gamma": gamma_e, "by_role": dict.fromkeys(FAMILIES, LOWEST)})
    apply_plan(model, make_plan(facts, init), seed)
    maps = {part.role.partition(".")[0]: part.maps for fact in facts for part in fact.parts()}
    branches = []
    for family in FAMILIES:
        gamma, found, measurements = _search(model, family, ratio, batch)
        branches.append(BranchBalance(family, gamma, 0.5 + gamma_e / maps[family], found, measurements))
    return Balance(ratio, gamma_e, int((batch.doc_ids >= 0).sum()), tuple(branches))


def _search(model: Decoder, family: Branch, target: float, batch: Batch) -> tuple[float, float, int]:
    """Gamma, the ratio there, and the number of measurements. ``family`` of ``model`` is drawn at LOWEST, and at that
    gamma afterwards.

    Bisection, but for the next point, which is where the line through both ends crosses: log ratio is nearly a line in
    gamma, and 6 measurements do for 17.
    """
    drawn_at, measurements = LOWEST, 0

    def excess(gamma: float) -> float:
        """Log of ratio / target."""
        nonlocal drawn_at, measurements
        _rescale(model, family, gamma - drawn_at)
        drawn_at, measurements = gamma, measurements + 1
        return math.log(float(branch_ratios(model, family, batch.ids, batch.doc_ids).mean()) / target)

    low, high = LOWEST, HIGHEST
    above, below = excess(low), excess(high)
    if not above >= 0 >= below:
        raise InputError(
            f"balance: ratio {target:g} is out of reach of {family}: from gamma {LOWEST:g} to {HIGHEST:g} its ratio "
            f"goes from {target * math.exp(above):.3g} to {target * math.exp(below):.3g}; ask for one between"
        )
    while True:
        gamma = low + (high - low) * above / (above - below)
        found = excess(gamma)
        if abs(found) < TOLERANCE:
            return gamma, target * math.exp(found), measurements
        if found > 0:
            low, above = gamma, found
        else:
            high, below = gamma, found


def _rescale(model: Decoder, family: Branch, by: float) -> None:
    """Raise the gamma of a family's matrices."""
    for part, tensor in drawn_parts(model):
        if part.role.startswith(f"{family}."):
            tensor.mul_(part.d_in**-by)
