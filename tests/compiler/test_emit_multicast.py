"""What several cores load alike is read once: trees by hand, and programs of whole layers. Loads of
constants in pieces wait only for what used their own part of the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from blocks import conv
from machines import changed, machine
from networks import Net, feeds_of
from replay import NETWORKS

from archgen.schema import load_arch
from compiler.api import CompileOptions, compile_model, prepared
from compiler.codegen.fill_shared import FillShared
from compiler.codegen.legalize import Names
from compiler.codegen.multicast import ShareLoads, tokens_between
from compiler.codegen.nodes import EngineStep, LoopSegment, Node, SegmentedLoop, Use
from compiler.codegen.split_loads import Bundles, SplitLoads, StepTimes, _Used
from compiler.codegen.tokens import chains
from compiler.cost.multicast import EARLY
from compiler.options import Stages
from compiler.plan.make_plan import MakePlan
from compiler.schedule.fusion.partition import Unfused
from simmodel.arch.record import Arch, CopyEngine
from simmodel.arch.units import Bandwidth, Delay
from simmodel.execute import execute
from simmodel.isa import Await, Copy, Fill, Instruction, Item, Loop, Sync, Unary
from simmodel.isa.base import instructions
from simmodel.isa.region import Address, Operand, Ring, contiguous
from simmodel.machine.run import simulate
from simmodel.program.assembly import print_item
from simmodel.program.program import Program
from simmodel.verify import findings
from simmodel.verify.happens_before import random_order

ALONE = CompileOptions(stages=Stages(share=ShareLoads(enabled=False)))


def load(
    size: int, source: int = 0, *, buffer: str = "w", ahead: tuple[Item, ...] = ()
) -> EngineStep:
    """A step that fills the buffer at 0 with `size` bytes from `source`."""
    there, here = (
        Operand(role, Address(at), (size,), contiguous((size,), 1), "int8")
        for role, at in (("dram", source), ("local", 0))
    )
    use = Use(buffer, "local", 0, size, 1, 0, 0, True)
    return EngineStep("load", (*ahead, Copy(engine="load", src=there, dst=here)), (use,))


def texts(nodes: list[Node]) -> list[str]:
    """Engine and instructions of every step."""
    found = []
    for node in nodes:
        steps = (
            [s for part in node.segments for s in part.body]
            if isinstance(node, SegmentedLoop)
            else [node]
        )
        found += [print_item(item) for step in steps for item in step.leaves[0].items]
    return found


def shared(trees: list[list[Node]], arch: Arch) -> list[list[str]]:
    return [texts(tree) for tree in ShareLoads().apply(trees, arch, Names())]


def between(among: str, **more: Any) -> Arch:
    """A machine whose cores reach each other by loads, by an engine, or through shared memory."""
    if among == "shared":
        return machine(shared={"banks": 8}, **more)
    return machine(among=among, **more)


WAYS = ["load", "peer", "shared"]
BROADCAST = between("load", cores=2, latency=20)
PEERS = between("peer", cores=2, latency=20)
SHARED = between("shared", cores=2, latency=20, copy={"bandwidth": "32 B/cycle"})


def somewhere(buffer: str, size: int) -> tuple[str, int]:
    """Room in shared memory."""
    return f"{buffer} of {size}", 0x100


def test_each_core_loads_half_and_gives_it_to_both() -> None:
    # 1024 bytes take 64 cycles at 16 B/cycle: halves of 32 cycles are worth a start of 20.
    assert shared([[load(1024)], [load(1024)]], BROADCAST) == [
        [
            'sync load notify "free@0" 1 @1',
            "copy load dst=local[0x0]:int8[512]@{0,1} src=dram[0x0]:int8[512] "
            'wait "free@1" 1 notify "full@0" 1 @1',
            'sync load wait "full@1" 1',
        ],
        [
            'sync load notify "free@1" 1 @0',
            "copy load dst=local[0x200]:int8[512]@{0,1} src=dram[0x200]:int8[512] "
            'wait "free@0" 1 notify "full@1" 1 @0',
            'sync load wait "full@0" 1',
        ],
    ]


def test_between_peers_each_half_is_passed_on() -> None:
    (first, second) = ShareLoads(gain=1).apply([[load(1024)], [load(1024)]], PEERS, Names())
    assert texts(first) == [
        "copy load dst=local[0x0]:int8[512] src=dram[0x0]:int8[512]",
        'sync peer notify "free@0" 1 @1',
        "copy peer dst=local[0x0]:int8[512]@1 src=local[0x0]:int8[512] "
        'wait "free@1" 1 notify "full@0" 1 @1',
        'sync peer wait "full@1" 1',
    ]
    # The step that passes on reads what was loaded, and writes what comes from the other core.
    passing = second[1]
    assert isinstance(passing, EngineStep)
    assert [use.write for use in passing.uses] == [False, True]


def test_through_shared_memory_each_half_is_stored_for_the_other_core() -> None:
    trees: list[list[Node]] = [[load(1024)], [load(1024)]]
    first, second = ShareLoads().apply(trees, SHARED, Names(), somewhere)
    assert texts(first) == [
        'sync load notify "free@0" 1 @1',
        "copy load dst=local[0x0]:int8[512] src=dram[0x0]:int8[512]",
        'copy store dst=shared[0x100]:int8[512] src=local[0x0]:int8[512] wait "free@1" 1 '
        'notify "full@0" 1 @1',
        'copy load dst=local[0x200]:int8[512] src=shared[0x300]:int8[512] wait "full@1" 1',
    ]
    assert texts(second)[2:] == [
        'copy store dst=shared[0x300]:int8[512] src=local[0x200]:int8[512] wait "free@0" 1 '
        'notify "full@1" 1 @0',
        'copy load dst=local[0x0]:int8[512] src=shared[0x100]:int8[512] wait "full@0" 1',
    ]
    steps = [node for node in first if isinstance(node, EngineStep)]
    assert [step.staged for step in steps] == ["", "w of 1024", "w of 1024"]
    # The store reads what was loaded, and what others stored fills the rest meanwhile.
    assert [[use.write for use in step.uses] for step in steps] == [[True], [False], [True]]
    kept = chains([step.touches for step in steps], 0)
    assert [(chain.giver, chain.taker) for chain in kept] == [("load", "store")]


def test_a_turn_without_the_load_keeps_nothing_waiting() -> None:
    trees: list[list[Node]] = [[replace(load(1024), items=())] for _ in range(2)]
    turns = (
        SegmentedLoop("t", (LoopSegment(1, (load(1024),)), LoopSegment(3, tuple(empty))))
        for empty in trees
    )
    (loop,), _ = ShareLoads().apply([[turn] for turn in turns], SHARED, Names(), somewhere)
    assert isinstance(loop, SegmentedLoop)
    _, *passing = [leaf for node in loop.segments[1].body for leaf in node.leaves]
    assert [leaf.uses for leaf in passing] == [()] * 2


def test_what_lies_in_shared_memory_goes_through_it_once() -> None:
    (copy,) = load(1024).items
    assert isinstance(copy, Copy)
    near = replace(copy, src=replace(copy.src, memory="shared"))
    trees: list[list[Node]] = [[replace(load(1024), items=(near,))] for _ in range(2)]
    made = ShareLoads(gain=1).apply(trees, SHARED, Names(), somewhere)
    assert [texts(tree) for tree in made] == [[print_item(near)]] * 2


def test_only_cores_that_load_alike_share() -> None:
    # Cores 0 and 2 read one half of a map, 1 and 3 the other; weights are the same for all.
    arch = machine(cores=4, among="load")
    trees: list[list[Node]] = [
        [load(4096, 4096 * (core % 2), buffer="x"), load(2048, 8192)] for core in range(4)
    ]
    made = ShareLoads().apply(trees, arch, Names())
    for core, tree in enumerate(made):
        copies = [i for n in tree for i in n.leaves[0].items if isinstance(i, Copy)]
        pair = (0, 2) if core % 2 == 0 else (1, 3)
        assert [copy.dst.cores for copy in copies] == [pair, (0, 1, 2, 3)]
        assert [copy.dst.shape for copy in copies] == [(2048,), (512,)]


@pytest.mark.parametrize(
    ("sync", "sets"), [("interlock", [(0, 1, 2), (3, 4, 5)]), ("tokens", [(0, 1), (2, 3), (4, 5)])]
)
def test_neighbours_share_where_tokens_do_not_reach_all_cores(
    sync: str, sets: list[tuple[int, ...]]
) -> None:
    # Of 8 tokens the engines of a core have half, and every other core takes two.
    arch = machine(cores=6, among="load", tokens=8, sync=sync)
    made = ShareLoads().apply([[load(4096)] for _ in range(6)], arch, Names())
    items = [list(tree[0].leaves[0].items) for tree in made]
    given = [item for own in items for item in own if isinstance(item, Copy)]
    assert [*dict.fromkeys(copy.dst.cores for copy in given)] == sets
    told = tokens_between(items)
    assert [len(own) for own in told] == [2 * (len(sets[0]) - 1)] * 6


@pytest.mark.parametrize(
    ("level", "sets"), [("chip", [(0, 1, 2, 3)]), ("cluster", [(0, 1), (2, 3)])]
)
def test_what_clusters_have_each_for_themselves_is_shared_within_one(
    level: str, sets: list[tuple[int, ...]]
) -> None:
    arch = machine(clusters=2, cores=2, among="load", shared={"level": level})
    step = load(4096)
    (copy,) = step.items
    assert isinstance(copy, Copy)
    near = replace(step, items=(replace(copy, src=replace(copy.src, memory="shared")),))
    made = ShareLoads(gain=1).apply([[near] for _ in range(4)], arch, Names())
    given = [i for tree in made for i in tree[0].leaves[0].items if isinstance(i, Copy)]
    assert [*dict.fromkeys(copy.dst.cores for copy in given)] == sets


def convolutions() -> tuple[Net, Any]:
    net = Net(quantized=True)
    x = net.input(1, 32, 24, 24)
    for _ in range(2):
        x = net.op("Relu", net.op("Conv", x, net.weight(32, 32, 3, 3), pads=[1, 1, 1, 1]))
    return net, net.model(x)


def sizes(name: str) -> Any:
    """Networks that many cores split in one way or another."""
    net = Net(quantized=True)
    batch, channels, side = {"rows": (1, 64, 24), "columns": (1, 128, 8), "batch": (4, 128, 8)}[
        name
    ]
    x, kernel = net.input(batch, channels, side, side), 3 if name == "rows" else 1
    weights = net.weight(256 if kernel == 1 else 64, channels, kernel, kernel)
    return net.model(net.op("Conv", x, weights, pads=[kernel // 2] * 4))


@pytest.mark.parametrize("options", [ALONE, CompileOptions()], ids=["alone", "shared"])
@pytest.mark.parametrize("among", WAYS)
@pytest.mark.parametrize("cores", [2, 4])
@pytest.mark.parametrize("name", ["rows", "columns", "batch"])
def test_programs_move_the_bytes_that_were_priced(
    name: str, cores: int, among: str, options: CompileOptions
) -> None:
    sync = "interlock" if cores == 4 else "tokens"
    arch = between(among, cores=cores, types=("int8",), sync=sync)
    made = compile_model(prepared(sizes(name), name), arch, replace(options, dtype="int8"))
    moved = simulate(made.program, arch).traffic
    priced = sum(decision.schedule.estimate.bytes for decision in made.decisions)
    # Halos at the edge are smaller than those that are priced.
    assert moved["dram.read"] + moved["dram.write"] == pytest.approx(priced, rel=0.03)


def compiled(among: str, sync: str) -> tuple[Program, Arch, dict[str, Any]]:
    """A program whose cores share loads; `early` ones through several places in shared memory."""
    _, model = convolutions()
    way = "shared" if among == "early" else among
    local = {"size": 16 * KIB} if among == "early" else {}
    arch = between(way, cores=3, types=("int8",), sync=sync, local=local)
    stages = Stages(plan=MakePlan(slots=EARLY if among == "early" else 2))
    made = compile_model(prepared(model, "net"), arch, CompileOptions("int8", stages=stages))
    return made.program, arch, feeds_of(model)


def places(items: tuple[Item, ...], path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Where in a stream something is said to, or heard from, another core."""
    for number, item in enumerate(items):
        if isinstance(item, Loop):
            yield from places(item.body, (*path, number))
        elif item.notifies or any("@" in name for name, _ in item.waits):
            yield (*path, number)


def without(items: tuple[Item, ...], path: tuple[int, ...]) -> tuple[Item, ...]:
    """A stream whose instruction at `path` tells and asks other cores nothing."""
    at, *deeper = path
    item = items[at]
    if isinstance(item, Loop):
        changed: Item = replace(item, body=without(item.body, tuple(deeper)))
    else:
        assert isinstance(item, Instruction)
        waits = tuple(wait for wait in item.waits if "@" not in wait[0])
        changed = replace(item, notifies=(), waits=waits)
    return (*items[:at], changed, *items[at + 1 :])


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
@pytest.mark.parametrize("among", [*WAYS, "early"])
def test_without_any_one_signal_between_cores_the_verifier_objects(among: str, sync: str) -> None:
    program, arch, _ = compiled(among, sync)
    assert not findings(program, arch)
    tried = 0
    for core, stream in enumerate(program.cores):
        for path in places(stream):
            cores = list(program.cores)
            cores[core] = without(stream, path)
            assert findings(replace(program, cores=tuple(cores)), arch), path
            tried += 1
    assert tried > 6


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
@pytest.mark.parametrize("among", [*WAYS, "early"])
def test_a_shared_program_means_the_same_in_every_order(among: str, sync: str) -> None:
    program, arch, feeds = compiled(among, sync)
    (expected,) = execute(program, feeds, arch).values()
    for order in map(random_order, range(4)):
        (got,) = execute(program, feeds, arch, order=order).values()
        np.testing.assert_array_equal(got, expected)
    slow = changed(arch, "front_end", signal=Delay(500, True))
    assert simulate(program, slow).cycles > simulate(program, arch).cycles + 500


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
    (made,) = (split or SplitLoads()).apply([nodes], ARCH)
    copies = (item for node in made if isinstance(node, EngineStep) for item in node.items)
    return [
        (copy.dst.address.base, copy.dst.elements, copy.src.address.base)
        for copy in copies
        if isinstance(copy, Copy)
    ]


def test_what_touched_bytes_last_is_as_a_look_through_all_uses_says() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        used, rows = _Used(), list[tuple[int, str, int, int]]()
        for step in range(40):
            low, high = sorted(rng.choice(64, 2, replace=False).tolist())
            engine = "abc"[rng.integers(3)]
            cuts = range(0, high - low, 5)
            ends = [*cuts[1:], high - low]
            use = Use("x", "local", low, high, 1, 0, 0, False)
            assert used.last(engine, use, cuts, ends) == [
                max((n for n, e, a, b in rows if e != engine and a < low + to and low + at < b),
                    default=-1)
                for at, to in zip(cuts, ends, strict=True)
            ]  # fmt: skip
            used.add(step, engine, use)
            rows.append((step, engine, low, high))


def test_what_is_free_first_comes_first() -> None:
    """Of 20 KiB at 8 KiB the last step uses the first half, the one before it the second; pieces
    are of 5 KiB at least."""
    before: list[Node] = [product(18 * KIB, 28 * KIB), product(0, 18 * KIB)]
    assert pieces([*before, loaded(8 * KIB, 20 * KIB, far=100)]) == [
        (18 * KIB, 10 * KIB, 100 + 10 * KIB),
        (8 * KIB, 10 * KIB, 100),
    ]


def test_what_is_free_at_once_is_one_load() -> None:
    assert pieces([product(0, 64 * KIB), loaded(0, 32 * KIB)]) == [(0, 32 * KIB, 0)]
    assert pieces([loaded(0, 32 * KIB)]) == [(0, 32 * KIB, 0)]


def test_small_loads_beside_each_other_are_one() -> None:
    """320 bytes take as long as a load takes to begin."""
    w, b = loaded(0, 2 * KIB, far=KIB), loaded(2 * KIB, 64, far=3 * KIB)
    assert pieces([w, product(4 * KIB, 5 * KIB), b]) == [(0, 2 * KIB + 64, KIB)]
    assert pieces([b, w]) == [(2 * KIB, 64, 3 * KIB), (0, 2 * KIB, KIB)]
    assert len(pieces([w, product(2 * KIB, 3 * KIB), b])) == 2
    assert len(pieces([w, loaded(2 * KIB, 64, far=3 * KIB + 4)])) == 2
    assert len(pieces([w, loaded(2 * KIB, 2 * KIB, far=3 * KIB)])) == 2
    used: list[Node] = [loaded(0, 192), product(0, 192)]  # waits for 320 bytes instead, not for 321
    assert [len(pieces([*used, loaded(192, size, far=192)])) for size in (128, 129)] == [1, 2]


def test_small_constants_that_lie_apart_come_from_a_bundle() -> None:
    """64 bytes at 1 KiB and 40 at 2 KiB, which a core loads side by side, in copies behind the
    constants, also where another load is between them; not what does not lie in a constant, nor
    what takes longer to move than to begin, nor where its place is in use until then."""
    data = np.arange(4 * KIB, dtype=np.uint8)

    def joined(nodes: list[Node]) -> tuple[list[tuple[int, int, int]], Bundles]:
        bundles = Bundles(((0, data),), 4 * KIB)
        (made,) = SplitLoads().apply([nodes], ARCH, bundles=bundles)
        copies = (c for n in made if isinstance(n, EngineStep) for c in n.items)
        loads = [c for c in copies if isinstance(c, Copy)]
        return [(c.dst.address.base, c.dst.bytes, c.src.address.base) for c in loads], bundles

    one, two = loaded(0, 60, far=KIB), loaded(64, 40, far=2 * KIB)
    other = loaded(8 * KIB, KIB, far=0)
    loads, bundles = joined([one, other, two])
    assert loads == [(0, 104, 4 * KIB), (8 * KIB, KIB, 0)]
    ((address, held, origin),) = bundles.made.values()
    assert (address, origin, bundles.end) == (4 * KIB, 0, 4 * KIB + 128)
    raw = np.asarray(held)
    assert (raw[:60] == data[KIB : KIB + 60]).all()
    assert (raw[64:] == data[2 * KIB : 2 * KIB + 40]).all()
    assert joined([one, two, one, two])[1].end == 4 * KIB + 128  # the same twice
    assert len(joined([one, loaded(64, 40, far=5 * KIB)])[0]) == 2
    assert len(joined([one, loaded(64, 300, far=2 * KIB)])[0]) == 2
    assert len(joined([one, product(64, 128), two])[0]) == 2


def test_small_constants_of_several_steps_come_with_one_load() -> None:
    """A machine whose loads take long to begin has one on each core for those of a block, of which
    the second core computes other channels: they lie together in a bundle."""
    net, arch = Net(quantized=False), load_arch("neuroncore-v2-like")
    model = prepared(net.model(NETWORKS["attention"](net)), "block")
    program = compile_model(model, arch, CompileOptions(dtype="bf16")).program
    (bundle,) = (c for c in program.constants if c.name.startswith("bundle"))
    ends = bundle.address + bundle.data.nbytes
    counts = []
    for core in program.cores:
        sources = [i.src.address.base for i in core if isinstance(i, Copy) and i.engine == "load"]
        counts.append((sources.count(bundle.address), sum(each < ends for each in sources)))
    assert counts == [(1, 6)] * 2
    assert not findings(program, arch)


def test_copy_engines_that_do_the_same_share_loads_of_constants() -> None:
    """HBM gives each core 293 B a cycle and an engine takes 166, so two load at once; not one that
    lacks something, nor one beside an engine that takes all."""
    net, base = Net(quantized=False), load_arch("neuroncore-v2-like")
    model, own = prepared(net.model(NETWORKS["attention"](net)), "net"), base.copy_["load"]

    def made(second: CopyEngine | None, **own_fields: Any) -> tuple[int, int]:
        """Loads on the second engine, and cycles."""
        engines = base.copy_ | {"load": own.model_copy(update=own_fields)}
        engines |= {"second": second} if second else {}
        arch = base.model_copy(update={"copy_": engines})
        program = compile_model(model, arch, CompileOptions(dtype="bf16")).program
        assert not findings(program, arch)
        done = (item for core in program.cores for item, _ in instructions(core))
        loads = sum(item.engine == "second" for item in done)
        return loads, simulate(program, arch).cycles

    _, alone = made(None)
    loads, cycles = made(own)
    assert (loads, cycles < 0.85 * alone) == (6, True)
    assert made(own.model_copy(update={"pad": not own.pad})) == (0, alone)
    assert made(own, bandwidth=Bandwidth(400, per_cycle=True))[0] == 0


def test_a_part_whose_rest_others_load_is_cut_where_it_lies() -> None:
    """Another core loads the first 20 KiB of the buffer, this one the second: of these the first
    half is in use until the last step, which the place of the buffer's own first half is not."""
    part = loaded(20 * KIB, 20 * KIB)
    shared = replace(part, uses=(part.uses[0]._replace(low=0, high=40 * KIB),))
    before: list[Node] = [product(30 * KIB, 40 * KIB), product(20 * KIB, 30 * KIB)]
    (nodes,) = SplitLoads().apply([[*before, shared]], ARCH)
    made = [leaf for leaf in nodes if isinstance(leaf, EngineStep)]
    assert [(leaf.uses[0].low, leaf.uses[0].high) for leaf in made if leaf.engine == "load"] == [
        (30 * KIB, 40 * KIB),
        (20 * KIB, 30 * KIB),
    ]


@pytest.mark.parametrize("cycles", [400, 339])
def test_loads_that_end_in_time_go_ahead_of_a_wait(cycles: int) -> None:
    """Step 0 works for 400 cycles, or is expected to take fewer; step 1 loads what it stores. Until
    then there is time for loads of 120 and of 220 cycles, not for another one, nor for those whose
    place is in use at the end of either step."""
    turns = (Loop("v", 400, (Sync(engine="matrix"),)),)
    work = replace(product(0, KIB), items=turns)
    wait = EngineStep("load", (Await(engine="load", barrier="step0", origin=1),), origin=1)
    stored = replace(loaded(32 * KIB, 1600), reads=frozenset({"x"}), origin=1)
    use = replace(product(2 * KIB, 4 * KIB), origin=1)
    behind = replace(product(48 * KIB, 49 * KIB), items=turns * 9, origin=1)
    short, long, one_more, early, late = (
        replace(loaded(low, size, far=low + 64), origin=1)
        for low, size in (
            (8 * KIB, 1600), (16 * KIB, 3200), (24 * KIB, 1600), (0, 64), (2 * KIB, 64),
        )
    )  # fmt: skip
    nodes = [work, wait, stored, use, early, late, short, long, one_more, behind]
    times = StepTimes({"step0": float(cycles), "step1": 1000.0}, lambda origin: f"step{origin}")
    (made,) = SplitLoads().apply([nodes], ARCH, steps=times)
    ahead = [short, long] if cycles == 400 else [short, one_more]
    assert made == [work, *ahead, *(node for node in nodes[1:] if node not in ahead)]
    assert SplitLoads().apply([nodes], ARCH) == [nodes]
    # Where there is less to compute than to load behind the wait, it may as well grow.
    (made,) = SplitLoads().apply([nodes[:-1]], ARCH, steps=times)
    assert made[1:3] == [short, long]


def test_turns_of_loads_apart_wait_for_one_slot_each() -> None:
    """A loop loads four tiles to two slots; what is loaded behind it to the first slot waits for
    the last tile there, and none of the loop's own loads for what the other slot is used for."""

    def tile(leaf: EngineStep, low: int, size: int, step: int) -> EngineStep:
        ring = Ring(2, KIB, 0, (("t0", 1),))
        items = tuple(
            replace(i, dst=replace(i.dst, address=Address(low, (), ring)),
                    src=replace(i.src, address=Address(0, (("t0", step),))))
            if isinstance(i, Copy) else i
            for i in leaf.items
        )  # fmt: skip
        own = Use("w", "local", low, low + 2 * size, 2, 1, 0, leaf.engine == "load", pitch=size)
        return replace(leaf, items=items, uses=(own,))

    load = tile(loaded(0, KIB), 0, KIB, KIB)
    (copy,) = load.items
    assert isinstance(copy, Copy)
    moves = Unary(engine="matrix", function="move", a=copy.dst, dst=copy.dst)
    work = tile(replace(product(0, KIB), items=(moves,)), 0, KIB, 0)
    loop = SegmentedLoop("t0", (LoopSegment(4, (load, work)),))
    (made,) = SplitLoads(turns=8).apply([[loop, loaded(0, KIB)]], ARCH)
    spans = [(node.engine, node.uses[0].low) for node in made if isinstance(node, EngineStep)]
    assert spans == [(e, n % 2 * KIB) for n in range(4) for e in ("load", "matrix")] + [("load", 0)]
    assert [use.high - use.low for node in made for _, use in node.touches] == [KIB] * 9
    (same,) = SplitLoads(turns=3).apply([[loop, loaded(0, KIB)]], ARCH)
    assert same == [loop, loaded(0, KIB)]


def test_half_of_the_cores_load_from_near_first() -> None:
    far, near = loaded(0, KIB), loaded(KIB, KIB)
    (copy,) = near.items
    assert isinstance(copy, Copy)
    near = replace(near, items=(replace(copy, src=replace(copy.src, memory="shared")),))
    onto = replace(near, uses=far.uses)  # to the same bytes: the order decides what is there
    for second, turned in ((near, True), (onto, False)):
        loop: Node = SegmentedLoop("t", (LoopSegment(2, (far, second)),))
        one, two = SplitLoads().apply([[loop, far, near]] * 2, ARCH)
        assert one == [loop, far, near]
        body = (second, far) if turned else (far, second)
        assert two == [SegmentedLoop("t", (LoopSegment(2, body),)), far, near]


def test_loops_in_one_place_load_in_one_order() -> None:
    """Their steps have tokens in common, also where one fills a border or works beside its load."""
    far, near = loaded(0, KIB), loaded(KIB, KIB)
    (copy,) = near.items
    assert isinstance(copy, Copy)
    near = replace(near, items=(replace(copy, src=replace(copy.src, memory="shared")),))
    border = Fill(engine="load", dst=copy.dst, value=0.0)
    work = Unary(engine="matrix", function="move", a=copy.dst, dst=copy.dst)
    for item, turned in ((border, True), (work, False)):
        turns = [(far, replace(near, items=(item, *near.items))), (far, near)]
        inner = (SegmentedLoop("u", (LoopSegment(2, body),)) for body in turns)
        loop = SegmentedLoop("t", tuple(LoopSegment(3, (each,)) for each in inner))
        _, (made,) = SplitLoads().apply([[loop], [loop]], ARCH)
        step = 1 if turned else 0  # of each turn, the one from off chip
        assert made.leaves[step::2] == (far, far)


def test_loops_load_what_comes_behind_them_while_dram_rests() -> None:
    """A turn takes 420 cycles, its load 20 + 100. Of the 300 left, 90 % are for others: 20 until
    one begins, and 3 968 bytes, whole bursts."""
    body = (loaded(0, 1600), product(0, 1600))
    loop = SegmentedLoop("t", (LoopSegment(4, body), LoopSegment(1, body)))
    behind = loaded(8 * KIB, 32 * KIB, far=KIB)

    def made(*ahead: Node, cycles: float = 5 * 420, last: Node = behind) -> list[Node]:
        return SplitLoads().apply([[*ahead, loop, last]], ARCH, lambda _: cycles)[0]

    turning, rest = made()
    assert isinstance(turning, SegmentedLoop)
    parts = [segment.body[1] for segment in turning.segments]
    moved = [
        (item.dst.address, item.src.address, item.dst.elements, part.touches)
        for part in parts if isinstance(part, EngineStep)
        for item in part.items if isinstance(item, Copy)
    ]  # fmt: skip
    steps, size, done = (("t", 3968),), 3968, 4 * 3968
    assert moved == [
        (Address(8 * KIB, steps), Address(KIB, steps), size, ()),
        (Address(8 * KIB + done), Address(KIB + done), size, ()),
    ]
    assert pieces([rest]) == [(8 * KIB + 5 * size, 32 * KIB - 5 * size, KIB + 5 * size)]
    # Who reads the first bytes waits for the rest as well.
    assert rest.touches == behind.touches
    # The last turn loads all that is left, where it can: no load of a few bytes follows.
    _, rest = made(last=(small := loaded(8 * KIB, done + 1000, far=KIB)))
    assert (pieces([rest]), rest.touches) == ([], small.touches)
    # The loop begins behind a product that uses the place before; and there has to be time.
    work = product(8 * KIB, 40 * KIB)
    assert made(work) == [work, replace(behind, items=()), *made()]
    assert made(cycles=5 * 150) == [loop, behind]
    # What all tiles of another loop read comes in its first, and likewise.
    others = LoopSegment(3, (replace(behind, items=()), work))
    tiles = SegmentedLoop("s", (LoopSegment(1, (behind, work)), others))
    turn = LoopSegment(1, (made()[1], work))
    assert made(last=tiles) == [turning, replace(tiles, segments=(turn, others))]


def test_turns_of_loops_inside_load_what_comes_behind() -> None:
    """As above in four turns of a loop inside of another's two."""
    body = (loaded(0, 1600), product(0, 1600))
    inner = SegmentedLoop("u", (LoopSegment(3, body), LoopSegment(1, body)))
    outer, behind = SegmentedLoop("t", (LoopSegment(2, (inner,)),)), loaded(8 * KIB, 64 * KIB)
    made = SplitLoads().apply([[outer, behind]], ARCH, lambda _: 8 * 420)[0]
    (segment,) = made[0].segments if isinstance(made[0], SegmentedLoop) else ()
    parts = [item for leaf in segment.body[0].leaves for item in leaf.items]
    moved = [item.dst.address for item in parts if isinstance(item, Copy)]
    size, own = 3968, loaded(0, 1600).items[0].dst.address
    assert moved == [
        own, Address(8 * KIB, (("u", size), ("t", 3 * size))),
        own, Address(8 * KIB + 6 * size, (("t", size),)),
    ]  # fmt: skip
    assert [low for low, *_ in pieces([made[1]])] == [8 * KIB + 8 * size]
    # Two loops inside that load leave none.
    several = SegmentedLoop("t", (LoopSegment(2, (inner, inner)),))
    assert SplitLoads().apply([[several, behind]], ARCH, lambda _: 8 * 420)[0] == [several, behind]


def filling(**fields: Any) -> Arch:
    """A machine of two cores with an engine that fills shared memory."""
    arch = machine(cores=2, shared={"size": 1 << 18} | fields.pop("shared", {}), **fields)
    fill = arch.copy_["load"].model_copy(update={"from_": ("dram",), "to": ("shared",)})
    return arch.model_copy(update={"copy_": {**arch.copy_, "fill": fill}})


def test_constants_wait_in_shared_memory_while_dram_rests() -> None:
    """Step 0 leaves DRAM time for the load of one core, so the other core's begins with step 1.
    What is needed in step 1 comes as before, and all where no engine of its own fills."""
    work = replace(product(0, KIB), items=(Loop("v", 60, (Sync(engine="matrix"),)),))
    w, use = loaded(8 * KIB, 1600, far=128), product(8 * KIB, 9 * KIB)
    ahead = [
        work,
        replace(loaded(KIB, 1600), origin=1),
        replace(product(2 * KIB, 3 * KIB), origin=1),
    ]
    nodes: list[Node] = [*ahead, replace(w, origin=3), replace(use, origin=3)]
    times = StepTimes(
        {"step0": 50.0, "step1": 400.0, "step2": 9.0, "step3": 200.0}, "step{}".format
    )
    made, (buffer,) = FillShared(enabled=True).apply([nodes] * 2, filling(), times, 100)
    before, behind = texts(ahead), texts(nodes[4:])
    for core, place in enumerate(("0x80", "0x6c0")):
        filled = f"copy fill dst=shared[{place}]:int8[1600] src=dram[0x80]:int8[1600] !3"
        near = f"copy load dst=local[0x2000]:int8[1600] src=shared[{place}]:int8[1600]"
        assert texts(made[core]) == [*before[:core], filled, *before[core:], near, *behind]
    assert (buffer.address, buffer.size, buffer.first, buffer.last) == (128, 3200, 0, 3)
    assert FillShared(enabled=True).apply([nodes] * 2, ARCH, times, 0) == ([nodes] * 2, [])


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
@pytest.mark.parametrize("level", ["chip", "cluster"])
def test_a_program_whose_constants_wait_means_the_same_in_every_order(
    sync: str, level: str
) -> None:
    net = Net(quantized=True)
    x = net.input(1, 16, 12, 12)
    for channels, kernel in ((16, 3), (16, 3), (64, 1), (64, 1), (64, 1)):
        x = net.op("Relu", conv(net, x, channels, (kernel, kernel)))
    model = net.model(x)
    arch = filling(types=("int8",), among="load", sync=sync, clusters=2, shared={"level": level})
    ways = [Stages(partition=Unfused(), fill=FillShared(enabled=on)) for on in (False, True)]
    before, filled = (
        compile_model(prepared(model, "net"), arch, CompileOptions("int8", stages=stages)).program
        for stages in ways
    )
    assert not findings(filled, arch)
    (expected,) = execute(before, feeds_of(model), arch).values()
    for order in map(random_order, range(2)):
        (got,) = execute(filled, feeds_of(model), arch, order=order).values()
        np.testing.assert_array_equal(got, expected)
    moved, usual = (simulate(program, arch).traffic for program in (filled, before))
    assert moved["shared.read"] - usual["shared.read"] >= 4 * KIB
    assert moved["dram.read"] == usual["dram.read"]
