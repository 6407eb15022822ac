"""Loads of constants in pieces: each waits only for what used its own part of the place."""

from __future__ import annotations

from dataclasses import replace

from machines import machine

from compiler.codegen.nodes import EngineStep, Node, Use
from compiler.codegen.split_loads import SplitLoads
from simmodel.isa import Copy, Sync
from simmodel.isa.region import Address, Operand

ARCH = machine(latency=20)
"""A load starts after 20 cycles and moves 16 bytes a cycle, whatever its engine could."""
KIB = 1024


def loaded(low: int, size: int, *, far: int = 0) -> EngineStep:
    """A load of `size` bytes of constants to `low`."""
    dst, src = (
        Operand(memory, Address(base), (size,), (1,), "int8")
        for memory, base in (("local", low), ("dram", far))
    )
    use = Use("w", "local", low, low + size, 1, 0, 0, True)
    return EngineStep("load", (Copy(engine="load", dst=dst, src=src),), (use,))


def product(low: int, high: int) -> EngineStep:
    """Work on bytes `low` .. `high`."""
    use = Use("x", "local", low, high, 1, 0, 0, False)
    return EngineStep("matrix", (Sync(engine="matrix"),), (use,))


def pieces(nodes: list[Node], split: SplitLoads | None = None) -> list[tuple[int, int, int]]:
    """Where each load puts how many bytes, and from where it takes them."""
    made = (split or SplitLoads()).apply(nodes, ARCH)
    copies = (item for node in made if isinstance(node, EngineStep) for item in node.items)
    return [
        (copy.dst.address.base, copy.dst.elements, copy.src.address.base)
        for copy in copies
        if isinstance(copy, Copy)
    ]


def test_what_is_free_first_comes_first() -> None:
    """Of 20 KiB at 8 KiB the last step uses the first half, the one before it the second; pieces
    are of 5 KiB at least."""
    before: list[Node] = [product(18 * KIB, 28 * KIB), product(0, 18 * KIB)]
    assert pieces([*before, loaded(8 * KIB, 20 * KIB, far=100)]) == [
        (18 * KIB, 10 * KIB, 100 + 10 * KIB),
        (8 * KIB, 10 * KIB, 100),
    ]


def test_what_is_free_at_once_is_one_load() -> None:
    before: list[Node] = [product(0, 64 * KIB)]
    assert pieces([*before, loaded(0, 32 * KIB)]) == [(0, 32 * KIB, 0)]
    assert pieces([loaded(0, 32 * KIB)]) == [(0, 32 * KIB, 0)]


def test_a_part_whose_rest_others_load_is_cut_where_it_lies() -> None:
    """Another core loads the first 20 KiB of the buffer, this one the second: of these the first
    half is in use until the last step, which the place of the buffer's own first half is not."""
    part = loaded(20 * KIB, 20 * KIB)
    shared = replace(part, uses=(replace(part.uses[0], low=0, high=40 * KIB),))
    before: list[Node] = [product(30 * KIB, 40 * KIB), product(20 * KIB, 30 * KIB)]
    made = [
        leaf for leaf in SplitLoads().apply([*before, shared], ARCH) if isinstance(leaf, EngineStep)
    ]
    assert [(leaf.uses[0].low, leaf.uses[0].high) for leaf in made if leaf.engine == "load"] == [
        (30 * KIB, 40 * KIB),
        (20 * KIB, 30 * KIB),
    ]
