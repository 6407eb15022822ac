"""Geometry: boxes of elements, needs of a tile, cuts, and the tile trace of a group."""
