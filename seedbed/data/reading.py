"""The first stage: input becomes pieces of cleaned text. A unit reads small files together or a part of a large one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seedbed.data.copies import PieceOfText
from seedbed.data.formats import is_divisible
from seedbed.data.inputs import InputFile, Part
from seedbed.data.job import VERSION, Job, total
from seedbed.data.layout import GROUPS
from seedbed.data.stages import Unit, key_of, run_stage
from seedbed.data.steps import PIECE_BYTES, clean_files, count_lines
from seedbed.errors import InputError
from seedbed.files.atomic import listed

PART_BYTES = 4 * PIECE_BYTES  # of a large file in a unit, whose last piece is smaller than the others


@dataclass
class Cleaned:
    """All pieces of cleaned text, in input order."""

    units: list[Unit]
    pieces: list[PieceOfText]
    keys: list[str]
    """A hash of the content of each piece."""
    groups: list[tuple[str, str]]
    """(domain, language) of all documents."""
    numbers: list[list[int]]
    """For each piece: the place of its file's groups in ``groups``."""
    skipped: Counter[str]
    repaired: Counter[str]


def clean(job: Job) -> Cleaned:
    """Read, clean and filter the files, large ones in parts. Raises InputError where no document is left."""
    reading = job.asked("on_bad", "sections", "outputs", "min_chars", "max_chars", "clean", "filters", "keep_rejects")
    parts = [part for file in job.files for part in parts_of(file, PART_BYTES)]
    runs = file_runs(number_lines(job, parts), PIECE_BYTES)
    units = [
        Unit(
            job.work / "clean" / f"{number:05d}",
            key_of(
                "clean",
                VERSION,
                reading,
                files[0].source.model_dump(mode="json"),
                [(file.path, file.fingerprint, file.part) for file in files],
            ),
            clean_files,
            (files, job.spec),
        )
        for number, files in enumerate(runs)
    ]
    facts = run_stage("reading and cleaning", units, job.engine)
    groups = sorted({(domain, lang) for fact in facts for domain, lang in fact["groups"]})
    if len(groups) > GROUPS:
        raise InputError(
            f"documents have {len(groups):,} different pairs of domain and language, {GROUPS:,} at most; set domain, "
            "domain_field or lang_field of the sources to what has fewer values"
        )
    result = Cleaned(units, [], [], groups, [], total(facts, "skipped"), total(facts, "repaired"))
    for unit, files, fact in zip(units, runs, facts, strict=True):
        hashes = {name: digest for name, (_, digest) in listed(unit.folder).items()}
        for piece in fact["pieces"]:
            name = piece["name"]
            result.pieces.append(PieceOfText(unit.folder, name, files[0].source.path, piece["documents"]))
            result.keys.append(key_of(hashes[f"documents-{name}.jsonl"], hashes[f"table-{name}.npy"]))
            result.numbers.append([groups.index((domain, lang)) for domain, lang in fact["groups"]])
    if not result.pieces:
        raise job.nothing_left(result.skipped)
    return result


def file_runs(files: Sequence[InputFile], enough: int) -> list[list[InputFile]]:
    """Neighbours of one source that have ``enough`` bytes together, or one that has them alone: a unit each.

    A part of a file counts as the bytes that it has.
    """
    runs: list[list[InputFile]] = []
    size = 0
    for file in files:
        if not runs or size >= enough or runs[-1][0].source != file.source:
            runs.append([])
            size = 0
        runs[-1].append(file)
        start, stop = file.part.bounds(file.size)
        size += stop - start
    return runs


def parts_of(file: InputFile, most: int) -> list[InputFile]:
    """A file in equal parts of at most ``most`` bytes; whole, where it is smaller or parts of it cannot be read."""
    count = -(-file.size // most)
    if count < 2 or not is_divisible(file):
        return [file]
    return [file._replace(part=Part(number, count)) for number in range(count)]


def number_lines(job: Job, files: Sequence[InputFile]) -> list[InputFile]:
    """Tell parts of JSONL the number of their first line; those in which no line begins are left out."""

    def is_counted(file: InputFile) -> bool:
        return file.format == "jsonl" and file.part.of > 1

    units = [
        Unit(
            job.work / "lines" / f"{number:05d}",
            key_of("lines", VERSION, file.path, file.fingerprint, file.part),
            count_lines,
            (file,),
        )
        for number, file in enumerate(filter(is_counted, files))
    ]
    counts = iter(run_stage("counting lines", units, job.engine))
    numbered, line = [], 1
    for file in files:
        if not is_counted(file):
            numbered.append(file)
            continue
        if file.part.number == 0:
            line = 1
        if lines := next(counts)["lines"]:
            numbered.append(file._replace(part=file.part._replace(line=line)))
        line += lines
    return numbered
