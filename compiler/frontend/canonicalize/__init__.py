"""Passes that bring a graph to the one form that lowering reads."""
