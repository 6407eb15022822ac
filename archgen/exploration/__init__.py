"""Exploration: which machines of a space are worth building, and which of their fields matter.

A space is a base machine and values for some of its fields (`space`). `search` looks for its Pareto
front, `target` for the smallest machine that does what is asked, `sensitivity` changes one field at
a time. All three run points as studies do (`evaluate`): in parallel, each stored once.
"""
