"""Layers, groups and schedules as values."""
