"""Which files make a unit together."""

from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.inputs import InputFile
from seedbed.data.reading import file_runs
from seedbed.data.sections import Source

SOURCES = [Source(path="a"), Source(path="b")]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20)), max_size=30), st.integers(1, 30))
def test_files_share_a_unit_until_they_have_enough(drawn, enough):
    files = [
        InputFile(f"{i}", SOURCES[source], "jsonl", size, "")
        for i, (source, size) in enumerate(sorted(drawn, key=lambda pair: pair[0]))
    ]
    runs = file_runs(files, enough)
    assert [file for run in runs for file in run] == files
    for i, run in enumerate(runs):
        size = sum(file.size for file in run)
        assert len({file.source.path for file in run}) == 1
        assert len(run) == 1 or size - run[-1].size < enough  # without the last there was not enough
        if i + 1 < len(runs) and runs[i + 1][0].source == run[0].source:
            assert size >= enough
