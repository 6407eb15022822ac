"""Random machines and graphs, what becomes of them, and how a failure is made small."""
