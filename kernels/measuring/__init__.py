"""Decides what a GPU measures next: sweep, race, careful timing, replay. Works through child processes, so it imports
no CuPy. Uses neither the queue nor the database."""
