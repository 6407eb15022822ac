"""Which values a program should store, and how far it may be off."""
