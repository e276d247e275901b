"""What an initialization does to the residual stream of a decoder, on real tokens.

For each token, e is the embedded input (learned positions included) and h_l the stream after layer l. All numbers are
means over tokens of a per-token number (choice): a few tokens with huge states cannot hide the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seedbed.facts.table import parameter_facts
from seedbed.measure.evaluating import evaluating
from seedbed.measure.masking import USUAL_EPS, masking_ratio
from seedbed.measure.stream import following
from seedbed.measure.stream_sums import EMBEDDED, StreamSums

__all__ = ["USUAL_EPS", "LayerFlow", "NormMasking", "ResidualReport", "masking_ratio", "residual_report"]


@dataclass(frozen=True)
class NormMasking:
    """How much of a norm's denominator is its epsilon, over all vectors it normalizes."""

    name: str
    eps: float
    second_moment: float  # sigma^2: mean over features of h^2; of (h - mean h)^2 for LayerNorm; mean over tokens
    masking: float  # eps / (sigma^2 + eps), mean over tokens (S0 section 2.1)
    masking_usual: float  # the same if eps were USUAL_EPS


@dataclass(frozen=True)
class LayerFlow:
    """One layer: its branches against the stream that they are added to, and the stream so far against e."""

    layer: int
    attn: float  # ||attention branch|| / ||stream before it||
    mlp: float  # ||feed-forward branch|| / ||stream before it||
    flow: float  # ||h_l - e|| / ||e||


@dataclass(frozen=True)
class ResidualReport:
    tokens: int
    embed_rms: float  # root of the mean over features of e^2
    layers: tuple[LayerFlow, ...]
    norms: tuple[NormMasking, ...]  # norms of the residual stream, and of what a branch adds to it
    qk_norms: tuple[NormMasking, ...]  # norms of queries and keys, which do not see the stream

    @property
    def flow(self) -> float:
        """Residual flow r = ||h_L - e|| / ||e|| (S0 sections 2.4 and 5)."""
        return self.layers[-1].flow


def residual_report(
    model: nn.Module, ids: Tensor, doc_ids: Tensor | None = None, positions: Tensor | None = None
) -> ResidualReport:
    """Run ``model``, a Decoder, once on ids [B, T] and measure its stream; the model is left as it was, error or not.

    Tokens of negative document id are padding and are not counted. Raises ValueError when no token is left.
    """
    documents = torch.zeros_like(ids) if doc_ids is None else doc_ids
    with evaluating(model), following(model, parameter_facts(model), documents) as sums:
        model(ids, doc_ids, hidden=True, positions=positions)
    embedded, *layers = (sums.stream[str(layer)] for layer in range(EMBEDDED, len(sums.stream) - 1))
    flows = (
        LayerFlow(
            layer,
            *(sums.mean(sums.branches[branch][str(layer)], "ratio") for branch in ("attn", "mlp")),
            flow=sums.mean(stream, "flow"),
        )
        for layer, stream in enumerate(layers)
    )
    return ResidualReport(
        tokens=sum(sums.tokens.values()),
        embed_rms=sums.mean(embedded, "norm") / sums.width**0.5,
        layers=tuple(flows),
        norms=_maskings(sums, ("stream", "branch")),
        qk_norms=_maskings(sums, ("attn", "mlp")),
    )


def _maskings(sums: StreamSums, reads: Sequence[str]) -> tuple[NormMasking, ...]:
    """Of the norms that read one of ``reads``: the stream, what a branch gives, or what is inside of a branch."""
    fields = ("second_moment", "masking", "masking_usual")
    return tuple(
        NormMasking(name, kind["eps"], *(sums.mean(sums.norms[name], field) for field in fields))
        for name, kind in sums.kinds.items()
        if kind["reads"] in reads
    )
