"""The page on the gain of one model over another, token by token."""

from collections.abc import Mapping, Sequence

from seedbed.measure.gains import LEAST_DOCUMENTS, LEVEL
from seedbed.report.render import count, number, signed
from seedbed.report.sections import Page, Picture, Section, TableView
from seedbed.report.token_spans import coloured
from seedbed.report.tokens_figures import bins_figure, groups_figure, histograms_figure
from seedbed.report.tokens_rows import GroupRow, Mean, ShownText, TokenGains, TokenRow

DEFINITIONS = {
    "Loss": "−ln p of the token that came, in nats; the first token of a document is not predicted.",
    "Gain Δℓ": "Loss under A minus loss under B, in nats: above 0 where B is better.",
    "Symmetric probability gain": "(p_B − p_A) / (p_A + p_B) = tanh(Δℓ / 2), from −1 to 1: 0.5 where the token is "
    "three times as likely under B.",
    "Difficulty": "Mean of the two losses of a token, in nats.",
    "Bins": "Tokens ranked by difficulty and cut into ten parts of equal count.",
    "Mean": "Over tokens: a long document counts more than a short one. Where only so many documents are read, they "
    "are taken from each file, and each domain and language of a store, in turns: means are over that mix.",
    "Interval": f"Percentile bootstrap over documents at {LEVEL} %: whole documents are drawn with replacement, the "
    "same draws for all groups; bins stay as they are. Of few documents it covers less than it says: of ten with "
    f"normal means, 88 % (simulated). None for groups of fewer than {LEAST_DOCUMENTS}.",
    "Better": "Share of tokens that are likelier under B.",
    "Little": "Share of tokens whose symmetric probability gain is within ±0.1.",
    "Bits per byte": "Summed loss / ln 2 / bytes of the UTF-8 text that the predicted tokens stand for. A − B is above "
    "0 where B is better.",
    "Rank": "1 + number of tokens of the vocabulary that the model holds likelier.",
    "Total": "Summed gain over all occurrences of a token, in nats.",
}
BINNING = (
    "Both models have the same say in what is difficult: exchange them, and each bin keeps its tokens and its gain "
    "turns its sign. Binned by the loss of A alone, the hard bins would collect tokens that A happens to miss, and any "
    "other model would seem to gain there (regression to the mean). The mean of both takes this away where the two "
    "losses vary equally; where one varies more, its model looks worse in the hard bins and better in the easy ones."
)


def _spread(result: TokenGains) -> str:
    return (
        f"Here the losses of tokens have a standard deviation of {number(result.loss_std_a)} nats under A and "
        f"{number(result.loss_std_b)} under B. The slope of the gain over difficulty reflects their difference alone: "
        f"(Var A − Var B) / (2 Var difficulty) = {signed(result.slope)}. Bolder predictions of one model tilt the "
        "bins, whichever is better."
    )


def tokens_page(result: TokenGains, shown: list[ShownText], provenance: Mapping[str, str]) -> Page:
    """``shown`` are coloured; ``provenance`` has what else was run."""
    everything = result.overall
    lead = (
        f"A is {result.a}, B is {result.b}: both predict the same {count(everything.tokens)} tokens of "
        f"{count(everything.documents)} documents. Intervals are over documents, for these two sets of weights; no "
        "number has an error bar over training seeds."
    )
    sections = [
        _distribution(result),
        _difficulty(result),
        *_groups([row for row in (*result.domains, *result.languages) if row.name != "(none)"]),
        Section(
            "Tokens",
            ["Tokens of the vocabulary by their summed gain, which a frequent token with a small gain may lead. The "
             "extremes of many: no error bars, and part of each is chance, most where few documents have the token."],
            tables=[_tokens("Most gained by B", result.gaining), _tokens("Most lost by B", result.losing)],
        ),
    ]  # fmt: skip
    if shown:
        sections.append(_texts(result, shown))
    return Page(
        title=f"Token gains of {result.b} over {result.a}",
        lead=lead,
        sections=sections,
        definitions=DEFINITIONS,
        provenance={
            "tokenizer (SHA-256)": result.tokenizer,
            "resamples, seed": f"{count(result.resamples)}, {result.seed}",
            **provenance,
        },
        tiles={
            f"gain of B, nats per token ({LEVEL} % interval: {_interval(everything.gain)})": number(
                everything.gain.mean
            ),
            f"bits per byte, {result.a}": number(everything.bits_per_byte_a, 4),
            f"bits per byte, {result.b}": number(everything.bits_per_byte_b, 4),
            "of tokens likelier under B": _percent(everything.better),
            "of tokens change little": _percent(everything.little),
        },
    )


def _distribution(result: TokenGains) -> Section:
    read = f"Documents are read up to {count(result.length)} tokens: {count(result.cut_documents)} were cut"
    read += f", {count(result.cut_tokens)} tokens left off." if result.cut_documents else "."
    skipped = [f"Not read: {count(n)} × {reason}." for reason, n in result.skipped.items()]
    picture = Picture(
        "gains",
        histograms_figure(result),
        f"{count(result.overall.tokens)} tokens by their gain: blue, likelier under B; vermillion, likelier under A; "
        "logarithmic counts. On the left, the outermost bars include all values beyond the axis, 0.5 % of the tokens "
        "at both ends "
        "together.",
        "Two histograms of the gain of each token, in nats and as symmetric probability gain.",
    )
    tables = [_gains("All tokens", "", [result.overall]), _losses("", [result.overall])]
    return Section("How the gain is spread", [read, *skipped], [picture], tables, result.remarks)


def _difficulty(result: TokenGains) -> Section:
    bins = result.bins
    picture = Picture(
        "difficulty",
        bins_figure(bins),
        f"Mean gain of tokens by difficulty, about {count(bins[0].tokens)} tokens a bin; bars are {LEVEL} % intervals "
        "over documents, bins fixed.",
        "Mean gain in ten bins of difficulty, with intervals.",
    )
    return Section("By difficulty", [BINNING, _spread(result)], [picture], [_gains("Bins of difficulty", "bin", bins)])


def _groups(groups: Sequence[GroupRow]) -> list[Section]:
    if not groups:
        return []
    few = [row.name for row in groups if row.gain.low is None]
    problems = [f"Fewer than {LEAST_DOCUMENTS} documents, so no interval: {', '.join(few)}."] if few else []
    picture = Picture(
        "groups",
        groups_figure(groups),
        f"Mean gain of the tokens of each domain and language, {LEVEL} % intervals over documents; hollow: too few "
        "documents for one.",
        "Mean gain by domain and language, with intervals.",
    )
    tables = [_gains("Domains and languages", "group", groups), _losses("group", groups)]
    return [Section("By domain and language", pictures=[picture], tables=tables, problems=problems)]


def _texts(result: TokenGains, shown: list[ShownText]) -> Section:
    paragraphs = [
        f"{count(len(shown))} documents, of each language in turn the first of each domain, chosen before anything was "
        "measured. The shade is the symmetric probability gain. Point at a token, or go to it with the Tab key, for "
        "both probabilities, its rank in each model, gain and difficulty.",
        "Tokens that share a character stand as one, with the gain of all of them together. ↵ is a newline, ⇥ a tab; "
        "what nothing predicts is grey with dots below.",
    ]
    return Section("Token by token", paragraphs, html=coloured(shown, result.a, result.b, result.vocabulary))


def _gains(title: str, first: str, rows: Sequence[GroupRow]) -> TableView:
    interval = f"{LEVEL} % interval"
    columns = [
        first, "documents", "tokens", "difficulty", "gain", interval, "prob. gain", interval, "better", "little",
    ]  # fmt: skip
    cells = [
        [
            row.name, count(row.documents), count(row.tokens), f"{number(row.lowest)}–{number(row.highest)}",
            signed(row.gain.mean), _interval(row.gain), signed(row.probability_gain.mean),
            _interval(row.probability_gain), _percent(row.better), _percent(row.little),
        ]
        for row in rows
    ]  # fmt: skip
    return TableView(title, columns, cells)


def _losses(first: str, rows: Sequence[GroupRow]) -> TableView:
    columns = [first, "loss A", "loss B", "bits per byte A", "bits per byte B", "A − B", f"{LEVEL} % interval", "bytes"]
    cells = [
        [
            row.name, f"{row.loss_a:.3f}", f"{row.loss_b:.3f}", number(row.bits_per_byte_a, 4),
            number(row.bits_per_byte_b, 4), *_bits_gain(row.bits_per_byte_gain), count(row.bytes),
        ]
        for row in rows
    ]  # fmt: skip
    return TableView("Losses, nats per token, and bits per byte", columns, cells)


def _bits_gain(mean: Mean | None) -> tuple[str, str]:
    return ("–", "–") if mean is None else (signed(mean.mean, 4), _interval(mean, 4))


def _tokens(title: str, rows: Sequence[TokenRow]) -> TableView:
    columns = ["token", "id", "count", "documents", "loss A", "loss B", "mean gain", "total"]
    cells = [
        [
            repr(row.token), str(row.id), count(row.count), count(row.documents), f"{row.loss_a:.3f}",
            f"{row.loss_b:.3f}", signed(row.gain), signed(row.total, 1),
        ]
        for row in rows
    ]  # fmt: skip
    return TableView(title, columns, cells, brief=False)


def _interval(mean: Mean, digits: int = 3) -> str:
    return (
        "–" if mean.low is None or mean.high is None else f"{signed(mean.low, digits)} to {signed(mean.high, digits)}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
