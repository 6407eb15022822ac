"""Schedules chosen and kept: costs of groups, fallbacks, the cache, schedules as text."""
