"""Sizes known only at run time: inference from samples, specialization."""
