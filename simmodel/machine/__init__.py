"""The SimPy machine."""
