"""How a process computes: on one thread, and with few garbage collections.

A study's parallelism is its points, so each process takes one thread. Libraries under numpy read
these variables once, when they are loaded. Threads of many processes on few cores wait for each
other most of the time, so this must come before numpy does.
"""

from __future__ import annotations

import gc
import os

_ALLOCATIONS = 200_000
"""Between collections; a compiled program is tens of thousands of small objects without cycles."""


def one_thread_each() -> None:
    """Ask for single-threaded arithmetic in this process, if numpy is not loaded yet, and in those
    that it starts; what the user has set stays."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def collect_rarely() -> None:
    """Let Python look for unreachable cycles less often: a fifth of the time of compiling and
    simulating goes into looking at objects that are all alive."""
    gc.set_threshold(_ALLOCATIONS, 50, 50)
