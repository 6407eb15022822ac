"""Steps become instructions of this machine."""
