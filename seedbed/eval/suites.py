"""Suites of tasks by name: what the sources report, in their order and under their names."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One number of a suite's table."""

    label: str
    """As the source prints it."""
    task: str
    metric: str
    """Of those that the task has, with its filter, as lm-evaluation-harness names them."""


@dataclass(frozen=True)
class Suite:
    title: str
    columns: tuple[Column, ...]
    stated: str
    """What the source says of how it was measured, and what is our choice."""

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(column.task for column in self.columns)


SUITES = {
    "s0": Suite(
        "S0, table 1",
        (
            Column("ARC-C", "arc_challenge", "acc_norm"),
            Column("TriviaQA", "triviaqa", "exact_match,remove_whitespace"),
            Column("MMLU", "mmlu", "acc"),
            Column("HellaSwag", "hellaswag", "acc_norm"),
            Column("BBH", "bbh", "exact_match,get-answer"),
            Column("SocialIQA", "social_iqa", "acc"),
            Column("GSM8K", "gsm8k", "exact_match,strict-match"),
            Column("MATH500", "hendrycks_math500", "exact_match"),
        ),
        "S0 (section 4.5) names lm-evaluation-harness and the benchmarks, neither metrics nor numbers of examples. "
        "(choice) The harness's tasks with its own numbers of examples: 3 for BBH, 5 for GSM8K, else none; length-"
        "normalised accuracy where the harness has one, so for ARC-C and HellaSwag.",
    ),
    "s2": Suite(
        "S2, table 3",
        (
            Column("WikiText", "wikitext", "word_perplexity"),
            Column("BLiMP", "blimp", "acc"),
            Column("ARC-C", "arc_challenge", "acc_norm"),
            Column("ARC-E", "arc_easy", "acc_norm"),
            Column("WinoG", "winogrande", "acc"),
        ),
        "S2 (section 3.2) names the benchmarks, neither a harness nor metrics. (choice) lm-evaluation-harness's tasks "
        "without examples; length-normalised accuracy for ARC; WikiText-103's test set, which is WikiText-2's too, by "
        "the perplexity of its words (S2's is of GPT-2's tokens).",
    ),
}
