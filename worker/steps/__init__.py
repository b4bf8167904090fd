"""The steps of a nightly's jobs but judging: record, compile, prepare, measure, confirm. Each may safely run twice."""
