"""The first HTML that a browser gets, the scripts that it needs, and the options of the ports."""
