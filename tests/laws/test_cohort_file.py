"""The cohort's file: strict, never stale, and its curves between their depths."""

import json
import os
import re
from pathlib import Path

import pytest
from cohorts import by_hand, write

from seedbed.errors import InputError
from seedbed.laws.cohort import GRID, SHIPPED, component_of, read_cohort

RMS = {"attn.qkv": (0.04, 0.02, 0.01), "mlp.down": (0.01, 0.02, 0.08)}


def test_rms_is_linear_between_depths():
    cohort = by_hand(RMS)
    assert [cohort.rms("attn.qkv", z) for z in (0, 0.25, 1)] == [0.04, 0.02, 0.01]
    assert cohort.rms("attn.qkv", 0.125) == pytest.approx(0.03)
    assert cohort.rms("mlp.down", 0.5) == pytest.approx(0.04)


def test_the_mean_weighs_depths_by_their_distance():
    # trapezoids: 0.25 * 0.03 + 0.75 * 0.015, not the mean of three values
    assert by_hand(RMS).mean_rms("attn.qkv") == pytest.approx(0.01875)


@pytest.mark.parametrize("role", ["attn.q", "attn.k", "attn.v", "attn.qkv"])
def test_queries_keys_and_values_are_one_component(role):
    assert component_of(role) == "attn.qkv"
    assert by_hand(RMS).rms(role, 0.0) == 0.04


def test_another_component_set_is_named():
    with pytest.raises(InputError, match=r"it has attn\.qkv, mlp\.down, and no mlp\.gate"):
        by_hand(RMS).rms("mlp.gate", 0.0)


def test_a_file_reads_back_as_it_was_written(tmp_path):
    path = write(tmp_path / "c.json", RMS)
    assert read_cohort(path) == by_hand(RMS)
    assert read_cohort(path) is read_cohort(path)  # parsed once


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "c.json"
    write(path, RMS)
    stat = path.stat()
    assert read_cohort(str(path)).rms("mlp.down", 1) == 0.08
    write(path, RMS | {"mlp.down": (0.01, 0.02, 0.09)})  # of the same length
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert read_cohort(str(path)).rms("mlp.down", 1) == 0.09


def changed(**values) -> str:
    return json.dumps(json.loads(by_hand(RMS).to_json()) | values)


COMPONENT = json.loads(by_hand(RMS).to_json())["components"]["attn.qkv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a cohort"),
        ("[1]", "not a cohort"),
        ("[" * 100_000, "not a cohort"),
        ('{"a": 1}', "not a cohort"),
        ("\xff", "not a cohort"),
        (changed(format="other"), "not a cohort"),
        (changed(format_version=2), "format_version 2, this release reads 1"),
        (changed(more=1), r"damaged \(more: "),
        (changed(depth=[0, 0.5, 0.5]), "depth does not rise from 0 to 1"),
        (changed(depth=[0, 0.5, 0.9]), "depth does not rise from 0 to 1"),
        (changed(depth=[0, 1]), "a curve of attn.qkv has not one value a depth"),
        (changed(components={"x": COMPONENT | {"rms": {"mean": [1.0, 1.0, 0.0], "std": None}}}), "greater than 0"),
        (changed(components={"x": COMPONENT | {"rms": {"mean": [1.0, 1.0, 1.0], "std": [0.1]}}}), "a curve of x"),
        (changed(components={"x": COMPONENT | {"rms": {"mean": [1.0, 1.0, "1"], "std": None}}}), "number"),
        (changed(components={"x": {}}), "damaged"),
    ],
)
def test_what_is_no_cohort_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "c.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message) as caught:
        read_cohort(str(path))
    assert str(caught.value).startswith(f"cohort {path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match="make one with `seedbed analyze cohort`"):
            read_cohort(str(path))


def test_the_shipped_cohort_says_how_it_was_made():
    cohort = read_cohort(None)
    assert cohort.depth == GRID
    assert set(cohort.components) >= {"attn.qkv", "attn.o", "attn.gate", "mlp.gate", "mlp.up", "mlp.down"}
    assert "recipes/cohort/make.sh" in cohort.note
    assert (Path(__file__).parents[2] / "recipes" / "cohort" / "make.sh").is_file()
    assert all(0.001 < value < 1 for one in cohort.components.values() for value in one.rms.mean)
    assert all(0 < value < 1 for one in cohort.components.values() for value in one.rank_share.mean)
    assert cohort.command.startswith("seedbed analyze cohort runs/cohort/")
    assert not re.search(r"(^|[\s\"'])/", SHIPPED.read_text())  # no paths of the machine it was made on
