"""The machine: its description and language, and under `machine` its SimPy model."""
