"""Optimizer groups, Muon, learning-rate schedules."""
