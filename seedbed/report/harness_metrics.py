"""What lm-evaluation-harness's metrics are, for pages."""

from collections.abc import Iterable

_METRICS = {
    "acc": "The share of items whose right answer has the highest summed log-probability of all its choices.",
    "acc_norm": "The same, with each log-probability divided by the number of the choice's characters.",
    "exact_match": "The share of items whose answer, which the model writes, is one of those that are right. Behind "
    "the comma: the harness's filter that takes the answer out of the text.",
    "word_perplexity": "exp of the summed loss / the words of the text, parted at white space.",
    "byte_perplexity": "exp of the summed loss / the bytes of the text (UTF-8).",
    "bits_per_byte": "Summed loss / ln 2 / the bytes of the text (UTF-8), as the harness cuts the text into windows.",
}


def harness_definitions(metrics: Iterable[str]) -> dict[str, str]:
    """Of those among ``metrics`` that are the harness's, whatever filter they have."""
    named = {metric.split(",")[0] for metric in metrics}
    return {name: told for name, told in _METRICS.items() if name in named}
