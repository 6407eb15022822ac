"""Which nests share a tile loop."""
