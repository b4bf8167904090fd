"""Keeps several toolchains, which are sets of versions of the tile compiler's packages."""
