"""The pages of the dashboard. A file's name is its page's name in the address."""
