"""What may be replaced, and what is never touched."""

from few_texts import files_in


def test_overwrite_and_damage(seedbed, prepare, tmp_path):
    assert seedbed(*prepare)[0] == 0
    code, _, err = seedbed(*prepare, "--seq-len", 8)
    assert code == 2
    assert "packing.seq_len was 256, asked is 8; choose another name or pass --overwrite" in err
    assert seedbed(*prepare, "--overwrite", "--seq-len", 8)[0] == 0
    shard = tmp_path / "s" / "train" / "00000" / "tokens.bin"
    raw = shard.read_bytes()
    shard.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    code, out, err = seedbed("data", "inspect", tmp_path / "s")
    assert (code, out) == (2, "")
    assert "train/00000/tokens.bin changed" in err


def test_overwrite_spares_what_is_not_its_own(seedbed, corpus, prepare, tmp_path):
    """Folders of people, of the other kind, and those that hold an input, by whatever name."""
    assert seedbed(*prepare)[0] == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    inside = tmp_path / "s" / "b.jsonl"
    inside.write_text(corpus.read_text())
    make = ("data", "prepare", corpus, "--tokenizer", tmp_path / "t", "--overwrite", "--workers", 1, "-o")
    train = ("tokenizer", "train", corpus, "--vocab-size", 262, "--overwrite", "-o")
    before = files_in(tmp_path)
    for arguments, problem in (
        ((*make, tmp_path / "mine"), "is not a store made here"),
        ((*make, tmp_path / "t"), f"holds the input {tmp_path / 't'}"),
        ((*make, tmp_path / "link"), f"holds the input {tmp_path / 't'}"),
        ((*make, tmp_path), f"holds the input {corpus}"),
        ((*make, tmp_path / "s"), "holds b.jsonl"),
        (("data", "prepare", inside, *make[3:], tmp_path / "s"), f"holds the input {inside}"),
        ((*train, tmp_path / "s"), "is not a folder made here with a tokenizer.json"),
        ((*train, tmp_path / "mine"), "is not a folder made here with a tokenizer.json"),
        ((*train, tmp_path), f"holds the input {corpus}"),
    ):
        code, out, err = seedbed(*arguments)
        assert (code, out) == (2, "")
        assert problem in err.splitlines()[-1], err
    assert files_in(tmp_path) == before
    inside.unlink()
    assert seedbed(*make, tmp_path / "s")[0] == 0
    assert seedbed(*train, tmp_path / "t")[0] == 0


def test_quickstart_spares_folders_it_did_not_make(seedbed, tmp_path):
    """Refused before any work, also where only the second of its folders is somebody's."""
    for name in ("store", "tokenizer"):
        folder = tmp_path / name / name
        folder.mkdir(parents=True)
        (folder / "mine").write_text("x")
        code, _, err = seedbed("quickstart", "--dir", tmp_path / name)
        assert code == 2
        assert f"{folder}: is not a {'store' if name == 'store' else 'folder'} made here" in err
        assert [path.name for path in (tmp_path / name).rglob("*")] == [name, "mine"]
