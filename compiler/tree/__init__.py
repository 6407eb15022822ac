"""Schedules as text: what the compiler decided, to be read, edited and compiled again."""
