"""The commands about several versions of the tile compiler, or of baseline libraries, side by side."""
