"""Tokens from touched bytes: chains by hand, and any tree keeps its conflicts in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine

from compiler.codegen.issue_order.units import plays
from compiler.codegen.nodes import (
    EngineStep,
    LoopSegment,
    Node,
    SegmentedLoop,
    Use,
    emptied,
    instructions,
)
from compiler.codegen.tokens import (
    Sharing,
    Synchronizer,
    TokenChain,
    UseTable,
    chains,
    merged,
    not_implied,
)
from simmodel.isa import Copy, Item, Loop, Sync, Unary
from simmodel.isa.region import Address, Operand, Ring
from simmodel.program.program import Buffer, Origin, Port, Program
from simmodel.verify import verify

ANY = settings(derandomize=True)
SIZE = 16
"""Bytes of a slot."""


def use(name: str, low: int, *, write: bool, slots: int = 1, home: int = 1, reset: int = 0) -> Use:
    return Use(name, "local", low, low + SIZE * slots, slots, home, reset, write)


def touch(engine: str, *uses: Use) -> tuple[tuple[str, Use], ...]:
    return tuple((engine, each) for each in uses)


@pytest.mark.parametrize(
    ("slots", "home", "free"),
    [
        (1, 1, [TokenChain("matrix", "load", 1, (1,), (0,))]),  # the next load waits
        (2, 1, [TokenChain("matrix", "load", 2, (1,), (0,))]),
        (1, 0, []),  # outside loops nothing comes again
    ],
)
def test_a_slot_is_free_again_as_many_turns_on(
    slots: int, home: int, free: list[TokenChain]
) -> None:
    fill = touch("load", use("x", 0, write=True, slots=slots, home=home))
    read = touch("matrix", use("x", 0, write=False, slots=slots, home=home))
    full = TokenChain("load", "matrix", 0, (0,), (1,))
    assert chains((fill, read), home) == [full, *free]


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_step_that_is_ahead_fills_the_slot_of_the_next_turn(ahead: int) -> None:
    """Products of tile i + 1 beside work on tile i, in turn i: each waits for the turn before;
    also where both are ahead of others."""
    made = touch("matrix", use("x", 0, write=True, slots=2)._replace(ahead=ahead + 1))
    read = touch("vector", use("x", 0, write=False, slots=2)._replace(ahead=ahead))
    assert chains((made, read), 1) == [
        TokenChain("matrix", "vector", 1, (0,), (1,)),
        TokenChain("vector", "matrix", 1, (1,), (0,)),
    ]


def test_buffers_of_other_slots_keep_chains_of_their_own() -> None:
    steps = (
        touch("load", use("x", 0, write=True, slots=2)),
        touch("load", use("w", 64, write=True)),
        touch("matrix", use("x", 0, write=False, slots=2)),
        touch("matrix", use("w", 64, write=False)),
    )
    found = chains(steps, 1)
    assert [c for c in found if c.distance] == [
        TokenChain("matrix", "load", 1, (3,), (1,)),
        TokenChain("matrix", "load", 2, (2,), (0,)),
    ]
    assert merged(found) == [
        *(c for c in found if not c.distance),
        TokenChain("matrix", "load", 1, (3,), (0,)),
    ]


@pytest.mark.parametrize(("distance", "implied"), [(1, True), (2, False)])
def test_orders_that_others_keep_take_no_token(distance: int, implied: bool) -> None:
    """load, matrix, vector, and load again once vector is done, so many iterations later: matrix
    is done with this iteration then, but with the next one only where that is the one."""
    ring = [
        TokenChain("load", "matrix", 0, (0,), (1,)),
        TokenChain("matrix", "vector", 0, (1,), (2,)),
        TokenChain("vector", "load", distance, (2,), (0,)),
    ]
    full = TokenChain("load", "vector", 0, (0,), (2,))
    free = TokenChain("matrix", "load", 1, (1,), (0,))
    assert not_implied([*ring, full, free]) == (ring if implied else [*ring, free])


@pytest.mark.parametrize("passed_on", [False, True])
def test_queues_whose_order_changes_imply_nothing(passed_on: bool) -> None:
    """What others wait for overtakes other copies of its engine, when the order of issue is found:
    then `full_load_vector` stays, though load, matrix and vector follow each other."""
    row = partial(Operand, shape=(SIZE,), strides=(1,), dtype="int8")
    place = row("shared" if passed_on else "dram", Address(0))
    notifies = (("passed@0", 1, (1,)),) if passed_on else ()
    copy = Copy(
        engine="store", origin=0, dst=place, src=row("local", Address(0)), notifies=notifies
    )
    body = [
        sync_leaf("load", use("x", 0, write=True)),
        sync_leaf("matrix", use("x", 0, write=False), use("y", 64, write=True)),
        sync_leaf("vector", use("y", 64, write=False), use("x", 0, write=False)),
        EngineStep("store", (copy,)),
    ]
    sync = Synchronizer()
    sync.stream([SegmentedLoop("i", (LoopSegment(5, tuple(body)),))])
    assert ("full_load_vector_1" in sync.initial) is passed_on


def test_steps_that_repeat_each_other_add_no_kinds_of_uses() -> None:
    """Tables of their conflicts are as small as those of one of them, whatever buffers are called:
    those of the steps of a recurrent layer took gigabytes."""

    def step(number: int) -> tuple[tuple[tuple[str, Use], ...], ...]:
        first, last = use(f"x{number}", 0, write=True), use(f"x{number}", 0, write=False)
        return touch("load", first), touch("matrix", last)

    once, often = (UseTable.of([t for n in range(count) for t in step(n)]) for count in (1, 50))
    assert once is not None and often is not None
    assert len(often.node) == 50 * len(once.node)
    assert often.conflict.shape == once.conflict.shape == (2, 2)


def test_chains_of_different_distances_never_share_a_token() -> None:
    """Two pairs an iteration apart and one pair two apart both start at 2."""
    vector = use("x", 0, write=True, slots=2), use("a", 64, write=True), use("b", 96, write=True)
    steps: list[Node] = [
        *(sync_leaf("vector", each) for each in vector),
        sync_leaf("matrix", use("x", 0, write=False, slots=2)),
        sync_leaf("matrix", vector[1]),
        sync_leaf("vector", vector[1]),
        sync_leaf("matrix", vector[2]),
    ]
    sync = Synchronizer()
    stream = sync.stream([SegmentedLoop("i", (LoopSegment(5, tuple(steps)),))])
    assert plays(stream, sync.initial)


def sync_leaf(engine: str, *uses: Use) -> EngineStep:
    return EngineStep(engine, (Sync(engine=engine, origin=0),), uses)


def test_engines_in_turns_take_one_token_each() -> None:
    """Handed on round the ring, past those between; a loop ends where it begins."""
    fill = sync_leaf("load", use("x", 0, write=True))
    work = sync_leaf("matrix", use("x", 0, write=False))
    move = sync_leaf("store", use("x", 0, write=False))
    sync = Synchronizer(sharing=Sharing.TURNS)
    walk = SegmentedLoop("i", (LoopSegment(3, (fill, work)),))
    (loop, *rest) = sync.stream([walk, move])
    assert isinstance(loop, Loop)
    assert sync.initial == {"turn_load": 0, "turn_matrix": 0, "turn_store": 0}
    handed = [(item.engine, item.waits, item.signals) for item in (*loop.body, *rest)]
    ones = {name: ((name, 1),) for name in sync.initial}
    inside = [
        ("load", (), ones["turn_load"]), ("matrix", ones["turn_load"], ()),
        ("matrix", (), ones["turn_matrix"]), ("store", ones["turn_matrix"], ones["turn_store"]),
        ("load", ones["turn_store"], ()),
    ]  # fmt: skip
    behind = [
        ("load", (), ones["turn_load"]), ("matrix", ones["turn_load"], ones["turn_matrix"]),
        ("store", ones["turn_matrix"], ()),
    ]  # fmt: skip
    assert [each for each in handed if each[1] or each[2]] == inside + behind


def test_a_step_in_a_deeper_loop_is_bracketed() -> None:
    inner = SegmentedLoop("j", (LoopSegment(4, (sync_leaf("matrix", use("x", 0, write=False)),)),))
    load = sync_leaf("load", use("x", 0, write=True))
    sync = Synchronizer()
    (loop,) = sync.stream([SegmentedLoop("i", (LoopSegment(3, (load, inner)),))])
    assert isinstance(loop, Loop)
    first, before, deep, after = loop.body
    assert isinstance(deep, Loop)
    assert isinstance(before, Sync) and isinstance(after, Sync) and isinstance(first, Sync)
    assert first.signals == before.waits == (("full_load_matrix_1", 1),)
    assert after.signals == first.waits == (("free1_matrix_load_1", 1),)


def test_a_step_without_work_in_a_segment_holds_nobody_up_there() -> None:
    """A constant that is loaded in the first turn, and a border that no turn fills."""
    read, write = (use("w", 0, write=write, home=0) for write in (False, True))
    load, product = sync_leaf("load", write), sync_leaf("matrix", read)
    border = emptied(sync_leaf("vector", write))
    first, steady = (LoopSegment(n, (step, product, border)) for n, step in
                     ((1, load), (3, emptied(load))))  # fmt: skip
    loaded, waited, loop = Synchronizer().stream([SegmentedLoop("i", (first, steady))])
    assert isinstance(loaded, Sync) and isinstance(waited, Sync) and isinstance(loop, Loop)
    assert loaded.signals == waited.waits == (("full_load_matrix_1", 1),)
    assert [(item.engine, item.waits, item.signals) for item in instructions(loop.body)] == [
        ("matrix", (), ())
    ]


def test_tiles_that_engines_share_in_other_ways_keep_one_set_of_tokens() -> None:
    """Weights are loaded on from tile to tile, in two slots. Two engines share the rows of most
    tiles, the columns of the last, whose pieces are of 3 and 2 columns. Loads of the last tile
    waited for one of them alone, as if both had kept an order there before."""
    weights, sums = use("w", 0, write=False, slots=2, home=2), use("s", 64, write=True, home=2)

    def pieces(dim: int, *sizes: int) -> SegmentedLoop:
        def body(size: int) -> tuple[Node, ...]:
            spans = {"matrix": (dim, 0, size), "matrix1": (dim, size, 2 * size)}
            parts = {engine: sums._replace(part=span) for engine, span in spans.items()}
            work = [sync_leaf(engine, weights, part) for engine, part in parts.items()]
            load, reader = weights._replace(write=True), sums._replace(write=False)
            return sync_leaf("load", load), *work, sync_leaf("vector", reader)

        return SegmentedLoop("j", tuple(LoopSegment(3, body(size)) for size in sizes))

    tiles = LoopSegment(2, (pieces(1, 4),)), LoopSegment(1, (pieces(2, 3, 2),))
    sync = Synchronizer()
    outer, *rest = sync.stream([SegmentedLoop("i", tiles)])
    assert isinstance(outer, Loop)
    bodies = [loop.body for loop in (*outer.body, *rest) if isinstance(loop, Loop)]
    assert len(bodies) == 3 and len(set(bodies)) == 1
    for each in ("matrix", "matrix1"):
        assert {f"full_load_{each}_1", f"full_{each}_vector_1"} <= sync.initial.keys()
        assert sum(name.startswith(f"free2_{each}_load") for name in sync.initial) == 1
    assert not any(name.startswith("full_matrix_matrix1") for name in sync.initial)


# Any tree, as a real program.

SPACE = 512
"""Bytes of local memory that random buffers share."""
ENGINES = ("load", "vector", "store")


@dataclass(frozen=True)
class Space:
    """A buffer of a random tree."""

    name: str
    base: int
    slots: int
    home: int


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Node], list[Space]]:
    """Steps of three engines in up to two loops; buffers with their turns at any of them."""
    spaces = []
    for number in range(draw(st.integers(1, 5))):
        slots, home = draw(st.integers(1, 3)), draw(st.integers(0, 2))
        slots = slots if home else 1
        base = SIZE * draw(st.integers(0, (SPACE // SIZE) - slots))
        spaces.append(Space(f"b{number}", base, slots, home))
    counter = iter(range(1000))

    def body(depth: int) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for _ in range(draw(st.integers(1, 4))):
            if depth < 2 and draw(st.integers(0, 2)) == 0:
                variable = f"i{depth}"
                counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
                inside = body(depth + 1)
                segments, turned = [], 0
                for count in counts:
                    idle = draw(st.integers(0, 5))  # 0: all of them, 1: some
                    nodes_of = (_turned(n, variable, count, turned) for n in inside)
                    body_of = (
                        emptied(n) if idle == 0 or (idle == 1 and draw(st.booleans())) else n
                        for n in nodes_of
                    )
                    segments.append(LoopSegment(count, tuple(body_of)))
                    turned += count
                nodes.append(SegmentedLoop(variable, tuple(segments)))
            else:
                written = [s for s in spaces if s.home == depth]
                read = [s for s in spaces if s.home <= depth]
                if written:
                    nodes.append(_step(draw, written, read, next(counter)))
        return tuple(nodes)

    return list(body(0)), spaces


def _turned(node: Node, variable: str, count: int, first: int) -> Node:
    """`node` in a segment of a loop: rings count on from the segments before."""
    if isinstance(node, SegmentedLoop):
        segments = tuple(
            LoopSegment(s.count, tuple(_turned(n, variable, count, first) for n in s.body))
            for s in node.segments
        )
        return SegmentedLoop(node.variable, segments)
    depth = int(variable[1:]) + 1
    items = tuple(_ringed(item, node, variable, count, first, depth) for item in node.items)
    return EngineStep(node.engine, items, node.uses, node.origin)


def _ringed(
    item: Item, leaf: EngineStep, variable: str, count: int, first: int, depth: int
) -> Item:
    assert isinstance(item, Copy | Unary)
    operands = {"dst": item.dst} | ({"src": item.src} if isinstance(item, Copy) else {"a": item.a})
    homes = {each.low: each for each in leaf.uses}
    moved = {}
    for field, operand in operands.items():
        each = homes.get(operand.address.base)
        if operand.memory != "local" or each is None or each.home != depth or each.slots == 1:
            continue
        terms = ((variable, 1),) if count > 1 else ()
        ring = Ring(each.slots, SIZE, first % each.slots, terms)
        address = Address(operand.address.base, (), ring)
        moved[field] = Operand("local", address, (SIZE,), (1,), "int8")
    return replace(item, **moved)


def _step(
    draw: st.DrawFn, written: Sequence[Space], read: Sequence[Space], number: int
) -> EngineStep:
    """A load, a move or a store; each has its own bytes off chip. What is written in a loop turns
    in that loop; what turns further out stays as it is."""
    engine = draw(st.sampled_from(ENGINES))
    two = draw(st.sampled_from(read))
    one = two if engine == "store" else draw(st.sampled_from(written))
    far = _operand("dram", 4096 + SIZE * number)
    near = _operand("local", one.base)
    if engine == "load":
        item: Item = Copy(engine="load", origin=0, dst=near, src=_operand("dram", 0))
        return EngineStep(engine, (item,), (_use(one, write=True),))
    if engine == "store":
        item = Copy(engine="store", origin=0, dst=far, src=near)
        return EngineStep(engine, (item,), (_use(one, write=False),))
    if one.base < two.base + SIZE * two.slots and two.base < one.base + SIZE * one.slots:
        two = one  # in place, or apart
    item = Unary(
        engine="vector", origin=0, function="move", dst=near, a=_operand("local", two.base)
    )
    return EngineStep(engine, (item,), (_use(two, write=False), _use(one, write=True)))


def _use(space: Space, *, write: bool) -> Use:
    home, reset = space.home, max(0, space.home - 1)
    return use(space.name, space.base, write=write, slots=space.slots, home=home, reset=reset)


def _operand(memory: str, base: int) -> Operand:
    return Operand(memory, Address(base), (SIZE,), (1,), "int8")


@pytest.mark.parametrize("sharing", Sharing)
@ANY
@given(trees())
def test_conflicts_keep_their_order(sharing: Sharing, tree: tuple[list[Node], list[Space]]) -> None:
    nodes, _ = tree
    whole = Operand("local", Address(0), (SPACE,), (1,), "int8")
    source = Operand("dram", Address(0), (SPACE,), (1,), "int8")
    start = EngineStep(
        "load", (Copy(engine="load", origin=0, dst=whole, src=source),),
        (Use("all", "local", 0, SPACE, 1, 0, 0, True),),
    )  # fmt: skip
    sync = Synchronizer(sharing=sharing)
    stream = tuple(sync.stream([start, *nodes]))
    assert plays(stream, sync.initial)
    arch = machine(tokens=4096)
    program = Program(
        "tree", arch.name, (stream,), (sync.initial,), sync.barriers, (),
        (Buffer("x", "dram", 0, SPACE, None, 0, 0), Buffer("y", "dram", 4096, 16384, None, 0, 0),
         Buffer("all", "local", 0, SPACE, 0, 0, 0)),
        (Port("x", source, (SPACE,), "int8"),), (), (Origin("tree", 0, "Test"),),
    )  # fmt: skip
    verify(program, arch)
