"""The command line and the workers: all steps from a commit to an alert, their queue, and the processes."""
