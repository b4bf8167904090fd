"""Everything that is stored: tables, reads, changes of state, and the servers that hold them. The only home of SQL."""
