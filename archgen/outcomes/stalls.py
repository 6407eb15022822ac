"""Why an engine did not compute, in words: each cause of `simmodel.trace.CAUSES` and its levers.

The one idea: every idle cycle has exactly one cause, so a cause's share is what removing it could
win at most. `archgen explain stalls` prints this page.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stall:
    """What a cause means, and what would reduce it."""

    meaning: str
    levers: str


STALLS: dict[str, Stall] = {
    "data": Stall(
        "the copy that loads an operand had not ended",
        "more on-chip memory (deeper buffers, longer groups), more DRAM bandwidth, a larger batch",
    ),
    "store": Stall(
        "the copy that frees a buffer had not ended",
        "more on-chip memory, a copy engine of its own for stores, more DRAM bandwidth",
    ),
    "engine": Stall(
        "another compute engine of the core had not ended",
        "more vector lanes, cheaper special functions, matrix.writeback, depthwise on the matrix",
    ),
    "core": Stall(
        "a barrier was closed, or the host had not ended",
        "fewer cores, a faster host or link, more even shares of work",
    ),
    "front_end": Stall(
        "the instruction had not been issued",
        "coarser instructions (matrix.granularity), issue_width, deeper queues, fetch_bandwidth, "
        "loop_buffer",
    ),
    "conflict": Stall(
        "ports or banks of an on-chip memory granted less than the instruction could use",
        "more or wider banks, more ports, interleaved mapping, a separate weight memory",
    ),
    "bandwidth": Stall(
        "DRAM or a link granted less than the instruction could use",
        "more bandwidth, longer contiguous runs, more outstanding requests",
    ),
    "fill": Stall(
        "any wait before the engine's first instruction",
        "smaller first tiles, lower latencies; a larger batch spreads it",
    ),
    "no_work": Stall(
        "nothing left to do, or nothing ever",
        "a model with more parallel work, fewer cores, a larger batch",
    ),
}
