"""Decides what a GPU measures next: the configs of a sweep, its winner and baselines, or the sides of a replay. Works
through child processes and imports no CuPy. Uses neither the queue nor the database."""
