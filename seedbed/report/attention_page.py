"""The page of an analysis of attention."""

from collections.abc import Iterable, Mapping, Sequence

from seedbed.measure.gains import LEAST_DOCUMENTS
from seedbed.report.attention_figures import entropy_figure, heads_figure, places_figure, sink_figure
from seedbed.report.attention_rows import THRESHOLD, Attention, UnmeasuredRow
from seedbed.report.render import count, number
from seedbed.report.sections import Page, Picture, Section, TableView

TOP = 15
SHORT = 12
"""Rows of the table of all layers that stand open on the page and in the terminal."""

DEFINITIONS = {
    "sink score": "Mean attention weight on the first token of the query’s own document, over all queries (S0, eq. 5; "
    "Gu et al. 2024). Queries are the second to last tokens of each document: the first one attends to itself alone. "
    "Each query counts the same, so that long documents weigh more. A mean over heads gives each head the same weight.",
    "documents (full)": "Documents that were read, and how many of them fill the length T.",
    "heads above 0.3": "Share of the heads whose sink score exceeds 0.3.",
    "even attention": "The same number for attention that is spread evenly over the tokens that a query may see in "
    "that layer, over the same queries. It falls with the length, as the scores do: compare at equal lengths only.",
    "attention entropy": "−Σ w ln w over the weights w of a query, in nats, mean over queries. Where a learned sink "
    "takes a part of the weight, what is left is scaled to 1 first.",
    "of even attention’s entropy": "Mean entropy divided by the mean of ln(number of visible tokens), over the same "
    "queries.",
    "weight elsewhere": "Weight that goes to no token, but to a learned sink that the layer has: 1 − Σ w.",
    "weight on the first tokens": "Mean over the heads of a layer and over the queries that have at least 16 tokens of "
    "their document before them.",
    "interval": f"95 %, percentiles of 1,000 resamples of documents, where there are {LEAST_DOCUMENTS} of them. It "
    "says how far the mean would move with other documents of the same kind; it says nothing about another training "
    "run, and heads and layers are taken as they are. The difference of two checkpoints is resampled in pairs, on the "
    "same documents.",
    "S0": "The paper on small initialization.",
    "how weights are had": "Fused attention hides them. They are computed again from the queries and keys of each "
    "layer, in blocks of queries, and must give the layer’s own output. For Transformers models they are those of the "
    "model’s own eager attention, so soft caps, windows and learned sinks are in them.",
}


def attention_page(result: Attention, provenance: Mapping[str, str]) -> Page:
    """Figures and tables of ``result``."""
    names = ", ".join(row.checkpoint for row in result.models)
    harmonic = sum(1 / n for n in range(2, result.length + 1)) / (result.length - 1)
    lead = (
        f"Attention of {names} at length T = {count(result.length)}: documents are cut there, shorter ones count with "
        f"the queries that they have. Even attention over a document of T tokens would have a sink score of "
        f"{number(harmonic)}. Intervals are over documents; scores of single heads, shares and entropies have none."
    )
    first, *others = result.models
    problems = [
        f"{checkpoint}: not read: {count(n)} × {reason}"
        for checkpoint, skipped in result.skipped.items()
        for reason, n in skipped.items()
    ]
    problems += [
        f"{row.checkpoint}: no difference is shown, it reads other tokens than {first.checkpoint}"
        for row in others
        if row.tokens_sha256 != first.tokens_sha256
    ]
    sections = [
        Section("Checkpoints", tables=[_models(result), *_differences(result)], problems=problems),
        Section("Attention sinks", pictures=_sinks(result), tables=[_top(result), _layers(result)]),
        Section("Entropy", pictures=[_entropy(result)]),
        *_places(result),
    ]
    if result.unmeasured:
        sections.append(Section("Not measured", problems=_problems(result.unmeasured)))
    return Page(f"Attention of {names}", lead, sections, DEFINITIONS, provenance, _tiles(result))


def _tiles(result: Attention) -> dict[str, str]:
    if len(result.models) > 1:
        return {f"mean sink score of {row.checkpoint}": number(row.sink) for row in result.models}
    (row,) = result.models
    return {
        "mean sink score": number(row.sink),
        "heads above 0.3": _percent(row.above),
        "of even attention’s entropy": _percent(row.entropy_share),
        "length T": count(result.length),
    }


def _models(result: Attention) -> TableView:
    columns = (
        "checkpoint", "layers", "heads", "documents (full)", "queries", "sink score", "interval", "even", "above 0.3",
        "entropy", "of even",
    )  # fmt: skip
    rows = [
        (
            row.checkpoint, f"{row.measured} of {row.layers}", count(row.heads),
            f"{count(row.documents)} ({count(row.full)})", count(row.queries), number(row.sink),
            _interval(row.sink_low, row.sink_high), number(row.uniform_sink), _percent(row.above), number(row.entropy),
            _percent(row.entropy_share),
        )
        for row in result.models
    ]  # fmt: skip
    return TableView(f"Means over all heads, T = {count(result.length)}, entropy in nats", columns, rows)


def _differences(result: Attention) -> list[TableView]:
    rows = [
        (row.checkpoint, row.against, number(row.sink), _interval(row.sink_low, row.sink_high))
        for row in result.differences
    ]
    title = "Difference of sink scores on the same tokens, interval over documents"
    return [TableView(title, ("checkpoint", "minus", "difference", "interval"), rows, left=2)] if rows else []


def _layers(result: Attention) -> TableView:
    columns = (
        "checkpoint", "layer", "sink score", "interval", "even", "above 0.3", "entropy", "of even", "elsewhere",
    )  # fmt: skip
    rows = [
        (
            row.checkpoint, str(row.layer), number(row.sink), _interval(row.sink_low, row.sink_high),
            number(row.uniform_sink), _percent(row.above), number(row.entropy), _percent(row.entropy_share),
            number(_zero(row.elsewhere)),
        )
        for row in result.layers
    ]  # fmt: skip
    brief = len(rows) <= SHORT
    return TableView("Every layer, means over its heads", columns, rows, brief=brief, folded=not brief)


def _top(result: Attention) -> TableView:
    chosen = sorted(result.heads, key=lambda row: row.sink, reverse=True)[:TOP]
    rows = [
        (row.checkpoint, str(row.layer), str(row.head), number(row.sink), number(row.uniform_sink),
         _percent(row.entropy_share), number(_zero(row.elsewhere)))
        for row in chosen
    ]  # fmt: skip
    columns = ("checkpoint", "layer", "head", "sink score", "even attention", "entropy, of even", "elsewhere")
    return TableView(f"The {len(chosen)} heads of the highest sink score", columns, rows)


def _sinks(result: Attention) -> list[Picture]:
    queries = " and ".join(dict.fromkeys(count(row.queries) for row in result.models))
    return [
        Picture(
            "sink_heads",
            heads_figure(result.heads),
            f"Sink score of every head: layers downwards, heads of each to the right, over {queries} queries at "
            f"T = {count(result.length)}. One colour scale, from 0 to the highest score; a ring marks heads above "
            f"{THRESHOLD:g}. White has no score.",
            "Heat map of sink scores, layers by heads",
        ),
        Picture(
            "sink_layers",
            sink_figure(result.layers, result.heads),
            "Left: mean sink score of each layer (line), its 95 % interval over documents (band) and each head (dots), "
            "beside even attention (dashed). Right: share of the layer’s heads above 0.3; where curves fall together, "
            "their marks lie within each other.",
            "Sink score over layers",
        ),
    ]


def _entropy(result: Attention) -> Picture:
    return Picture(
        "entropy_layers",
        entropy_figure(result.layers, result.heads),
        "Mean attention entropy of each layer (line) and each head (dots). Left: in nats, beside even attention "
        "(dashed). Right: in per cent of that.",
        "Attention entropy over layers",
    )


def _places(result: Attention) -> list[Section]:
    if not result.places:
        return [Section("First tokens", ["No document is long enough: none has more than 16 tokens."])]
    picture = Picture(
        "first_tokens",
        places_figure(result.places),
        "Attention weight on each of the first 16 tokens of a document, mean over heads: over all layers (marked) and "
        "of each layer (faint). Queries are those behind these 16 tokens. Logarithmic.",
        "Attention weight on the first tokens of a document",
    )
    return [Section("First tokens", pictures=[picture])]


def _problems(rows: Iterable[UnmeasuredRow]) -> list[str]:
    """One line for all layers of a checkpoint with one reason."""
    together: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        together.setdefault((row.checkpoint, row.reason), []).append(row.layer)
    return [
        f"{checkpoint}: layer{'s' * (len(layers) > 1)} {_numbers(layers)}: {reason}"
        for (checkpoint, reason), layers in together.items()
    ]


def _numbers(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers))


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{number(low)} to {number(high)}"


def _percent(share: float) -> str:
    return f"{number(100 * share)} %"


def _zero(share: float) -> float:
    """What is rounding of 0, as 0."""
    return share if abs(share) > 1e-5 else 0.0
