"""Turns requests and scheduled nightlies into rows and jobs."""
