"""The residual stream of a decoder, followed through one forward pass: sizes, what branches add, what epsilons mask.

For each token, e is the embedded input as the first layer gets it and h_l the stream after layer l. Every number is
one of a token; kept are its sums over the tokens, those that begin a document apart (attention sinks live there, with
activations of their own size), and counts in bins, for medians: a few tokens with massive activations can make up a
mean. Both add up over batches, so nothing depends on how texts are put into batches.

Memory: the embedded input, the stream before a layer, and what the modules of that layer gave.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seedbed.facts.fact import ParameterFact
from seedbed.facts.patterns import canonical
from seedbed.measure.additions import Addition, LayerPlace, Output, additions, layer_places
from seedbed.measure.bins import Bins, bins_of
from seedbed.measure.masking import USUAL_EPS, masking_ratio, norm_of, vectors
from seedbed.measure.stream_sums import EMBEDDED, FIRST, OTHERS, StreamSums, Sums
from seedbed.model.attention import document_starts


@contextmanager
def following(model: nn.Module, facts: Iterable[ParameterFact], doc_ids: Tensor) -> Iterator[StreamSums]:
    """While it is open, one forward pass of ``model`` over tokens of doc_ids [B, T] fills the sums that it yields.

    Runs of one id are documents, negative ids are padding, which is not counted. Raises ValueError where no token is
    left, and InputError for a model without one stack of layers.
    """
    modules = {canonical(f"{path}.").rstrip("."): module for path, module in model.named_modules()}
    places = layer_places(facts, modules)
    follower = _Follower(doc_ids)
    norms = {path: module for path, module in modules.items() if "norm" in type(module).__name__.lower()}
    with ExitStack() as stack:

        def after(path: str, use: Callable[[list[Tensor], Tensor], None]) -> None:
            def hook(_: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
                use(_read(args, kwargs), out if isinstance(out, Tensor) else out[0])

            stack.callback(modules[path].register_forward_hook(hook, with_kwargs=True).remove)

        def before(path: str, use: Callable[[Tensor], None]) -> None:
            def hook(_: nn.Module, args: Any, kwargs: Any) -> None:
                use(_read(args, kwargs)[0])

            stack.callback(modules[path].register_forward_pre_hook(hook, with_kwargs=True).remove)

        for place in places:
            before(place.path, lambda h, place=place: follower.enter(place, h))
            for branch, paths in place.branches.items():
                before(paths[0], follower.reads)
                for path in paths:
                    after(path, lambda _, out, b=branch, p=path: follower.gave(Output(b, p, out)))
        for path, module in norms.items():
            after(path, lambda x, out, p=path, m=module: follower.normed(p, m, x, out))
        for place in places:
            after(place.path, lambda _, out: follower.leave(out))
        yield follower.sums


def _read(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a module reads, states first: its first argument, or the one of Transformers' name."""
    given = [*args[:1], kwargs.get("hidden_states"), *args[1:]]
    given += [value for name, value in kwargs.items() if name != "hidden_states"]
    return [value for value in given if isinstance(value, Tensor)]


class _Follower:
    """Where the pass has got to; filled by hooks."""

    def __init__(self, doc_ids: Tensor):
        self.keep = doc_ids >= 0  # [B, T]
        if not self.keep.any():
            raise ValueError("the residual stream of zero tokens")
        index = torch.arange(doc_ids.shape[1], device=doc_ids.device)
        first = (index == document_starts(doc_ids))[self.keep]  # [N]
        self.groups = {FIRST: first, OTHERS: ~first}
        self.sums = StreamSums(tokens={group: int(rows.sum()) for group, rows in self.groups.items()})
        self.layer = EMBEDDED
        self._outside()

    def enter(self, place: LayerPlace, h: Tensor) -> None:
        """h [B, T, D], the stream before a layer."""
        self.state = h[self.keep]
        if self.layer == EMBEDDED:
            self.embedded = self.state
            self.sums.width = h.shape[-1]
            self._stream()
        self.layer += 1
        self.place, self.shape = place, h.shape

    def reads(self, x: Tensor) -> None:
        """x is read by a branch, or by a norm outside of it."""
        if self.place is not None and x.shape == self.shape:
            self.read.append(x[self.keep])

    def gave(self, output: Output) -> None:
        if self.place is not None and output.value.numel() == self.shape.numel():
            value = output.value.reshape(self.shape)  # experts may have rows of tokens: [B T, D]
            self.raw.append(output.value)
            self.outputs.append(output._replace(value=value[self.keep]))

    def normed(self, path: str, module: nn.Module, read: list[Tensor], out: Tensor) -> None:
        """A norm read tensors, the states first, and gave out."""
        x = read[0]
        inside = None if self.place is None else self.place.inside(path)
        if inside is None:
            self.reads(x)
        self._mask(path, module, read, out, inside or "stream")
        behind = [n for n, raw in enumerate(self.raw) if x.data_ptr() == raw.data_ptr() and x.shape == raw.shape]
        if self.place is not None and inside is None and behind:
            self.gave(Output(self.outputs[behind[-1]].branch, path, out))

    def leave(self, out: Tensor) -> None:
        """out [B, T, D], the stream after the layer."""
        assert self.place is not None
        after = out[self.keep]
        found = additions(self.state, after, self.outputs, self.read, self.place.branches)
        if isinstance(found, str):
            self.sums.unread[str(self.layer)] = found
        else:
            for each in found:
                self._branch(each)
        self.state = after
        self._outside()
        self._stream()

    def _outside(self) -> None:
        """Between layers: nothing of one is kept."""
        self.place: LayerPlace | None = None
        self.outputs: list[Output] = []
        self.raw: list[Tensor] = []  # the outputs as they were given, to know them again
        self.read: list[Tensor] = []  # [N, D] each

    def _stream(self) -> None:
        norm = _norm(self.state)  # [N]
        mean = self.state.mean(-1, dtype=torch.float64)
        size = self.state.abs()
        most = size.amax(-1).double()
        measures = {
            "norm": norm,
            "variance": (norm.square() / self.state.shape[-1] - mean.square()).clamp(
                min=0
            ),  # of equal features rounding
            "largest": most,
            "massive": most / size.median(-1).values.double(),
            "flow": _norm(self.state - self.embedded) / _norm(self.embedded),
        }
        self.sums.stream[str(self.layer)] = self._summed(**measures)
        self.sums.bins[f"stream {self.layer}"] = self._binned(**measures)

    def _branch(self, each: Addition) -> None:
        branch, path, value, factor = each.output
        added, stream = _norm(value), _norm(each.stream)  # [N]
        product = torch.einsum("nd,nd->n", value.double(), each.stream.double())
        cosine = torch.where(added == 0, 0.0, product / (added * stream))
        layer = str(self.layer)
        self.sums.branches.setdefault(branch, {})[layer] = self._summed(ratio=added / stream, cosine=cosine)
        self.sums.bins[f"{branch} {layer}"] = self._binned(ratio=added / stream)
        told = path if factor == 1 else f"{factor:.3g} × {path}"
        self.sums.sources.setdefault(branch, {})[layer] = told
        if path in self.sums.kinds:  # a norm behind the branch
            self.sums.kinds[path]["reads"] = "branch"

    def _mask(self, path: str, module: nn.Module, read: list[Tensor], out: Tensor, reads: str) -> None:
        calls = 1 + sum(name == path or name.startswith(f"{path} (call ") for name in self.sums.kinds)
        path = path if calls == 1 else f"{path} (call {calls})"
        x, *more = read
        # a gate may be multiplied in before the norm or behind it
        several = f"a {type(module).__name__} reads {len(read)} tensors: what of them it norms is not known"
        kind = several if more else norm_of(module, x, out)
        rows = vectors(x, self.keep)
        if isinstance(kind, str) or rows is None:
            shape = f"reads {list(x.shape)}, which has no place for each token"
            self.sums.unmeasured[path] = kind if isinstance(kind, str) else shape
            return
        layer = None if self.place is None else self.layer
        self.sums.kinds[path] = {"eps": kind.eps, "centred": kind.centred, "reads": reads, "layer": layer}
        second_moment = kind.second_moment(rows)  # [N] or [N, heads]
        self.sums.norms[path] = self._summed(
            second_moment=_over_heads(second_moment),
            masking=_over_heads(masking_ratio(second_moment, kind.eps)),
            masking_usual=_over_heads(masking_ratio(second_moment, USUAL_EPS)),
        )

    def _summed(self, **measures: Tensor) -> Sums:
        """Sums over the tokens of each group of measures [N]."""
        return {
            group: {name: float(values[rows].sum()) for name, values in measures.items()}
            for group, rows in self.groups.items()
        }

    def _binned(self, **measures: Tensor) -> dict[str, dict[str, Bins]]:
        """Counts of measures [N], the same way."""
        return {
            group: {name: bins_of(values[rows]) for name, values in measures.items()}
            for group, rows in self.groups.items()
        }


def _norm(x: Tensor) -> Tensor:
    """||x|| [N], accumulated in fp64: the square of a small branch would vanish in fp32."""
    return torch.linalg.vector_norm(x, dim=-1, dtype=torch.float64)


def _over_heads(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1) if values.ndim > 1 else values
