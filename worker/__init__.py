"""Contains the command line and the workers, which do all steps from a commit to a message."""
