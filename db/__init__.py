"""The database: its tables, the queries, the changes of state, and the servers. All SQL of the project is here."""
