"""The page of instruction-following difficulty."""

import math
from collections.abc import Mapping

from markupsafe import Markup

from seedbed.report.ifd_figures import (
    BINS,
    MIDDLE,
    Model,
    change_figure,
    distribution_figure,
    length_bias_figure,
    middle,
    window_of,
)
from seedbed.report.ifd_rows import SHORT, IfdResult, Sample, values_of
from seedbed.report.render import count, number, signed
from seedbed.report.sections import Page, Picture, Section, TableView
from seedbed.report.style import AFTER, BEFORE

EXCERPT = 700
"""Characters of a sample's text that are shown."""
GROUPS = {"all": "all responses", "longer": f"{SHORT} tokens and more", "short": f"fewer than {SHORT} tokens"}
DEFINITIONS = {
    "conditional loss": "Mean nats a response token, given the instruction and what the chat template writes around "
    "it. Control tokens that end a turn are no part of the response.",
    "unconditional loss": "Mean nats per token over the same tokens of the same response, without the instruction.",
    "IFD": "Instruction-following difficulty: conditional loss over unconditional loss, of one model. Near 0 the "
    "instruction gives the response away; near 1 it does nothing for it; above 1 the model finds the response less "
    "likely with the instruction than without (S1, appendix A).",
    "loss ratio": "Conditional loss of the checkpoint over that of the base, on one response; below 1 training made "
    "the response likelier. The unconditional ratio is the same without the instruction.",
    "share above 1": "Share of the records whose value is above 1.",
    "mean, median, std, quartiles": "Over records, each counted once however long it is; std is that of a sample.",
    "Pearson, Spearman": "Linear and rank correlation over records, with two-sided p-values (scipy.stats) under "
    "independent records, not corrected for how many are shown. IFD and loss ratio of one model share a loss, and the "
    "loss ratio and the base's IFD share another: part of their correlation is arithmetic.",
    "instruction length": "Tokens before the response: begin of text, the instruction, and what the template writes.",
    "response length": "Tokens that the losses are means over.",
    "running median": "Median of length and of value over neighbours in the order of length.",
}


def ifd_page(result: IfdResult, provenance: Mapping[str, str]) -> Page:
    """Everything that was found, with the records at both ends, quartiles and middle."""
    own = values_of(result.rows, "checkpoint.ifd")
    short = sum(row.short for row in result.rows)
    middle = next(row.summary for row in result.summaries if (row.responses, row.measure) == ("all", "checkpoint.ifd"))
    tiles = {
        "records": count(len(own)),
        f"median IFD, {result.checkpoint}": number(middle.median),
        "share with IFD above 1": _percent(middle.above_one),
        f"responses under {SHORT} tokens": count(short),
    }
    if result.base is not None:
        ratio = next(row.summary for row in result.summaries if (row.responses, row.measure) == ("all", "ratio"))
        tiles["median loss ratio"] = number(ratio.median)
    return Page(
        f"Instruction-following difficulty of {result.checkpoint}",
        _lead(result),
        [_summary_section(result), _length_section(result), *_change_section(result), _samples_section(result)],
        DEFINITIONS,
        provenance,
        tiles,
    )


def _lead(result: IfdResult) -> str:
    models = result.checkpoint if result.base is None else f"{result.checkpoint}, beside {result.base},"
    return (
        f"What an instruction does for its response: {models} on {count(len(result.rows))} records. The means are over "
        "these records; they carry no error bar, and one checkpoint says nothing about another seed."
    )


def _how_read(result: IfdResult) -> list[str]:
    """How records became tokens."""
    if result.template == "none":
        told = "Records are read as plain text: instruction, an empty line, response; no chat template is applied."
    else:
        own = "the checkpoint's own chat template" if result.template == "tokenizer" else f"template {result.template}"
        told = f"Records are read as conversations, with {own}."
    if result.begin_opens_turns:
        start = (
            f"The chat template opens turns with {result.begins}, the begin of text: behind it the name of a role is "
            "expected, not a response. So without the instruction a response is read by itself, and no loss counts "
            "its first token."
        )
    elif result.begins:
        start = f"Both losses start from {result.begins}, the begin of text, and count every token of the response."
    else:
        start = "The tokenizer has no begin of text, so that no loss counts the first token of a response."
    paragraphs = [f"{told} {start} The response's token ids are the same in both."]
    if result.asked is not None:
        paragraphs.append(f"Read are the first records of each file, in turns, until there are {count(result.asked)}.")
    if result.base is not None and result.template != "none" and not result.base_has_template:
        paragraphs.append(
            f"{result.base} has no chat template of its own: it may never have seen the control tokens before the "
            "response, which raises its conditional loss and its IFD, and lowers the loss ratio."
        )
    return paragraphs


def _label(measure: str, result: IfdResult) -> str:
    names = {"ratio": "loss ratio", "unconditional_ratio": "unconditional loss ratio"}
    names |= {"instruction_tokens": "instruction length", "response_tokens": "response length"}
    if measure in names:
        return names[measure]
    role, _, name = measure.partition(".")
    model = result.checkpoint if role == "checkpoint" else result.base
    return f"IFD of {model}" if name == "ifd" else f"{name} loss of {model}"


def _models(result: IfdResult) -> list[Model]:
    """The base, where there is one, and the checkpoint."""
    named = [("base", result.base, BEFORE), ("checkpoint", result.checkpoint, AFTER)]
    return [
        Model(
            name,
            values_of(result.rows, f"{role}.conditional"),
            values_of(result.rows, f"{role}.unconditional"),
            values_of(result.rows, f"{role}.ifd"),
            color,
        )
        for role, name, color in named
        if name is not None
    ]


def _summary_section(result: IfdResult) -> Section:
    tables = []
    for group, title in GROUPS.items():
        rows = []
        for row in result.summaries:
            if row.responses == group and row.summary.n:
                s = row.summary
                quantiles = map(_fixed, (s.mean, s.std, s.lowest, s.q25, s.median, s.q75, s.highest))
                counted = row.measure.endswith(("ifd", "ratio"))
                above = _percent(s.above_one) if counted else ""
                rows.append([_label(row.measure, result), count(s.n), *quantiles, above])
        columns = ["", "n", "mean", "std", "lowest", "25 %", "median", "75 %", "highest", "above 1"]
        if rows:
            tables.append(TableView(f"Summary, {title}", columns, rows))
    read = len(result.rows) + sum(result.skipped.values())
    left_out = [f"left out of {count(read)} records: {count(n)} × {reason}" for reason, n in result.skipped.items()]
    models = _models(result)
    low, high = middle([model.ifd for model in models])
    beyond = " and ".join(
        f"{count(sum(not low <= value <= high for value in model.ifd))} of {model.name}" for model in models
    )
    picture = Picture(
        "ifd_distribution",
        distribution_figure(models),
        f"Share of {count(len(result.rows))} records in each of {BINS} equal bins of IFD, over the middle "
        f"{_percent(MIDDLE)} of all values; the outermost hold those beyond, {beyond}. Dotted: medians; dashed: 1.",
        "Histogram of IFD over records.",
    )
    return Section("Losses and IFD", _how_read(result), [picture], tables, left_out)


def _length_section(result: IfdResult) -> Section:
    lengths = values_of(result.rows, "response_tokens")
    figure = length_bias_figure(lengths, _models(result), SHORT)
    caption = (
        f"Each dot is a record ({count(len(lengths))}); length on a logarithmic axis. Lines: running median over "
        f"{window_of(len(lengths))} neighbours in length; dashed: IFD 1. Shaded: fewer than {SHORT} tokens."
    )
    picture = Picture("length_bias", figure, caption, "Losses and IFD against the length of the response.")
    tables = []
    for group in ("all", "longer"):
        rows = [
            [
                _label(row.x, result),
                _label(row.y, result),
                count(row.correlation.n),
                signed(row.correlation.pearson),
                _p(row.correlation.pearson_p),
                signed(row.correlation.spearman),
                _p(row.correlation.spearman_p),
            ]
            for row in result.correlations
            if row.responses == group
        ]
        columns = ["", "with", "n", "Pearson", "p", "Spearman", "p"]
        tables.append(TableView(f"Correlations, {GROUPS[group]}", columns, rows, left=2))
    told = (
        "A mean over few tokens varies more, and what an instruction gives away may lie in the first tokens: read IFD "
        "beside the length."
    )
    return Section("Length bias and correlations", [told], [picture], tables)


def _fixed(value: float) -> str:
    """Three decimals, so that a value near 1 shows its side."""
    return "–" if math.isnan(value) else f"{value:.3f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _p(value: float | None) -> str:
    return "< 0.001" if value is not None and value < 0.001 else number(value, 2)


def _change_section(result: IfdResult) -> list[Section]:
    if result.base is None:
        return []
    base, checkpoint = _models(result)
    lengths = values_of(result.rows, "response_tokens")
    figure = change_figure(base, checkpoint, values_of(result.rows, "ratio"), lengths, SHORT)
    caption = (
        "Each dot is a record. Left: IFD under both models, dashed where it is equal. Others: loss ratio, dashed at 1; "
        f"line: running median over {window_of(len(lengths))} neighbours in length; shaded: fewer than {SHORT} tokens."
    )
    return [Section("From base to checkpoint", [], [Picture("ifd_change", figure, caption, "IFD under two models.")])]


def _samples_section(result: IfdResult) -> Section:
    told = f"Records over the range of the checkpoint's IFD; texts are cut to {count(EXCERPT)} characters."
    return Section("Samples", [told], html=Markup("\n").join(_sample(sample, result) for sample in result.samples))


def _sample(sample: Sample, result: IfdResult) -> Markup:
    row = sample.row
    named = [(result.base, row.base), (result.checkpoint, row.checkpoint)]
    lines = [
        Markup('<tr><td>{}</td><td class="num">{}</td><td class="num">{}</td><td class="num">{}</td></tr>').format(
            name, *map(_fixed, (losses.conditional, losses.unconditional, losses.ifd))
        )
        for name, losses in named
        if losses is not None
    ]
    ratio = "" if row.ratio is None else f"; loss ratio {_fixed(row.ratio)}"
    return Markup(
        "<h3>{place}: IFD {ifd} ({id})</h3>\n"
        '<div class="wide"><table><thead><tr><th></th><th class="num">conditional loss</th>'
        '<th class="num">unconditional loss</th><th class="num">IFD</th></tr></thead><tbody>{lines}</tbody></table>'
        "</div>\n"
        '<small>Instruction, {before} tokens</small><pre class="text">{instruction}</pre>\n'
        '<small>Response, {counted} tokens{ratio}</small><pre class="text">{response}</pre>'
    ).format(
        place=sample.place.capitalize(),
        ifd=_fixed(row.checkpoint.ifd),
        id=row.id,
        lines=Markup("").join(lines),
        before=count(row.instruction_tokens),
        counted=count(row.response_tokens),
        ratio=ratio,
        instruction=_cut(sample.instruction),
        response=_cut(sample.response),
    )


def _cut(text: str) -> str:
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}… (+{count(len(text) - EXCERPT)} characters)"
