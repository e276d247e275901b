"""The page of the residual analysis."""

from collections.abc import Mapping, Sequence

from seedbed.measure.masking import USUAL_EPS
from seedbed.report.render import count
from seedbed.report.residual_figures import (
    branches_figure,
    masking_figure,
    masking_steps_figure,
    steps_figure,
    stream_figure,
    trajectories_figure,
)
from seedbed.report.residual_rows import Member, NormRow, ResidualResult, StreamRow
from seedbed.report.residual_tables import layer_table, members_table, norm_table, steps_table, summary_table
from seedbed.report.sections import Page, Picture, Section
from seedbed.report.style import short

DEFINITIONS = {
    "stream": "h_l, the residual stream after layer l, and e, the embedded input as the first layer gets it (positions "
    "and multipliers included). Layer −1 in CSV, e in tables and figures, is e itself. All computed in fp32, summed in "
    "fp64.",
    "tokens": "Every number is one of a token; padding is never counted. The first token of each document (a begin of "
    "text, where the tokenizer puts one) is kept apart: attention sinks live there.",
    "median, mean": "Over tokens. A few tokens with massive activations can make up a mean; where it is far from the "
    "median, they do. Medians are from counts in bins of 2.2 %, and right to that; of an even number the lower of the "
    "two in the middle. Cosines and ε masking are bounded: means.",
    "norm, rms": "‖h‖, and ‖h‖/√d with d the model width.",
    "variance": "Over the d features of a token: mean of h² less the square of the mean of h.",
    "max |h|, max/median": "max |h_i|, and max |h_i| / median |h_i| over the features of a token: massive activations. "
    "“Greatest” is the largest of any token, to 2.2 %.",
    "flow": "‖h_l − e‖ / ‖e‖ (S0, sections 2.4 and 5).",
    "ratio": "‖what the branch adds‖ / ‖the stream it is added to‖. Added is the output of the branch, or of the norm "
    "behind it, as the layer has it; of a layer whose branches are in series, the second is added to the stream with "
    "the first. Counted only where stream + attention + MLP is the layer's output to 10⁻³ of what is added, at every "
    "token.",
    "cosine": "Between what the branch adds and the stream it is added to: positive where it writes along the stream, "
    "negative where it erases; 0 for a branch that adds nothing.",
    "ε masking": "ε / (σ² + ε), the share of ε in a norm's denominator (S0, section 2.1), mean over tokens (and "
    "heads). σ² is the mean over features of h², or of (h − mean h)² for a norm that centres. Shown at the norm's own "
    f"ε and at the usual {short(USUAL_EPS)}.",
    "S0": "The paper on small initialization.",
}


def residual_page(result: ResidualResult, provenance: Mapping[str, str]) -> Page:
    """Curves over layers of each model's newest step, over steps where there are several, and a table per layer."""
    newest = result.newest()
    steps = {member.model: member.step for member in newest}
    stream = [row for row in result.stream if row.step == steps[row.model]]
    norms = [row for row in result.norms if row.step == steps[row.model]]
    models = [member.model for member in newest]
    names = ", ".join(models)
    return Page(
        title=f"Residual stream of {names}",
        lead=f"How the residual stream goes through the layers, on {result.data}: {_counted(newest)}. All tokens that "
        "were read, of one set of weights each; documents are not resampled, so nothing here has an error bar or "
        "interval, and another seed or text may differ.",
        sections=[
            Section("Models and tokens", tables=[members_table(result.members)], problems=result.problems),
            *_steps_sections(result),
            _stream_section(result, stream, models),
            _branches_section(stream, models),
            *_masking_section([row for row in norms if row.tokens == "others"], models),
            _tables_section(stream, norms, models),
        ],
        definitions=DEFINITIONS,
        provenance=provenance,
    )


def _counted(members: Sequence[Member]) -> str:
    first = members[0]
    told = f"{count(first.tokens)} tokens in {count(first.documents)} documents"
    return told + ("" if len({member.tokens for member in members}) == 1 else f" (of {first.model})")


def _stream_section(result: ResidualResult, rows: Sequence[StreamRow], models: Sequence[str]) -> Section:
    picture = Picture(
        "stream",
        stream_figure(rows, models),
        "Size of the stream over layers, medians (lines) and means (dotted) over tokens; logarithmic axes. Left the "
        "tokens after the first, right the first token of each document. Where the two part, a few tokens are massive.",
        "Rms, variance, largest over median feature and flow of the residual stream over layers.",
    )
    several = bool(result.measured_over_steps())
    told = ["Here and below: the last step of each run."] if several else []
    summary = summary_table([row for row in rows if row.tokens == "others"], models, brief=not several)
    return Section("Size of the stream", told, [picture], [summary])


def _branches_section(rows: Sequence[StreamRow], models: Sequence[str]) -> Section:
    if all(row.attn_ratio is None and row.mlp_ratio is None for row in rows):
        return Section("What the branches add", ["Not measured in any layer; the reasons stand above."])
    pictures = [
        Picture(
            f"branches_{group}",
            branches_figure(rows, models, group),
            f"{told}: what attention and MLP of each layer add against the stream that they add it to, as a ratio of "
            "norms (logarithmic; lines: medians, dotted: means) and as a cosine (means). Above 0 a branch adds to what "
            "is there, below 0 it erases.",
            f"Ratios and cosines of branches over layers, {told}.",
        )
        for group, told in (("others", "Tokens after the first"), ("first", "First token of each document"))
        if any(row.tokens == group for row in rows)
    ]
    return Section("What the branches add", pictures=pictures)


def _masking_section(rows: Sequence[NormRow], models: Sequence[str]) -> list[Section]:
    kinds = {
        "masking": (("stream", "branch"), "Norms of the stream and behind branches; the last one is the head's."),
        "masking_inside": (("attn", "mlp"), "Norms within branches: of queries, keys and latents."),
    }
    pictures = [
        Picture(
            name,
            masking_figure([row for row in rows if row.reads in reads], models),
            f"{told} Share of ε in the denominator, mean over the tokens after the first; logarithmic axes.",
            "Masking ratio of norms over layers, at their own and at the usual epsilon.",
        )
        for name, (reads, told) in kinds.items()
        if any(row.reads in reads for row in rows)
    ]
    return [Section("What epsilon masks", pictures=pictures)] if pictures else []


def _steps_sections(result: ResidualResult) -> list[Section]:
    """A section for each run of which several steps were measured."""
    sections = []
    for place, model in enumerate(result.measured_over_steps()):
        rows = [row for row in result.stream if row.model == model]
        steps = result.steps(model)
        told = f"{model}, {len(steps)} checkpoints from step {steps[0]} to {steps[-1]}, tokens after the first"
        pictures = [
            Picture(
                f"layers_by_step_{place}", steps_figure(rows), f"{told}: medians over layers, a colour a step (of "
                "cosines means).", "Measures over layers at each step.",
            ),
            Picture(
                f"trajectories_{place}", trajectories_figure(rows), f"{told}: the same over steps, a line a layer.",
                "Measures of each layer over steps.",
            ),
        ]  # fmt: skip
        norms = [row for row in result.norms if (row.model, row.tokens) == (model, "others")]
        if norms := [row for row in norms if row.reads in ("stream", "branch")]:
            pictures.append(
                Picture(
                    f"masking_steps_{place}", masking_steps_figure(norms),
                    f"{told}: share of ε in the denominators of the stream's norms over steps.",
                    "Masking ratio of norms over steps.",
                )
            )  # fmt: skip
        sections.append(Section(f"During training: {model}", pictures=pictures, tables=[steps_table(result, model)]))
    return sections


def _tables_section(stream: Sequence[StreamRow], norms: Sequence[NormRow], models: Sequence[str]) -> Section:
    tables = []
    for model in models:
        for group, told in (("others", "tokens after the first"), ("first", "first tokens")):
            own = [row for row in stream if (row.model, row.tokens) == (model, group)]
            if own:
                tables.append(layer_table(f"{model}, {count(own[0].count)} {told}", own, folded=group == "first"))
        own = [row for row in norms if (row.model, row.tokens) == (model, "others")]
        if own:
            tables.append(norm_table(f"{model}, norms, tokens after the first", own))
    return Section("Layer by layer", tables=tables)
