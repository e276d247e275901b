"""Which folders are checkpoints of a run."""

from seedbed.files.steps import step_folders


def test_newest_first_and_nothing_else(tmp_path):
    names = ["step_00000009", "step_00000010", "step_123456789", "step_00000011.bak", "step_12", "step_0000000x"]
    for name in names:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    (tmp_path / "checkpoints" / "step_00000012").write_text("a file")
    assert [path.name for path in step_folders(tmp_path)] == ["step_123456789", "step_00000010", "step_00000009"]
    assert step_folders(tmp_path / "none") == []
