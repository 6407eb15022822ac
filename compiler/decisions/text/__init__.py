"""Schedules as text, to be read, edited and compiled again."""
