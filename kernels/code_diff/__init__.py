"""Compares the code of two cubins, given as text, and names the source lines that differ. Runs no program."""
