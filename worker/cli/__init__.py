"""The commands of `tilewatch`, one module per group, and the tables that they print."""
