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
    "matrix.depthwise": "a rule of its control; a small network takes 12 % more cycles without",
    "types": "what networks are compiled for; engines have types of their own",
    "isa.without": "what the compiler must do without; a sigmoid less: 6 % of a small network",
    "isa.limits*": "what the compiler must do without; no form has logic of its own here",
    "scalar.startup": "pipelines are in the range of the figures",
    "front_end.signal": "distance; its wires lie above the logic",
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
    "name": "a word: the same program, time and price",
    "description": "a word: the same program, time and price",
    "memories.dram.size": "other chips; what does not fit is refused",
    "encoding.opcodes": "other numbers in as many bits",
    "encoding.numbers": "other numbers in as many bits",
    "encoding.order": "other places in as many bits",
    "energy.source": "whose figures are taken",
}
"""Fields that change neither price nor time."""
