import warnings
from dataclasses import dataclass

import pytest
from matplotlib.figure import Figure

from seedbed.measure.table import Rows
from seedbed.report.results import write_results
from seedbed.report.sections import Page, Picture, Section


def page(title: str) -> Page:
    figure = Figure()
    figure.add_subplot().set_title(title)
    return Page(
        "A page", "what it is", [Section("One", pictures=[Picture("one", figure, "a caption", "a figure")])], {}
    )


def test_characters_without_a_font_are_told_once(tmp_path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        write_results(tmp_path, page("\U000f0000\U000f0001"), {}, {})
    (warning,) = told
    assert "no font here has 2 characters (\U000f0000\U000f0001)" in str(warning.message)
    assert (tmp_path / "figures" / "one.png").read_bytes().startswith(b"\x89PNG")


def test_other_warnings_of_a_figure_are_shown(tmp_path, monkeypatch):
    save = Figure.savefig

    def warned(self, *args, **kwargs):
        warnings.warn("something else", stacklevel=2)
        return save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", warned)
    with pytest.warns(UserWarning, match="something else"):
        write_results(tmp_path, page("x"), {}, {})


@dataclass(frozen=True)
class Row:
    n: int


def test_tables_and_figures_of_an_earlier_result_do_not_stay(tmp_path):
    table = Rows([Row(1)])
    write_results(tmp_path, page("x"), {"old": table, "both": table}, {})
    (tmp_path / "notes.md").write_text("mine")
    (tmp_path / "figures" / "one.png").rename(tmp_path / "figures" / "gone.png")
    (tmp_path / "figures" / "one.svg").rename(tmp_path / "figures" / "gone.svg")
    write_results(tmp_path, page("y"), {"both": table, "new": table}, {})
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        "report.html", "result.json", "both.csv", "new.csv", "figures/one.svg", "figures/one.png", "notes.md",
    }  # fmt: skip


def test_an_earlier_result_stays_whole_until_the_new_files_are_there(tmp_path, monkeypatch):
    write_results(tmp_path, page("x"), {"old": Rows([Row(1)])}, {})

    def full(self, *args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(OSError, match="no space"):
        write_results(tmp_path, page("y"), {}, {})
    assert (tmp_path / "old.csv").exists()
