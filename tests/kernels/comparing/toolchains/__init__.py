"""Two toolchains side by side: worker/cli/test_toolchain.py runs `tilewatch toolchain` with the real compiler."""
