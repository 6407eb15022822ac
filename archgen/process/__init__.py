"""Processes: how work is bounded, watched and kept from being done twice at once.

steps              what a process is at, told to whoever watches it
memory             what the machine has, what a process may take
guard              a piece of work in a process of its own, which can be ended
threads            one thread each, few garbage collections
locks              work that one process at a time may be at
"""
