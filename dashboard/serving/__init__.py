"""What the browser gets before a page: the first HTML, its scripts, the options of the ports."""
