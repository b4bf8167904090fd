"""Everything that is stored: tables, reads, changes of state, and the database servers. All SQL is here."""
