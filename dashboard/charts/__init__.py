"""Makes figures from data frames. No module here runs a query, draws a page or reads a clock."""
