"""Singular values and row cosines of a matrix of independent N(0, 1) entries, without making the matrix."""

import math
from functools import lru_cache

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

DRAWS = 255  # of condition numbers, whose median over square matrices is within 7 % (one standard error)
SPECTRUM_ENTRIES = 2**14  # values drawn in whole spectra: 255 spectra up to r = 64, 16 at r = 1024, at least 8


@lru_cache(maxsize=256)
def gaussian_spectra(long: int, r: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the singular values of a Gaussian matrix with sides ``long`` >= r: whole spectra [k, r], descending,
    and the largest and the smallest value of ``DRAWS`` spectra [255, 2].

    Householder reflections leave a bidiagonal matrix of independent chi variables, with ``long`` to ``long - r + 1``
    degrees of freedom on the diagonal and r - 1 to 1 beside it (Silverstein 1985; Dumitriu and Edelman 2002). So a
    draw has exactly the law of a full matrix's and takes r^2 operations instead of long r^2, or r for its two ends.
    The generator is its own: the same draws each time.
    """
    generator = np.random.default_rng([long, r])
    whole = min(DRAWS, max(8, SPECTRUM_ENTRIES // r))
    spectra, ends = np.empty((whole, r)), np.empty((DRAWS, 2))
    for draw in range(DRAWS):
        diagonal = generator.chisquare(long - np.arange(r))  # squares of the bidiagonal matrix's entries
        beside = generator.chisquare(r - 1 - np.arange(r - 1))
        gram = diagonal + np.concatenate([[0.0], beside]), np.sqrt(diagonal[:-1] * beside)
        if draw < whole:
            squares = eigvalsh_tridiagonal(*gram)[::-1]
            spectra[draw] = np.sqrt(np.maximum(squares, 0))
            ends[draw] = spectra[draw, [0, -1]]
        else:
            both = [eigvalsh_tridiagonal(*gram, select="i", select_range=(place, place))[0] for place in (r - 1, 0)]
            ends[draw] = np.sqrt(np.maximum(both, 0))
    return spectra, ends


def gaussian_cosine(n: int) -> float:
    """Mean ``|cos|`` of two independent Gaussian vectors of n entries, exactly; about ``sqrt(2 / (pi n))``."""
    return math.exp(math.lgamma(n / 2) - math.lgamma((n + 1) / 2)) / math.sqrt(math.pi)
