"""Finds out whether a GPU is ill. The times of an ill GPU cannot be trusted."""
