"""Flat rows have every measure."""

from dataclasses import fields

from seedbed.measure.rows import BESIDE, MatrixRow
from seedbed.measure.spectra import MatrixStats


def test_a_matrix_row_has_every_measure_and_what_stands_beside_it():
    names = {field.name for field in fields(MatrixRow)}
    assert {field.name for field in fields(MatrixStats)} - {"shape"} <= names
    for prefix in ("gaussian_", "ratio_"):
        assert {name for name in names if name.startswith(prefix)} == {f"{prefix}{measure}" for measure in BESIDE}
