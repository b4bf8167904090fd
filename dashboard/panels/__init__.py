"""The larger parts of pages: each takes what a page picked, reads what it needs and draws it. Knows no URL."""
