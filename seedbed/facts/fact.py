"""One row of the parameter table (no torch here: laws and the configuration read it too)."""

from collections.abc import Iterable
from dataclasses import dataclass

# Roles of matrices, by what they do.
MATRIX_ROLES = (
    "embed",  # token embeddings, a lookup table
    "pos",  # learned positions, and what else is added to a token for where it stands: segments, types, languages
    "token",  # learned vectors that stand in for input: class and mask tokens, registers, queries, latents
    "patch",  # the linear map or convolution from raw patches or frames to the stream
    "attn.q", "attn.k", "attn.v",
    "attn.qkv",  # the three as one matrix, where they are interleaved or a law acts on them jointly
    "attn.q_down", "attn.q_up", "attn.kv_down", "attn.kv_up",  # through a latent (MLA)
    "attn.o", "attn.gate",
    "mlp.gate", "mlp.up", "mlp.down",  # of an expert too
    "moe.router",
    "head",
    "conv",  # a convolution whose name says nothing more
    "linear",  # a linear map whose name says nothing more
)  # fmt: skip
# `norm` is a norm's gain, `norm.offset` a gain that is stored as its difference from 1, `norm.bias` a norm's shift;
# `bias` belongs to a linear map, `pos.bias` is added to attention scores; `kept` stays as the module was built.
VECTOR_ROLES = ("norm", "norm.offset", "norm.bias", "bias", "pos.bias", "kept")
ROLES = MATRIX_ROLES + VECTOR_ROLES
EMBEDDING_ROLES = ("embed", "pos", "token", "patch")


def in_order(roles: Iterable[str]) -> list[str]:
    """Each role once, in the order of ROLES."""
    order = {role: place for place, role in enumerate(ROLES)}
    return sorted(set(roles), key=lambda role: (order.get(role, len(order)), role))


@dataclass(frozen=True)
class ParameterFact:
    """What is known about one parameter, or about one block of a fused one, before any number is drawn.

    ``d_in`` is the length of the contraction: input features of a linear map, fan-in of a convolution, and the model
    width for lookup tables and tokens (science: the embedded input has std ``d_in^-gamma``). ``shape`` is
    (d_out, d_in) for matrices however they are stored, (d_out, channels, ...) for convolutions, (n,) for vectors.
    """

    name: str  # canonical: the state-dict name without wrapper prefixes; blocks of a fused matrix have their own
    role: str
    shape: tuple[int, ...]
    d_in: int
    d_out: int
    layer: int | None = None  # index of the block in its stack, None outside one
    n_layers: int = 0  # of that stack; of the deepest one for what lies outside
    writes_residual: bool = False  # a fact of its own: the `linear` output map of a state-space mixer does, too
    tied: tuple[str, ...] = ()  # other names of the same tensor
    rows: tuple[int, int] | None = None  # of a block: its rows within the fused matrix
    expert: int | None = None  # of a block: its index along the first dimension of a stack of experts
    transposed: bool = False  # stored as (d_in, d_out)
    zero_row: int | None = None  # a row that stays zero: padding
    maps: int = 0  # matrices in series in the residual branch it belongs to: 2, or 3 with a multiplied gate
    placement: str | None = None  # of its block's norms, where the block says: see seedbed.facts.layers.PLACEMENTS
    blocks: tuple["ParameterFact", ...] = ()  # of a fused matrix: its parts, in order

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) >= 2 and self.role not in VECTOR_ROLES

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the parameter in the module."""
        return (*self.shape[:-2], self.shape[-1], self.shape[-2]) if self.transposed else self.shape

    @property
    def depth(self) -> float:
        """Relative depth z = layer / (L - 1); 0 in a stack of one and outside a stack (S2)."""
        return (self.layer or 0) / max(self.n_layers - 1, 1)

    def parts(self) -> tuple["ParameterFact", ...]:
        """The pieces that are drawn, optimized and measured on their own: the blocks, or the parameter itself."""
        return self.blocks or (self,)


def branch_of(name: str) -> str:
    """The path of the module that a map belongs to: ``layers.0.mlp`` of ``layers.0.mlp.up.weight``."""
    return name.rpartition(".")[0].rpartition(".")[0]
