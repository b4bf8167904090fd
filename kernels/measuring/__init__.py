"""Decides what a GPU does: sweep, race, careful timing, replay. Talks to the GPU only through child processes, so it
imports no CuPy; knows no queue and no database."""
