"""What is claimed of the trajectories of weights, by the optimizer that moves them."""

from collections.abc import Mapping

CLAIMS = {
    "adamw": "The claim to test (S0 figs. 4 to 8, under AdamW): from a small initialization (γ = 1) the stable rank "
    "falls steeply and climbs back, while from γ = ½ it starts high and drifts. Rows that align show as a mean |cos| "
    "above the Gaussian value.",
    "muon": "Muon's updates are orthogonal, more even than a random matrix, and hide the condensation that S0 shows "
    "under AdamW: ranks of the matrices of the blocks may stay near the Gaussian value, or rise above it, whatever "
    "they were drawn from. The embedding and the head are trained by AdamW: there a small initialization (γ = 1) may "
    "show as a stable rank that falls steeply and climbs back, and as rows that align.",
}


def claims(optimizers: Mapping[str, str]) -> list[str]:
    """The claim about each optimizer of ``optimizers``, {run: its optim.name}, with the runs where there are several
    optimizers."""
    runs: dict[str, list[str]] = {}
    for run, optimizer in optimizers.items():
        runs.setdefault(optimizer, []).append(run)
    if len(runs) == 1:
        return [CLAIMS[optimizer] for optimizer in runs]
    return [f"{', '.join(names)}: {CLAIMS[optimizer]}" for optimizer, names in runs.items()]
