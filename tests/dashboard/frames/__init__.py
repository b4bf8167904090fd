"""Tables that pages show: dashboard/panels/test_panels.py shows them."""
