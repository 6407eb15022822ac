"""Memory of processes: what the machine has, what one of them may take, what it takes.

The one idea: where the system does not say (no /proc, no limits), None stands for the number, and
nothing is bounded.
"""

from __future__ import annotations

import os
from pathlib import Path

from archgen.process.steps import step_at
from simmodel.units import show_bytes

try:
    import resource
except ImportError:  # pragma: no cover - not on this system
    resource = None  # type: ignore[assignment]

LEAST = 512 << 20
"""Bytes that a process takes for libraries."""
_SHARED = 0.75
"""Part of the machine's memory that all processes of a study may take together."""
_CONTAINER = tuple(map(Path, ("/sys/fs/cgroup/memory.max",
                              "/sys/fs/cgroup/memory/memory.limit_in_bytes")))  # fmt: skip
"""Where Linux says what a container may take."""
_REFUSED = ("failed to allocate", "bad_alloc", "bad allocation", "out of memory")
"""What libraries say in their own errors when they are given no memory, in small letters."""


def grant(asked: int | None, jobs: int) -> int | None:
    """Bytes that each of `jobs` processes may take: what is asked for, or its share of three
    quarters of the machine's memory."""
    there = machine_memory()
    if asked is not None or there is None:
        return asked
    return max(LEAST, int(_SHARED * there) // jobs)


def machine_memory() -> int | None:
    """Bytes of memory that this machine has, or this container may take."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    return min(size, _of_container() or size)


def _of_container() -> int | None:
    for path in _CONTAINER:
        try:
            return int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue  # there is no such file, or it says "max"
    return None


def limit(size: int | None) -> None:
    """Give this process no more than `size` bytes for its data from now on; what it has already
    beside libraries comes on top."""
    if size is not None and resource is not None:
        bound = size + max(0, _data_here() - LEAST)
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
        _Granted.size = size


class _Granted:
    """What `limit` has given this process."""

    size: int | None = None


def _data_here() -> int:
    """Bytes of data that this process has; 0 where that is not known."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> int | None:
    """Bytes of memory that the process `pid` occupies."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def is_refusal(mistake: BaseException) -> bool:
    """Whether a library's error says that there was no memory."""
    said = str(mistake).lower()
    return isinstance(mistake, MemoryError) or any(words in said for words in _REFUSED)


def refusal(batch: int, mistake: BaseException) -> str:
    """Why a point at this `batch` had not enough memory, and what would help."""
    bound = _Granted.size
    if bound is None:
        what = f"a batch of {batch} takes more memory than this computer has left"
    else:
        what = (
            f"a batch of {batch} takes more memory than the {show_bytes(bound)} that a worker "
            "process may have; a larger --memory, fewer --jobs or a smaller batch would help"
        )
    step = step_at(mistake)
    doing = f", at {step}" if step else ""
    return f"{what}{doing}: {mistake}" if str(mistake) else f"{what}{doing}"
