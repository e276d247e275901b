"""A page of sections: headings with text, figures and tables, definitions of the numbers, and what was run on what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from markupsafe import Markup
from matplotlib.figure import Figure

from seedbed.report.render import inline, render


@dataclass(frozen=True)
class Picture:
    name: str
    """Of its files: `spectra` becomes figures/spectra.svg and .png. One a page."""
    figure: Figure
    caption: str
    """What is shown: axes, units, counts, how it was computed."""
    description: str
    """What a screen reader says."""

    @cached_property
    def svg(self) -> Markup:
        """Drawn once, for the page and for a file of its own."""
        return inline(self.figure, self.description)


@dataclass(frozen=True)
class TableView:
    """Cells as text, for page and terminal alike."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    """So many columns are text; the others are numbers, set to the right."""
    notes: int = 0
    """So many of the last columns are text that may be long."""
    brief: bool = True
    """Shown in the terminal too."""
    folded: bool = False
    """On a page behind a click: long."""


@dataclass(frozen=True)
class Section:
    title: str
    paragraphs: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[TableView] = ()
    problems: Sequence[str] = ()
    """What could not be measured, with the reason."""
    html: Markup = field(default_factory=Markup)
    """Markup of ours behind all of these; whatever comes from outside is escaped in it."""


@dataclass(frozen=True)
class Page:
    title: str
    lead: str
    """What was measured on what, and what the numbers have no error bar over."""
    sections: Sequence[Section]
    definitions: Mapping[str, str]
    """Of each number: how it is computed, with units."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Files, versions, the command."""
    tiles: Mapping[str, str] = field(default_factory=dict)
    """The few numbers that come first: {what: number}."""

    @property
    def pictures(self) -> list[Picture]:
        return [picture for section in self.sections for picture in section.pictures]


def page_html(page: Page) -> str:
    """One HTML file that needs no network; every text is escaped."""
    return render("sections.html", page=page)
