import warnings

import pytest
from matplotlib.figure import Figure

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
