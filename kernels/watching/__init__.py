"""Records which kernels a repository's host code launches. Watch files in the repository say which code to run."""
