"""The database: its tables, queries, changes of state, and servers. All SQL of the project is here."""
