"""Holds the pages. A file's name is the page's name in the address. A page reads the choices and calls panels."""
