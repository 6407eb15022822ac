"""Tile sizes, loop order and the split over cores."""
