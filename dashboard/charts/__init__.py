"""Makes figures from data frames. Pure: no query, no page, no clock."""
