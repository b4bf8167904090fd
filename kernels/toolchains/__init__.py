"""Keeps several toolchains side by side: the tile compiler's packages under names, each in a folder of its own."""
