"""Grids of runs: a plan as data, engines that carry it out, statistics of what came."""
