"""Makes figures from data frames. All modules are pure: they run no query, draw no page and read no clock."""
