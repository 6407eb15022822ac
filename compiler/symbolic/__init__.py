"""Sizes known only when a program runs: inference from samples, specialization."""
