"""Fields of architecture files that ask for no area and no energy, and why.

The one idea: whatever is not listed here changes a price, and what is listed changes none; a test
walks over the whole schema to see both, and docs/energy.md prints this table. `memories.*` and the
like stand for every one of them.
"""

from __future__ import annotations

from collections.abc import Mapping

TIME: Mapping[str, str] = {
    "memories.dram.latency": "of another chip",
    "memories.*.mapping": "another order of the same wires",
    "memories.*.conflict_penalty": "a property of banks, not an amount of them",
    "memories.*.latency": "deeper pipelines are in the range of the figures",
    "matrix.fold_overlap": "a rule of its control",
    "matrix.im2col": "a rule of its control",
    "matrix.overlap": "a rule of its control",
    "matrix.startup": "pipelines are in the range of the figures",
    "matrix.granularity": "what one instruction asks for; its control is within a slot of issue",
    "matrix.max_pixels": "bits of a counter",
    "vector.startup": "pipelines are in the range of the figures",
    "vector.max_extent": "bits of a counter",
    "copy.*.startup": "pipelines are in the range of the figures",
    "links.*.latency": "distance; its wires lie above the logic",
    "host.compute": "not on the chip",
    "host.bandwidth": "not on the chip",
    "host.latency": "not on the chip",
}
"""Fields that cost or save time alone."""

ELSEWHERE: Mapping[str, str] = {
    "name": "a word",
    "description": "a word",
    "types": "what networks are compiled for; engines have types of their own",
    "memories.dram.size": "other chips; what does not fit is refused",
    "memories.*.level": "instances: area where there are several clusters",
    "matrix.depthwise": "time of depthwise convolutions; a rule of its control",
    "matrix.input": "time; a port of another memory",
    "matrix.output": "time; a port of another memory",
    "vector.writes": "time; a port of another memory",
    "isa.without": "what the compiler must do without",
    "isa.limits": "what the compiler must do without",
    "isa.limits.*": "time of those forms",
    "scalar.startup": "time of what only the scalar unit computes",
    "copy.*.from": "which copies there are; a port of another memory",
    "copy.*.to": "which copies there are; a port of another memory",
    "copy.*.indirect": "time of gathers; whether there are any has a price",
    "links.*.from": "which copies cross it; an end at another memory",
    "links.*.to": "which copies cross it; an end at another memory",
    "front_end.signal": "time of programs of several cores",
    "encoding": "bytes of programs, and time where fetching limits",
    "encoding.*": "bytes of programs, and time where fetching limits",
    "energy.source": "whose figures are taken",
}
"""Fields whose effect a tiny network does not show, or that have none."""
