"""Which tensor lies in which memory, from when to when."""
