"""Of which fields more is at least as good, and of which less is.

The one idea: a program that runs on a machine runs as quickly on one with more of the one kind of
field and less of the other. In all other fields machines have to agree: more rows of an array, or
another granularity, are other hardware, not more of the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

MORE = (
    "clusters", "cores", "memories.*.size", "memories.*.banks", "memories.*.ports",
    "memories.*.read_ports", "memories.*.write_ports", "memories.dram.bandwidth",
    "memories.dram.channels", "copy.*.bandwidth", "copy.*.outstanding", "links.*.bandwidth",
    "front_end.issue_width", "front_end.queue_depth", "front_end.queue_depth.*",
    "front_end.tokens", "front_end.fetch_bandwidth", "front_end.loop_buffer", "host.compute",
    "host.bandwidth", "vector.lanes", "vector.wide_lanes",
)  # fmt: skip
"""Fields of which more never takes anything away."""
LESS = (
    "*.latency", "*.startup", "memories.*.conflict_penalty", "front_end.signal", "copy.*.indirect",
    "vector.cost.*", "scalar.cost.*",
)  # fmt: skip
"""Fields of which less never does: delays, and cycles of an operation."""


def is_one_of(field: str, patterns: Iterable[str]) -> bool:
    """Whether the path of a field is like one of `patterns`."""
    return any(fnmatchcase(field, pattern) for pattern in patterns)
