"""The command line and the workers: every step from a commit to an alert, its queue, and what runs them."""
