"""The parts of the page Series: its chart, the run beside it, and what stands below them."""
