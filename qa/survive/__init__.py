"""Trials of runs, checkpoints and readers of files; each repeats from its seed."""
