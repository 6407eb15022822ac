"""Processes: how work is bounded, watched and kept from being done twice at once.

steps              what a process is at, told to whoever watches it
guard              a piece of work in a process of its own, which can be ended; memory
start              what every process does first
files              files that are whole or not there; locks
cache              keys by content, and where what has such a key is kept
internal_errors    what is said and kept of an error of archgen's own
"""
