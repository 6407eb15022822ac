"""How large the tiles are and which core computes them."""
