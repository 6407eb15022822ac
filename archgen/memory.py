"""Memory of processes: what the machine has, what one of them may take, what it takes.

The one idea: where the system does not say (no /proc, no limits), None stands for the number, and
nothing is bounded.
"""

from __future__ import annotations

import os
from pathlib import Path

from simmodel.units import show_bytes

try:
    import resource
except ImportError:  # pragma: no cover - not on this system
    resource = None  # type: ignore[assignment]

_REFUSED = ("failed to allocate", "bad_alloc", "bad allocation", "out of memory")
"""What libraries say in their own errors when they are given no memory, in small letters."""


def share(jobs: int) -> int | None:
    """Bytes of the machine's memory for each of `jobs` processes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // jobs
    except (AttributeError, ValueError, OSError):
        return None


def limit(size: int | None) -> None:
    """Give this process no more than `size` bytes for its data from now on."""
    if size is not None and resource is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def limit_here() -> int | None:
    """What `limit` has given this process."""
    if resource is None:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft


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
    bound = limit_here()
    if bound is None:
        what = f"a batch of {batch} takes more memory than this computer has left"
    else:
        what = (
            f"a batch of {batch} takes more memory than the {show_bytes(bound)} that a worker "
            "process may have; a larger --memory, fewer --jobs or a smaller batch would help"
        )
    return f"{what}: {mistake}" if str(mistake) else what
