"""Two toolchains side by side. test_commands.py and worker/cli/test_toolchain.py run `tilewatch toolchain` with the
real compiler."""
