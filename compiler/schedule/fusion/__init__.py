"""Which layers share a tile loop."""
