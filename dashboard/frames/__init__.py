"""Reads the database into data frames, and computes with them. Draws nothing. Only reads.py runs queries."""
