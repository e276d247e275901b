"""The page of two studies side by side."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from seedbed.report.render import count, signed
from seedbed.report.sections import Page, Picture, Section, TableView
from seedbed.report.study_compare_rows import SharedRow, StudiesCompared
from seedbed.report.study_definitions import DEFINITIONS
from seedbed.report.study_sentences import TOLD_APART
from seedbed.report.study_tables import PLACES, between, p_told
from seedbed.report.style import BLUE, GREY, WIDTH, panels, short, style

MOST = 40
"""Cells that the figure has a line for."""


def study_compare_page(result: StudiesCompared, provenance: Mapping[str, str]) -> Page:
    """Losses of the cells that both studies have, B less A, and the settings in which they differ."""
    smoke = " SMOKE: no cell has two seeds on both sides." if result.smoke else ""
    only = [f"A alone: {one}" for one in result.only_a] + [f"B alone: {one}" for one in result.only_b]
    rows = [[row.path, row.arm, row.size, row.value_a, row.value_b] for row in result.settings]
    settings = TableView("Settings in which they differ", ["setting", "arm", "size", "A", "B"], rows, left=5)
    alike = "None differ in the cells that both have." if result.shared else "No cell in common: none are compared."
    sections = [Section("What was found", _found(result)), *_cells(result)]
    sections.append(Section("Settings", tables=[settings]) if rows else Section("Settings", [alike]))
    if only:
        alone = TableView("Not compared", ["cell"], [[one] for one in only], folded=True, brief=False)
        sections.append(Section("What only one of them has", [f"{len(only)} cells."], tables=[alone]))
    kept = ("loss", "arm, size, share", "seed", "tokens", "sd, 95 % interval")
    return Page(
        title=f"Studies {result.name_a} and {result.name_b}" + (" (smoke)" if result.smoke else ""),
        lead=f"A, {result.name_a}: {result.question_a} B, {result.name_b}: {result.question_b}{smoke}",
        sections=sections,
        definitions={
            **{key: DEFINITIONS[key] for key in kept},
            "difference": f"Loss of B less that of A, {result.unit}. Paired: runs of one seed on the same data and as "
            f"many "
            "tokens, paired t test. Welch: difference of means of seeds that do not pair, unequal spread.",
            "p (Holm)": "Corrected by Holm's step-down over all cells that both have at the same share of the budget.",
        },
        provenance={
            **provenance,
            **{f"A: data {store}": f"SHA-256 {told}" for store, told in result.data_a.items()},
            **{f"B: data {store}": f"SHA-256 {told}" for store, told in result.data_b.items()},
            **{f"A: {name}": version for name, version in result.versions_a.items()},
            **{f"B: {name}": version for name, version in result.versions_b.items()},
        },
    )


def difference_figure(rows: list[SharedRow], unit: str) -> Figure:
    """Differences of cells with their intervals, a line each, in the order of the table."""
    rows = rows[:MOST][::-1]
    with style():
        figure, (panel,) = panels(1, 1, WIDTH, 1.2 + 0.27 * len(rows))
        low = [0.0 if row.low is None else row.difference - row.low for row in rows]
        high = [0.0 if row.high is None else row.high - row.difference for row in rows]
        look = {"fmt": "o", "color": BLUE, "capsize": 2.5, "elinewidth": 1, "markersize": 5}
        panel.errorbar([row.difference for row in rows], range(len(rows)), xerr=[low, high], **look)
        panel.axvline(0, color=GREY, linewidth=0.9)
        panel.set_yticks(range(len(rows)), [f"{row.arm}, {row.size}" for row in rows])
        panel.set_xlabel(f"B less A ({unit})")
        return figure


def _found(result: StudiesCompared) -> list[str]:
    if not result.shared:
        return ["They have no finished cell in common: no arm of the same levels, size and share."]
    data = (
        "Both read the same data."
        if result.same_data
        else "They read different data, so that losses are in bits per byte, and nothing pairs."
    )
    cells = [row for row in result.shared if row.share == 1.0]
    whole = [row for row in cells if not row.same]
    if same := len(cells) - len(whole):
        data += f" {same} of {len(cells)} cells of the whole budget are the same runs in both: nothing to compare."
    if not whole:
        return [data]
    if result.smoke:
        return [
            data,
            f"{len(whole)} cells of the whole budget are in both, none with two seeds on both sides: nothing says how "
            "far chance reaches.",
        ]
    apart = [row for row in whole if row.p_holm is not None and row.p_holm <= TOLD_APART]
    below, above = sum(row.difference < 0 for row in apart), sum(row.difference > 0 for row in apart)
    others = " that are not the same runs" if same else ""
    told = (
        f"Of {len(whole)} cells of the whole budget{others} B ended below A in {below}, above it in {above}, and "
        f"{len(whole) - len(apart)} are not told apart."
    )
    return [data, told, *(_sentence(row, result.unit) for row in apart)]


def _sentence(row: SharedRow, unit: str) -> str:
    side = "below" if row.difference < 0 else "above"
    p = p_told(row.p_holm)
    return (
        f"{row.arm}, {row.size}: B ended {abs(row.difference):.{PLACES}f} {unit} {side} A (difference "
        f"{between(row.low, row.high)} with 95 %, p {p if p.startswith('<') else f'= {p}'} after Holm over "
        f"{row.family}, "
        f"{row.method})."
    )


def _cells(result: StudiesCompared) -> list[Section]:
    if not result.shared:
        return []
    columns = ["arm", "size", "share", "tokens, A", "B", "loss, A", "seeds", "B", "seeds", "B less A"]
    columns += ([] if result.smoke else ["95 % interval", "p", "p (Holm)"]) + ["method"]
    rows = []
    for row in result.shared:
        line = [row.arm, row.size, short(row.share), count(row.tokens_a), count(row.tokens_b)]
        line += [f"{row.mean_a:.{PLACES}f}", str(row.n_a), f"{row.mean_b:.{PLACES}f}", str(row.n_b)]
        line.append(signed(row.difference, PLACES))
        line += [] if result.smoke else [between(row.low, row.high), p_told(row.p), p_told(row.p_holm)]
        rows.append([*line, row.method])
    whole = [row for row in result.shared if row.share == 1.0 and not row.same]
    more = f" The first {MOST} of {len(whole)} cells." if len(whole) > MOST else ""
    bars = "no error bars" if result.smoke else "bars are 95 % intervals"
    picture = Picture(
        "differences",
        difference_figure(whole, result.unit),
        f"Loss of B less that of A in the cells that both have, whole budget; {bars}.{more}",
        "Differences between the studies by cell.",
    )
    table = TableView(f"Loss, {result.unit}", columns, rows, left=2)
    return [Section("Cells that both have", pictures=[picture] if whole else [], tables=[table])]
