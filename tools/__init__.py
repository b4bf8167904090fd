"""Programs for developers; the product does not import them."""
