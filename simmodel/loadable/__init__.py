"""The loadable: a program as one file that runs alone, and back, the same program.

    machine     the machine that it is for, as JSON
    about       who made it, the machine's fingerprint, which outputs are which states
    program     what of the program has no section of its own
    ports       where inputs and outputs lie, for who places them elsewhere
    inputs, outputs, constants, buffers, origins ...      rows, one for each
    code n      the stream of core n: instructions, loops and their ends
    records     the fields of all records above
    strings, numbers, data                                what these refer to

Which sections there are and what their rows hold follows from the fields of `Program` and of the
instructions. docs/loadable.md has every byte.
"""

from __future__ import annotations

from simmodel.loadable.program import Loadable, from_bytes, to_bytes
from simmodel.loadable.wire import LoadableError

__all__ = ["Loadable", "LoadableError", "from_bytes", "to_bytes"]
