"""Studies: grids of runs, their statistics and their reports."""
