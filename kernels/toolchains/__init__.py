"""Keeps several toolchains, which are versions of the tile compiler's packages, each under a name in its own folder."""
