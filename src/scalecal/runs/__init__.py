"""Runs: the methods, the grid that trains them, and the facts and folders that come of it."""
