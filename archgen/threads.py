"""One thread for each process that computes: a study's parallelism is its points.

The one idea: libraries under numpy read these variables once, when they are loaded. Threads of many
processes on few cores wait for each other most of the time, so this must come before numpy does.
"""

from __future__ import annotations

import os


def one_thread_each() -> None:
    """Ask for single-threaded arithmetic in this process, if numpy is not loaded yet, and in those
    that it starts; what the user has set stays."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
