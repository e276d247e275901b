"""What an initialization does to the residual stream of a pre-norm decoder, on real tokens.

For each token, e is the embedded input (learned positions included) and h_l the stream after layer l. All numbers are
in fp32 and are means over tokens of a per-token number (choice): a few tokens with huge states cannot hide the rest.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seedbed.measure.evaluating import evaluating

USUAL_EPS = 1e-5  # of most models: what it would mask stands beside what the model's own epsilon does


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
    norms: tuple[NormMasking, ...]  # norms of the residual stream
    qk_norms: tuple[NormMasking, ...]  # norms of queries and keys, which do not see the stream

    @property
    def flow(self) -> float:
        """Residual flow r = ||h_L - e|| / ||e|| (S0 sections 2.4 and 5)."""
        return self.layers[-1].flow


def masking_ratio(second_moment: Tensor, eps: float) -> Tensor:
    """``eps / (sigma^2 + eps)``, the masking ratio of a norm (S0 section 2.1), element by element."""
    return eps / (second_moment + eps)


def residual_report(
    model: nn.Module, ids: Tensor, doc_ids: Tensor | None = None, positions: Tensor | None = None
) -> ResidualReport:
    """Run ``model`` once on ids [B, T] and measure its stream; the model is left as it was, error or not.

    ``model`` is a Decoder, or has the same parts: ``layers`` with ``attn`` and ``mlp``, each adding its output to the
    stream, norms of torch's classes, and ``model(ids, doc_ids, hidden=True, positions=positions)``. Tokens of negative
    document id are padding and are not counted. Raises ValueError when no token is left.
    """
    keep = torch.ones_like(ids, dtype=torch.bool) if doc_ids is None else doc_ids >= 0  # [B, T]
    if not keep.any():
        raise ValueError("residual flow of zero tokens")
    stream, norms, qk_norms = _Stream(keep), [], []
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))

        def after(module: nn.Module, use: Callable[[Tensor, Tensor], None]) -> None:
            hook = module.register_forward_hook(lambda _, args, out: use(args[0].detach().float(), out.float()))
            stack.callback(hook.remove)

        def before(module: nn.Module, use: Callable[[Tensor], None]) -> None:
            hook = module.register_forward_pre_hook(lambda _, args: use(args[0].detach().float()))
            stack.callback(hook.remove)

        for layer in model.layers:  # pyright: ignore[reportGeneralTypeIssues]
            before(layer, stream.enter)
            after(layer.attn, stream.attention)
            after(layer.mlp, stream.feed_forward)
            after(layer, stream.leave)
        for name, module in model.named_modules():
            if isinstance(module, nn.RMSNorm | nn.LayerNorm):
                into = qk_norms if name.endswith(("q_norm", "k_norm")) else norms
                before(module, lambda x, n=name, m=module, into=into: into.append(_norm_masking(n, m, x, keep)))
        model(ids, doc_ids, hidden=True, positions=positions)
    return ResidualReport(int(keep.sum()), stream.embed_rms, tuple(stream.layers), tuple(norms), tuple(qk_norms))


class _Stream:
    """Follows the residual stream through the layers of one forward pass, keeping numbers and two states only."""

    state: Tensor  # [N, D], the stream where the pass has got to; N counted tokens
    embedded: Tensor  # [N, D]
    attn_ratio: float
    mlp_ratio: float
    embed_rms: float

    def __init__(self, keep: Tensor):
        self.keep = keep  # [B, T]
        self.layers: list[LayerFlow] = []

    def enter(self, h: Tensor) -> None:  # h [B, T, D], the stream before a layer
        self.state = h[self.keep]
        if not self.layers:
            self.embedded = self.state
            self.embed_rms = float(self.state.square().mean(-1).sqrt().mean())

    def attention(self, _: Tensor, out: Tensor) -> None:
        self.attn_ratio = self._add(out[self.keep])

    def feed_forward(self, _: Tensor, out: Tensor) -> None:
        self.mlp_ratio = self._add(out[self.keep])

    def leave(self, _: Tensor, out: Tensor) -> None:
        flow = _mean_ratio(out[self.keep] - self.embedded, self.embedded)
        self.layers.append(LayerFlow(len(self.layers), self.attn_ratio, self.mlp_ratio, flow))

    def _add(self, branch: Tensor) -> float:  # [N, D]
        ratio = _mean_ratio(branch, self.state)
        self.state = self.state + branch
        return ratio


def _mean_ratio(x: Tensor, y: Tensor) -> float:
    """Mean over tokens of ||x|| / ||y||; x and y [N, D]."""
    return float((x.norm(dim=-1) / y.norm(dim=-1)).mean())


def _norm_masking(name: str, norm: nn.RMSNorm | nn.LayerNorm, x: Tensor, keep: Tensor) -> NormMasking:
    x = x[keep]  # [N, D], or [N, heads, K] in front of a norm of queries or keys
    if isinstance(norm, nn.LayerNorm):
        x = x - x.mean(-1, keepdim=True)
    second_moment = x.square().mean(-1)
    # torch's default epsilon of RMSNorm is that of the input's type; fp32 here
    eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
    own, usual = (float(masking_ratio(second_moment, value).mean()) for value in (eps, USUAL_EPS))
    return NormMasking(name, eps, float(second_moment.mean()), own, usual)
