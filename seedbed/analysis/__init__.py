"""One question a file, over checkpoints, runs and data; results are plain rows."""

from seedbed.analysis import preflight, run, weights

__all__ = ["preflight", "run", "weights"]
