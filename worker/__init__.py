"""Has the command line and the workers: all steps from a commit to a message, their queue, and the processes."""
