"""Which elements: what a tile needs of its inputs, cuts, and the walk over all tiles."""
