"""Jobs and their messages: sending, leases, outages, and what comes next after a step. It does no job itself."""
