"""Starts Postgres and Valkey on this machine for `tilewatch up` and for tests, and makes database logins."""
