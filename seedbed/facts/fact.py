"""One row of the parameter table (no torch here: laws and the configuration read it too)."""

from collections.abc import Iterable
from dataclasses import dataclass

# Roles of matrices, by what they do. `embed` and `pos` are lookup tables; the rest multiply activations.
MATRIX_ROLES = (
    "embed", "pos", "attn.q", "attn.k", "attn.v", "attn.o", "attn.gate", "mlp.gate", "mlp.up", "mlp.down", "head",
    "linear",  # a linear map whose name says nothing more
)  # fmt: skip
# `norm` is a norm's gain and `norm.bias` its shift; `bias` belongs to a linear map.
VECTOR_ROLES = ("norm", "norm.bias", "bias")
ROLES = MATRIX_ROLES + VECTOR_ROLES
EMBEDDING_ROLES = ("embed", "pos")


def in_order(roles: Iterable[str]) -> list[str]:
    """Each role once, in the order of ROLES."""
    order = {role: place for place, role in enumerate(ROLES)}
    return sorted(set(roles), key=lambda role: (order.get(role, len(order)), role))


@dataclass(frozen=True)
class ParameterFact:
    """What is known about one parameter, or about one block of a fused one, before any number is drawn.

    ``d_in`` is the length of the contraction: input features of a linear map, and the model width for an embedding
    table (science: the embedded input has std ``d_in^-gamma``). ``shape`` is (d_out, d_in) for matrices, (n,) else.
    """

    name: str  # canonical: the state-dict name without wrapper prefixes; blocks of a fused matrix have their own
    role: str
    shape: tuple[int, ...]
    d_in: int
    d_out: int
    layer: int | None = None  # index of the block in the stack, None outside it
    n_layers: int = 0
    writes_residual: bool = False
    tied: tuple[str, ...] = ()  # other names of the same tensor
    rows: tuple[int, int] | None = None  # of a block: its rows within the fused matrix
    blocks: tuple["ParameterFact", ...] = ()  # of a fused matrix: its parts, in order

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) >= 2

    def parts(self) -> tuple["ParameterFact", ...]:
        """The pieces that are drawn, optimized and measured on their own: the blocks, or the parameter itself."""
        return self.blocks or (self,)
