"""The pages: a file is a page and its name in the address. Each reads what was picked and calls panels and widgets."""
