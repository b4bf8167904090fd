"""Reads the database into data frames, and computes with them. Only reads.py runs queries."""
