"""Decides from numbers whether a series changed and what to ask next. It knows no database, no job and no clock."""
