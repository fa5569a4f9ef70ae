"""Checks the data folder of a node that does not run: a verdict for every file."""
