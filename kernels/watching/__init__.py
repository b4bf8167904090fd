"""Records which kernels a repository's host code launches. Watch files in the repository name the host code to run."""
