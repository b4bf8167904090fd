"""Makes figures from data frames. The modules are pure: they run no query, draw no page and read no clock."""
