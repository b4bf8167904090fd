"""Compares the code of two cubins and names the source lines that differ. Texts in, values out; runs no program."""
