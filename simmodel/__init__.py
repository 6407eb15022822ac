"""The machine: its description and language (description floor) and its SimPy model (machine floor)."""
