"""Two commits side by side: worker/cli/test_compare.py runs `tilewatch compare` with the real compiler."""
