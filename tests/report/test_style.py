"""Numbers of axes."""

import pytest
from matplotlib.figure import Figure

from seedbed.report.style import log_scale, short


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.02, "0.02"), (1e-4, "0.0001"), (1e-5, "10⁻⁵"), (3e-6, "3·10⁻⁶"), (-2e-12, "−2·10⁻¹²"),
     (1000.0, "1000"), (1e6, "10⁶"), (-0.5, "−0.5")],
)  # fmt: skip
def test_round_numbers_are_short(value, text):
    assert short(value) == text


def test_logarithmic_axes_say_decimals_where_they_are_short():
    axes = Figure().add_subplot()
    axes.plot([0, 1], [1e-6, 1])
    log_scale(axes, "y")
    axes.figure.draw_without_rendering()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert {"10⁻⁶", "10⁻⁵", "0.001", "0.1", "1"} <= set(labels)
