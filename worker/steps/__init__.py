"""The steps of a nightly's jobs except judging: compile, prepare, measure, confirm. Each may safely run twice."""
