"""Scalar laws: each a pure function of a few lines from the facts of a parameter to a distribution."""

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, PositiveInt

from seedbed.errors import InputError
from seedbed.facts.fact import EMBEDDING_ROLES, MATRIX_ROLES, ParameterFact
from seedbed.laws.distribution import COPIED, ZERO, Distribution


def _role_or_family(name: str) -> str:
    """A role, or the part of roles before the dot: ``mlp`` stands for all that begin with ``mlp.``."""
    known = {*MATRIX_ROLES, *(role.partition(".")[0] for role in MATRIX_ROLES if "." in role)}
    if name not in known:
        raise ValueError(f"unknown role '{name}'; known: {', '.join(sorted(known))}")
    return name


RoleName = Annotated[str, AfterValidator(_role_or_family)]


def of_role(values: dict[str, float], role: str, default: float) -> float:
    """The value of ``role``, of its family (``mlp`` for ``mlp.up``), or the default."""
    return values.get(role, values.get(role.partition(".")[0], default))


def gamma(fact: ParameterFact, *, gamma: float = 1.0, by_role: dict[RoleName, float] | None = None) -> Distribution:
    """N(0, d_in^(-2*gamma)); gamma 0.5 is the usual scale, 1 the small one (S0 section 1). ``by_role`` gives roles
    (mlp.down) or families of them (mlp) a gamma of their own."""
    return Distribution("normal", fact.d_in ** -of_role(by_role or {}, fact.role, gamma))


def balanced(fact: ParameterFact, *, gamma: float = 1.0) -> Distribution:
    """N(0, d_in^(-2*gamma_b)), gamma_b = 1/2 + gamma/k in a residual branch of k maps in series and gamma elsewhere:
    the norm of each branch keeps its ratio to the embedded input's at every width (ours; from S0 section 5). Queries,
    keys and attention's gate get their branch's gamma too (choice): they weigh what passes and move no exponent.
    Not for a model with a norm behind each branch, which decides its size by itself."""
    if fact.placement == "branch":
        raise InputError(
            "law 'balanced' chooses how large branches are by their matrices, and here a norm stands behind each "
            "branch; use gamma, or model.norm_placement=pre"
        )
    return Distribution("normal", fact.d_in ** -(0.5 + gamma / fact.maps if fact.maps else gamma))


def gpt2(fact: ParameterFact, *, std: float = 0.02) -> Distribution:
    """N(0, std^2); matrices that write to the residual stream get std/sqrt(2L) (S1 section 5.2, S2)."""
    if not fact.writes_residual:
        return Distribution("normal", std)
    return Distribution("normal", std / math.sqrt(2 * layers_of(fact)))


def normal(fact: ParameterFact, *, std: float = 0.02) -> Distribution:
    """N(0, std^2) everywhere, no residual scaling (S2's "No residual scaling", OLMo 2)."""
    return Distribution("normal", std)


def kaiming(fact: ParameterFact, *, variant: Literal["torch", "he"] = "torch") -> Distribution:
    """``torch``: PyTorch's default for linear maps, U(±1/sqrt(d_in)), std 1/sqrt(3*d_in), which S1 calls Kaiming.
    ``he``: N(0, 2/d_in) (He et al. 2015, fan-in, gain sqrt(2))."""
    if variant == "torch":
        return Distribution("uniform", 1 / math.sqrt(3 * fact.d_in))
    return Distribution("normal", math.sqrt(2 / fact.d_in))


def xavier(fact: ParameterFact, *, gain: float = 1.0, shape: Literal["uniform", "normal"] = "uniform") -> Distribution:
    """std gain*sqrt(2/(d_in+d_out)), uniform or normal (Glorot & Bengio 2010)."""
    return Distribution(shape, gain * math.sqrt(2 / (fact.d_in + fact.d_out)))


def lecun(fact: ParameterFact, *, gain: float = 1.0, shape: Literal["normal", "uniform"] = "normal") -> Distribution:
    """std gain/sqrt(d_in), normal or uniform (LeCun et al. 1998, fan-in)."""
    return Distribution(shape, gain / math.sqrt(fact.d_in))


def orthogonal(fact: ParameterFact, *, gain: float = 1.0) -> Distribution:
    """gain times a matrix with orthonormal rows or columns, whichever are fewer (Saxe et al. 2014); the blocks of a
    fused matrix one by one. Lookup tables and tokens, which map nothing, get N(0, gain^2/d) (choice)."""
    if fact.role in EMBEDDING_ROLES and fact.role != "patch":
        return Distribution("normal", gain / math.sqrt(fact.d_in))
    return Distribution("orthogonal", gain / math.sqrt(max(fact.d_in, fact.d_out)))


def small_init(fact: ParameterFact) -> Distribution:
    """N(0, 2/(5d)), d the model width, on every matrix (Nguyen & Salazar 2019; S3). It is Xavier's scale between d
    and 4d; embeddings and head get it too, and for what reads a latent d is the latent's width (choices)."""
    width = fact.d_out if fact.writes_residual or fact.role == "patch" else fact.d_in
    return Distribution("normal", math.sqrt(2 / (5 * width)))


def deepnorm(fact: ParameterFact, *, post_norm: bool = False) -> Distribution:
    """Xavier normal with gain beta = (8L)^(-1/4) on value, output and feed-forward matrices, 1 elsewhere, embeddings
    included (choice) (DeepNet, Wang et al. 2022; S3). The model must be post-norm, have one stack (an encoder-decoder
    needs other gains), and multiply its stream by alpha = (2L)^(1/4): ``post_norm`` says that it does."""
    if fact.placement in ("pre", "branch"):
        kind = "pre-norm" if fact.placement == "pre" else "not, it norms what its branches add"
        raise InputError(
            f"law 'deepnorm' is for post-norm models, and this one is {kind}; use gpt2, which scales with depth too"
        )
    if not post_norm and fact.layer is not None:
        raise InputError(
            "law 'deepnorm' is for post-norm models whose stream is multiplied by (2L)^(1/4), and nothing says that "
            "this one is; if it is, say so with post_norm=true"
        )
    if fact.role == "attn.qkv":
        raise InputError("law 'deepnorm' gives values another gain than queries, and here they are interleaved")
    scaled = fact.role in ("attn.v", "attn.o") or fact.role.startswith("mlp.")
    gain = (8 * layers_of(fact)) ** -0.25 if scaled else 1.0
    return xavier(fact, gain=gain, shape="normal")


def mup(fact: ParameterFact, *, base_width: PositiveInt = 256, std: float = 0.02) -> Distribution:
    """Maximal update parametrization (Yang et al. 2022; S3). Hidden matrices, attention's gate among them, get
    N(0, std^2*base_width/d_in): ``std`` where d_in is the base width, less in the wider down projection. Embeddings,
    whose table a tied head reads too, get N(0, std^2) at every width; head and queries 0, but for queries that are
    interleaved with keys and values in one matrix (choice). A router, whose experts do
    not grow in number with the width, gets N(0, (std*base_width/d_in)^2), as a head with its output multiplier would
    (choice). Learning rates and multipliers follow in the configuration."""
    if fact.role in ("head", "attn.q", "attn.q_up"):
        return ZERO
    if fact.role in EMBEDDING_ROLES:
        return Distribution("normal", std)
    share = base_width / fact.d_in
    return Distribution("normal", std * (share if fact.role == "moe.router" else math.sqrt(share)))


def reuse(fact: ParameterFact, *, checkpoint: str, std: float = 0.02) -> Distribution:
    """Everything is copied from a pretrained ``checkpoint`` of the same architecture, positions, norms and biases too;
    only the token embeddings, and a head that is tied to them, are drawn anew, N(0, std^2) (S2)."""
    if fact.role == "embed" or (fact.role == "head" and fact.tied):
        return Distribution("normal", std)
    return COPIED


def layers_of(fact: ParameterFact) -> int:
    """The depth L of a law that scales with it. Raises InputError where there is none."""
    if not fact.n_layers:
        raise InputError("the law scales with depth, and the module has no stack of layers")
    return fact.n_layers
