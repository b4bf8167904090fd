"""Mutants: small faults put into the product on purpose, each with the test that must notice it."""
