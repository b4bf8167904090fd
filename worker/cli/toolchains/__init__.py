"""`tilewatch toolchain`: the commands about several versions of the tile compiler side by side."""
