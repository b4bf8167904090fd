"""Compares the code of two cubins, and finds the source lines that differ. Runs no program."""
