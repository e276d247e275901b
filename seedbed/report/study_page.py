"""The page of a study."""

from collections.abc import Mapping

from seedbed.report.sections import Page
from seedbed.report.study_rows import StudyResult


def study_page(result: StudyResult, provenance: Mapping[str, str]) -> Page:
    """What a study asked and found; ``provenance`` has the command that repeats it."""
    return Page(f"Study {result.name}", result.question, [], {}, provenance)
