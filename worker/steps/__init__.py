"""The steps of a nightly's jobs except judging. Each step may safely run twice."""
