"""Contains the command line and the workers: the steps from a commit to a message, the job queue and the processes."""
