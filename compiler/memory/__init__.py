"""Addresses: lifetimes, packing, banks."""
