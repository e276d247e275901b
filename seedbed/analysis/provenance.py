"""What was run on what: the lines at the end of every page."""

from collections.abc import Mapping

from seedbed.analysis.run import versions


def provenance(
    command: str, models: Mapping[str, Mapping[str, str]], texts: str = "", hashes: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The command as it was typed, what tells the files of ``models`` apart (their paths as given, and of each its
    `fingerprint`), the texts that were read with ``hashes`` of them, and versions."""
    lines = {"command": command}
    for model, files in models.items():
        lines |= {f"{model}: {file}": _told(found) for file, found in files.items()}
    if texts:
        lines["texts"] = texts
    lines |= {name: _told(found) for name, found in (hashes or {}).items()}
    return lines | versions()


def _told(found: str) -> str:
    """A fingerprint is a hash, or says in words what it is."""
    return found if " " in found else f"SHA-256 {found}"
