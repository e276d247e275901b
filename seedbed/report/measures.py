"""What the measures of weights are called: one name in every figure, table and definition, and beside it the column of
CSV and JSON."""

NAMES = {
    "std": "std of entries",
    "stable_rank": "stable rank",
    "entropy_rank": "effective rank",
    "er90": "ER@90 % (share of r)",
    "er95": "ER@95 % (share of r)",
    "er99": "ER@99 % (share of r)",
    "row_cosine": "mean |cos| of rows",
}
EFFECTIVE_RANK = "exp(−Σ p log p), p = σ / Σσ: the entropy of the singular values (S2). In CSV and JSON: entropy_rank."
ENERGY = (
    "The share of the r = min(m, n) singular values, the largest first, that holds q % of the sum of all squares (S1). "
    "In CSV and JSON: er90, er95, er99."
)


def heading(measure: str) -> str:
    """The name with a capital, for the head of a table."""
    name = NAMES[measure]
    return f"{name[0].upper()}{name[1:]}"
