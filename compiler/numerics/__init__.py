"""Expected values of a program's tensors, and bounds of their errors."""
