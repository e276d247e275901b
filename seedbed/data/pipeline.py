"""The stages between raw files and the shards of a store, top to bottom: units whose work other files have."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seedbed.data.copies import find_copies
from seedbed.data.header import FORMAT_VERSION
from seedbed.data.inputs import InputFile
from seedbed.data.job import VERSION, Job, total
from seedbed.data.minhash import SIGNATURE_VERSION
from seedbed.data.plan import EncodedPiece, plan_store
from seedbed.data.reading import Cleaned, clean
from seedbed.data.spec import Spec
from seedbed.data.stages import Engine, Unit, in_process, key_of, run_stage
from seedbed.data.steps import encode_piece, sign_piece
from seedbed.data.tokenizer import Tokenizer
from seedbed.data.write import cut_into_shards, write_records, write_shard
from seedbed.files.atomic import COMMIT, sha256


def run(
    spec: Spec,
    out: Path,
    files: list[InputFile],
    tokenizer: Tokenizer,
    template: str | None,
    engine: Engine,
    before_writing: Callable[[], None],
) -> dict[str, Any]:
    """Run what is not done yet; the shards stand in ``out``, an absolute path, everything else in ``out/work``.

    Until ``before_writing`` is called, when all input has been read and found good, only ``out/work`` changes; the
    tokenizer lies there already. Returns the header of the store. Raises what the stages raise.
    """
    job = Job(spec, out, files, tokenizer, template, engine)
    cleaned = clean(job)
    kept, duplicates, warnings = drop_copies(job, cleaned)
    encoding, skipped = encode(job, cleaned, kept)
    planning, plan = decide(job, cleaned, encoding)
    before_writing()
    streams = write(job, cleaned, encoding, planning, plan)
    if spec.dedup.exact or spec.dedup.near is not None:
        shutil.copyfile(job.work / "copies" / "duplicates.jsonl", out / "duplicates.jsonl")
    if spec.keep_rejects:
        _join_rejects(out / "rejects.jsonl", [*cleaned.units, *encoding])
    return {
        "format_version": FORMAT_VERSION,
        "packing": spec.packing.strategy,
        "seq_len": spec.packing.seq_len,
        "position_ids": spec.packing.position_ids,
        "storage": spec.storage.format,
        "dtype": job.dtype,
        "vocab_size": tokenizer.vocab_size,
        "padded_vocab_size": tokenizer.padded_size,
        "bos_id": tokenizer.bos_id,
        "eos_id": tokenizer.eos_id,
        "tokenizer_hash": tokenizer.hash,
        "lossless": tokenizer.lossless,
        "spec": spec.model_dump(mode="json"),
        "spec_hash": key_of("spec", spec.model_dump(mode="json")),
        "records": plan["records"],
        "streams": streams,
        "numbers": list(spec.numbers()),
        "groups": plan["groups"],
        "mixture": plan["mixture"],
        "skipped": dict(cleaned.skipped + skipped),
        "repaired": dict(cleaned.repaired),
        "duplicates": duplicates,
        "warnings": [*warnings, *plan["warnings"], *_idle_bins(streams, spec)],
    }


def drop_copies(job: Job, cleaned: Cleaned) -> tuple[np.ndarray, dict[str, int], list[str]]:
    """Which documents stay, [documents] bool in input order; how many copies went; what to warn of."""
    dedup = job.spec.dedup
    if not dedup.exact and dedup.near is None:
        return np.ones(sum(piece.documents for piece in cleaned.pieces), bool), {}, []
    signing: list[Unit] = []
    if (near := dedup.near) is not None:
        signing = [
            Unit(
                job.work / "sign" / f"{number:05d}",
                key_of("sign", VERSION, SIGNATURE_VERSION, near.ngram, near.permutations, key),
                sign_piece,
                (piece.folder, piece.name, near),
            )
            for number, (piece, key) in enumerate(zip(cleaned.pieces, cleaned.keys, strict=True))
        ]
        run_stage("signing", signing, job.engine)
    sources = [piece.source for piece in cleaned.pieces]  # which a warning names
    unit = Unit(
        job.work / "copies",
        key_of("copies", VERSION, job.asked("dedup"), cleaned.keys, sources, [unit.key for unit in signing]),
        find_copies,
        (cleaned.pieces, [unit.folder for unit in signing], dedup),
    )
    (facts,) = run_stage("looking for copies", [unit], in_process)
    counts = {"exact": facts["exact"], "near": facts["near"]}
    return np.load(unit.folder / "kept.npy"), counts, facts["warnings"]


def encode(job: Job, cleaned: Cleaned, kept: np.ndarray) -> tuple[list[Unit], Counter[str]]:
    """The unit of each piece, and what encoding left out. Raises InputError where no document is left."""
    meaning = job.asked("on_bad", "sections", "outputs", "keep_rejects")
    if job.spec.outputs is not None:  # then what is too long is left out whole
        meaning |= {"seq_len": job.spec.packing.seq_len}
    units, start = [], 0
    for number, (piece, key) in enumerate(zip(cleaned.pieces, cleaned.keys, strict=True)):
        alive, start = kept[start : start + piece.documents], start + piece.documents
        tokenizer = job.tokenizer.hash, job.tokenizer.bos_id, job.tokenizer.eos_id
        asked = meaning, np.packbits(alive).tobytes().hex(), job.dtype, tokenizer, job.template
        units.append(
            Unit(
                job.work / "encode" / f"{number:05d}",
                key_of("encode", VERSION, key, *asked),
                encode_piece,
                (piece.folder, piece.name, alive, job.spec, job.work / "tokenizer", job.template),
            )
        )
    facts = run_stage("encoding", units, job.engine)
    skipped = total(facts, "skipped")
    if not sum(fact["documents"] for fact in facts):
        raise job.nothing_left(cleaned.skipped + skipped)
    return units, skipped


def decide(job: Job, cleaned: Cleaned, encoding: Sequence[Unit]) -> tuple[Unit, dict[str, Any]]:
    """What stands where: the unit whose folder has it, and its counts."""
    pieces = [
        EncodedPiece(piece.folder / f"table-{piece.name}.npy", unit.folder, numbers)
        for piece, unit, numbers in zip(cleaned.pieces, encoding, cleaned.numbers, strict=True)
    ]
    asked = job.asked("heldout", "mixture", "packing", "outputs", "sections")
    unit = Unit(
        job.work / "plan",
        key_of("plan", VERSION, asked, [unit.key for unit in encoding], cleaned.numbers, cleaned.groups),
        plan_store,
        (pieces, job.spec, cleaned.groups),
    )
    return unit, run_stage("packing", [unit], in_process)[0]


def write(job: Job, cleaned: Cleaned, encoding: Sequence[Unit], planning: Unit, plan: dict[str, Any]) -> dict[str, Any]:
    """The shards of all streams, and of a store of several outputs its records; the streams for the header."""
    spec, folders = job.spec, [unit.folder for unit in encoding]
    goes_on = spec.packing.strategy in ("simple", "bfd_split")
    texts = [(piece.folder, piece.name) for piece in cleaned.pieces]
    units: dict[str, list[Unit]] = {}
    for stream in plan["streams"]:
        split, _, output = stream.partition(".")
        name = split if spec.outputs is None else f"{split}/{output}"
        asked = stream, job.dtype, spec.storage.format, goes_on
        units[name] = [
            Unit(
                job.out / name / f"{number:05d}",
                key_of("write", VERSION, planning.key, low, high, *asked),
                write_shard,
                (planning.folder, stream, low, high, folders, spec.storage.format, job.dtype, goes_on, texts),
            )
            for number, (low, high) in enumerate(
                cut_into_shards(planning.folder, stream, spec.packing.seq_len, spec.storage.shard_tokens)
            )
        ]
    records = [
        Unit(
            job.out / split / "records",
            key_of("records", VERSION, planning.key, split),
            write_records,
            (planning.folder, split, folders, list(spec.texts()), list(spec.numbers())),
        )
        for split in plan["records"]
        if spec.outputs is not None
    ]
    _remove_strangers(job.out, [*records, *(unit for shards in units.values() for unit in shards)])
    found = run_stage("writing", [*records, *(unit for shards in units.values() for unit in shards)], job.engine)
    facts = iter(found[len(records) :])
    streams = {}
    for (name, shards), counts in zip(units.items(), plan["streams"].values(), strict=True):
        listing = [{"name": unit.folder.name, **next(facts), "sha256": sha256(unit.folder / COMMIT)} for unit in shards]
        sums = {key: sum(shard.pop(key) for shard in listing) for key in ("predicted", "bins_without_targets")}
        streams[name] = {**counts, **sums, "shards": listing}
    return streams


def _idle_bins(streams: dict[str, Any], spec: Spec) -> list[str]:
    """Warnings of bins that teach nothing, in streams that should."""
    warnings = []
    for name, stream in streams.items():
        output = name.partition("/")[2] or "text"
        if stream["bins_without_targets"] and any(section.trains for section in spec.texts()[output]):
            warnings.append(
                f"{name}: {stream['bins_without_targets']:,} of {stream['bins']:,} bins have no token to predict "
                "(masked throughout, or the answer cut off); training stops at a batch of only such bins; a larger "
                "packing.seq_len makes fewer"
            )
    return warnings


def _remove_strangers(out: Path, units: Sequence[Unit]) -> None:
    """Remove what else lies beside shards, of earlier requests: a store has no file that its header lacks."""
    wanted = {unit.folder for unit in units}
    around = {parent for folder in wanted for parent in folder.parents}
    entries = [out / split for split in ("train", "heldout") if (out / split).is_dir()]
    while entries:
        entry = entries.pop()
        if entry in around:
            entries += entry.iterdir()
        elif entry not in wanted:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _join_rejects(file: Path, units: Sequence[Unit]) -> None:
    with open(file, "wb") as out:
        for unit in units:
            with open(unit.folder / "rejects.jsonl", "rb") as rejects:
                shutil.copyfileobj(rejects, out)
