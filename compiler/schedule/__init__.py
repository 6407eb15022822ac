"""Schedules: groups, tiles, residency, and the search for the best ones."""
