"""Schedules as text: what is written is read, what is wrong is told, what is followed is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from blocks import conv
from hypothesis import given
from hypothesis import strategies as st
from machines import machine
from networks import Net, feeds_of, reference

from compiler.api import CompileOptions, CompileResult, compile_model, prepared
from compiler.decisions.text.extract import extract_tree
from compiler.decisions.text.text import TreeError, parse_tree, print_tree
from compiler.decisions.text.tree import (
    BufferAddress,
    Call,
    For,
    Home,
    ScheduleStep,
    Span,
    StepLayer,
    Tree,
)
from compiler.errors import DoesNotFit
from compiler.explain.dump import form_after
from compiler.memory.on_chip import PlacedGroup, check_layout
from compiler.options import Stages
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.machine.run import simulate
from simmodel.metrics import measure
from simmodel.program.assembly import print_program
from simmodel.verify import verify

TEXT = """\
tree net
home "a#b" local at 4096 passed
  core h = 0:5
  core h = 3:8
home c shared
step
  core h = 0:4
  core h = 4:8
  cores 2:4
  slots 3
  for n 1
  for h 2 rolling
  layer conv, relu: for o 32; for c 64 ahead; resident
  layer "x/y"
  buffer conv at 0 every 512
host p, q
"""
TREE = Tree(
    "net",
    (
        ScheduleStep(
            (
                StepLayer(
                    ("conv", "relu"), (For("o", 32), For("c", 64, ahead=True)), resident=True
                ),
                StepLayer(("x/y",)),
            ),
            ((Span("h", 0, 4),), (Span("h", 4, 8),)),
            (For("n", 1), For("h", 2, rolling=True)),
            3,
            (BufferAddress("conv", 0, 512),),
            (2, 4),
        ),
        Call(("p", "q")),
    ),
    (
        Home("a#b", "local", 4096, ((Span("h", 0, 5),), (Span("h", 3, 8),)), True),
        Home("c", "shared"),
    ),
)


def test_every_line_has_its_place() -> None:
    assert print_tree(TREE) == TEXT
    assert parse_tree(TEXT) == TREE


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)
COUNTS = st.integers(1, 9999)
LOOPS = st.lists(st.builds(For, NAMES, COUNTS), max_size=3).map(tuple)
SPANS = st.lists(st.builds(Span, NAMES, st.integers(0, 99), COUNTS), max_size=2).map(tuple)
STEPS = st.builds(
    ScheduleStep,
    st.lists(
        st.builds(StepLayer, st.lists(NAMES, min_size=1).map(tuple), LOOPS, st.booleans()),
        min_size=1,
    ).map(tuple),
    st.lists(SPANS, max_size=2).map(tuple),
    st.lists(
        st.builds(For, NAMES, COUNTS, st.booleans(), stages=st.lists(COUNTS).map(tuple)), max_size=2
    ).map(tuple),
    st.none() | COUNTS,
    st.lists(
        st.builds(BufferAddress, NAMES, st.integers(0, 9999), COUNTS),
        max_size=2,
        unique_by=lambda address: address.buffer,
    ).map(tuple),
    st.none() | st.tuples(st.integers(0, 9), st.integers(10, 99)),
)
CALLS = st.builds(Call, st.lists(NAMES, min_size=1).map(tuple))
HOMES = st.builds(
    Home,
    NAMES,
    st.just("local"),
    st.none() | COUNTS,
    st.lists(SPANS, max_size=2).map(tuple),
    st.booleans(),
) | st.builds(Home, NAMES, st.just("shared"), st.none() | COUNTS)
TREES = st.builds(
    Tree,
    NAMES,
    st.lists(STEPS | CALLS, max_size=3).map(tuple),
    st.lists(HOMES, unique_by=lambda home: home.tensor).map(tuple),
)


@given(TREES)
def test_trees_come_back_from_their_text(tree: Tree) -> None:
    assert parse_tree(print_tree(tree)) == tree


def network() -> onnx.ModelProto:
    """Three convolutions in a row on 16 x 16 pixels: 8, 16 and 8 channels."""
    net = Net()
    x = net.input(1, 8, 16, 16)
    for channels in (8, 16, 8):
        x = net.op("Relu", conv(net, x, channels, (3, 3)))
    return net.model(x)


ROOMY = machine(name="roomy", local={"size": 1 << 18, "banks": 4})
THREE = """\
tree net
step
  core
  for h 4 rolling
  layer t4: resident
  layer t8: resident
  layer t12: for o 4
"""
"""Three layers in one step, with no more said than is needed."""


def compiled(text: str | None, arch: Arch = ROOMY) -> CompileResult:
    """The program of `network` on `arch`, by a tree or by the search."""
    tree = None if text is None else parse_tree(text)
    options = CompileOptions("fp32", tree=tree)
    return compile_model(prepared(network(), "net"), arch, options)


def test_names_are_those_of_the_network() -> None:
    own = extract_tree("net", compiled(None).steps)
    assert [nest for step in own.steps for work in step.layers for nest in work.nests] == [
        "t4", "t8", "t12",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("loops", "sizes"),
    [("for o 4", [(1, 4)]), ("for w 3", [(3, 3)]), ("for o 4; for w 5", [(1, 4), (3, 5)])],
)
def test_a_tree_by_hand_is_followed_and_computes_the_same(
    loops: str, sizes: list[tuple[int, int]]
) -> None:
    """Also in tiles of parts of several rows."""
    made = compiled(THREE.replace("for o 4", loops))
    verify(made.program, ROOMY)
    (step,) = made.steps
    assert isinstance(step, PlacedGroup)
    schedule = step.plan.schedule
    assert [(loop.axis, loop.size, loop.rolling) for loop in schedule.loops] == [(2, 4, True)]
    assert [tiled.resident for tiled in schedule.layers] == [True, True, False]
    assert [(loop.dim, loop.size) for loop in schedule.layers[2].loops] == sizes
    model = network()
    feeds = feeds_of(model)
    (want,) = reference(model, feeds).values()
    (got,) = execute(made.program, feeds, ROOMY).values()
    np.testing.assert_allclose(got, want, 0, 1e-4 * np.abs(want).max())


@pytest.mark.parametrize(("ahead", "slots"), [((1,), [2, 1]), ((2,), [1, 2]), ((1, 2), [2, 2])])
@pytest.mark.parametrize("sync", ["tokens", "interlock"])
def test_layers_may_be_a_tile_ahead(ahead: tuple[int, ...], slots: list[int], sync: str) -> None:
    """What a layer that is ahead hands on has a place for the tile of either, with its halo."""
    arch = machine(name=sync, local={"size": 1 << 18, "banks": 4}, sync=sync)
    said = f"rolling ahead {', '.join(map(str, ahead))}"
    made = compiled(THREE.replace("rolling", said), arch)
    verify(made.program, arch)
    (step,) = made.steps
    assert isinstance(step, PlacedGroup)
    assert [step.plan.buffers[name].slots for name in ("t4", "t8")] == slots
    assert f"for h 4 {said}\n" in print_tree(extract_tree("net", made.steps))
    model = network()
    feeds = feeds_of(model)
    (want,) = reference(model, feeds).values()
    (got,) = execute(made.program, feeds, arch).values()
    np.testing.assert_allclose(got, want, 0, 1e-4 * np.abs(want).max())


@pytest.mark.parametrize(
    ("cores", "part", "parts"),
    [
        (1, "core", [(2304, 2), (4608, 1)]),
        (2, "core o = 0:4\n core o = 4:8", [(1152, 2), (2304, 1)]),
    ],
)
def test_constants_of_a_layer_alone_may_be_loaded_as_a_whole(
    cores: int, part: str, parts: list[tuple[int, int]]
) -> None:
    """One load of 8 x 16 x 9 weights instead of one for each of two tiles; each core loads those
    of its own channels."""
    arch = machine(name="roomy", cores=cores, local={"size": 1 << 18, "banks": 4})
    first = "core\n" if cores == 1 else "core h = 0:8\n core h = 8:16\n"
    text = f"tree net\nstep\n {first} layer t4\n layer t8\nstep\n {part}\n"
    text += f" layer t12: for o {4 // cores}"
    streamed, whole = compiled(f"{text}\n", arch), compiled(f"{text}; resident\n", arch)
    verify(whole.program, arch)
    found = []
    for made in (streamed, whole):
        _, alone = made.steps
        assert isinstance(alone, PlacedGroup)
        found += [(b.bytes, b.slots) for b in alone.plan.buffers.values() if b.key and b.key[2]]
    assert found == parts
    feeds = feeds_of(network())
    (want,) = reference(network(), feeds).values()
    (got,) = execute(whole.program, feeds, arch).values()
    np.testing.assert_allclose(got, want, 0, 1e-4 * np.abs(want).max())


@pytest.mark.parametrize(
    ("mask", "part", "shape"),
    [
        # Uneven rows, which all heads add.
        ((1, 31, 31), "core m = 0:15\n core m = 15:31\n for b1 1", (1, 1, 16, 31)),
        ((1, 31, 31), "core b1 = 0:2\n core b1 = 2:4\n for b1 1", (1, 1, 31, 31)),
        # Each tile adds others: piece by piece.
        ((1, 31, 31), "core m = 0:15\n core m = 15:31\n for b1 1\n for m 4", (1, 1, 4, 8)),
        ((4, 31, 31), "core m = 0:15\n core m = 15:31\n for b1 1", (1, 1, 16, 8)),
        # In tiles of rows: the part of a core's own heads.
        ((4, 1, 31), "core b1 = 0:2\n core b1 = 2:4\n for b1 1\n for m 8", (1, 2, 1, 31)),
    ],
)
def test_of_constants_that_stay_a_core_keeps_what_its_tiles_share(
    mask: tuple[int, ...], part: str, shape: tuple[int, ...]
) -> None:
    net = Net()
    sizes = (1, 4, 31, 8), (1, 4, 8, 31), (1, 4, 31, 8)
    query, key, value = (net.input(*each) for each in sizes)
    scores, added = net.op("MatMul", query, key), net.weight(1, *mask)
    scores = net.op("Add", scores, added)
    model = net.model(net.op("MatMul", net.op("Softmax", scores, axis=-1), value))
    softmax = "ReduceMax__1", "Sub__2", "Exp__3", "ReduceSum__5", "Reciprocal__6", "Mul__7"
    names = ", ".join(f"t4_{name}" for name in softmax)
    text = f"tree net\nstep\n {part}\n layer t1, t3: for n 8; resident\n layer {names}\n layer t5\n"
    arch = machine(cores=2, local={"size": 1 << 16, "banks": 4})
    made = compile_model(
        prepared(model, "net"), arch, CompileOptions("fp32", tree=parse_tree(text))
    )
    verify(made.program, arch)
    (step,) = made.steps
    assert isinstance(step, PlacedGroup)
    assert [b.shape for b in step.plan.buffers.values() if b.name == added] == [shape]
    found = measure(simulate(made.program, arch), made.program, arch)
    moved = found.dram_read_bytes + found.dram_write_bytes
    assert step.plan.schedule.estimate.bytes > 0.7 * moved  # also of what comes piece by piece
    feeds = feeds_of(model)
    (want,) = reference(model, feeds).values()
    (got,) = execute(made.program, feeds, arch).values()
    np.testing.assert_allclose(got, want, 0, 1e-5 * np.abs(want).max())


def test_what_a_tree_leaves_out_is_chosen() -> None:
    text = "tree net\nstep\n  layer t4\n  layer t8\nstep\n  layer t12\n"
    made = compiled(text)
    verify(made.program, ROOMY)
    first, second = made.steps
    assert isinstance(first, PlacedGroup)
    assert isinstance(second, PlacedGroup)
    assert len(first.plan.layers) == 2
    assert len(second.plan.layers) == 1
    assert first.plan.schedule.estimate.total > 0


def test_one_slot_is_less_memory_and_more_time() -> None:
    two, one = compiled(THREE), compiled(THREE.replace("  core\n", "  core\n  slots 1\n"))
    spans = [sum(b.size for b in made.program.buffers) for made in (two, one)]
    times = [simulate(made.program, ROOMY).cycles for made in (two, one)]
    assert spans[1] < spans[0]
    assert times[1] > times[0]


def test_schedules_by_hand_are_estimated_like_those_of_the_search() -> None:
    made = compiled("tree net\nstep\n  layer t4\n  layer t8\n  layer t12\n")
    assert made.search is not None
    costs = made.search.costs
    (step,) = made.steps
    assert isinstance(step, PlacedGroup)
    for schedule in costs.schedules(step.plan.schedule.group):
        again = costs.search.estimate(schedule)
        assert again.total == pytest.approx(schedule.estimate.total, rel=0.1)
    by_hand = compiled(THREE)
    (step,) = by_hand.steps
    assert isinstance(step, PlacedGroup)
    expected = step.plan.schedule.estimate.total
    assert expected == pytest.approx(simulate(by_hand.program, ROOMY).cycles, rel=0.2)


def test_what_stays_between_steps_takes_no_dram() -> None:
    apart = "tree net\nstep\n  layer t4\n  layer t8\nstep\n  layer t12\n"
    near = apart.replace("net\n", "net\nhome t8 local\n")
    moved = [
        simulate(compiled(text).program, ROOMY).traffic["dram.write"] for text in (apart, near)
    ]
    assert moved[1] == 8 * 16 * 16 * 4  # the output alone
    assert moved[0] >= moved[1] + 16 * 16 * 16 * 4


def test_addresses_are_taken_as_they_are_given() -> None:
    made = compiled(THREE)
    tree = extract_tree("net", made.steps, addresses=True)
    (step,) = tree.steps
    assert isinstance(step, ScheduleStep)
    moved = replace(step, buffers=tuple(replace(b, start=b.start + 4096) for b in step.buffers))
    again = compiled(print_tree(replace(tree, steps=(moved,))))
    first, second = (
        {b.name: b.address for b in found.program.buffers if b.memory == "local"}
        for found in (made, again)
    )
    assert second == {name: address + 4096 for name, address in first.items()}


def test_places_are_checked_by_what_knows_no_placer() -> None:
    (step,) = compiled(THREE).steps
    assert isinstance(step, PlacedGroup)
    plan, places = step.plan, step.places
    assert not list(check_layout(plan, places, ROOMY))
    first, second = (name for name, b in list(plan.buffers.items())[:2] if b.role == "local")
    clash = {**places, first: places[second]}
    assert any(
        "share bytes of local memory" in said for _, said in check_layout(plan, clash, ROOMY)
    )
    away = {**places, first: (1 << 18, places[first][1])}
    assert any("ends at" in said for _, said in check_layout(plan, away, ROOMY))
    odd = {**places, first: (places[first][0] + 1, places[first][1])}
    assert any("must be multiples" in said for _, said in check_layout(plan, odd, ROOMY))
    narrow = {**places, first: (places[first][0], 4)}
    assert any("do not go every 4" in said for _, said in check_layout(plan, narrow, ROOMY))


def test_every_line_that_cannot_be_read_is_told() -> None:
    with pytest.raises(TreeError) as told:
        parse_tree(
            "  core h = 0:4\nhome c dram\nstep\n  for h none\n  lyer conv\nstep\n"
            "  layer a: for o 0\n  layer b extra\n  buffer a at 4\n"
        )
    assert told.value.mistakes == [
        "line 1: a tree begins with 'tree NETWORK'",
        "line 1: this line belongs to a step: 'step' is missing before it",
        "line 2: no home 'dram'; there are: local, shared, weights, accumulators",
        "line 4: expected a whole number, found 'none'",
        "line 5: no line begins with 'lyer'; there are: tree, slots, instances, home, step, core, "
        "cores, for, layer, buffer, host",
        "line 7: expected a number from 1 on, not 0",
        "line 8: expected the end of the line, found 'extra'",
        "line 9: expected 'every', found 'end of line'",
        "line 3: this step has no layer",
    ]


def test_a_file_that_is_no_tree_is_told_once() -> None:
    with pytest.raises(TreeError) as told:
        parse_tree("import sys\nprint(sys.argv)\n")
    assert told.value.mistakes == ["line 1: a tree begins with 'tree NETWORK'"]


def told(text: str, arch: Arch = ROOMY) -> list[str]:
    """What is wrong with a tree."""
    with pytest.raises(TreeError) as found:
        compiled(text, arch)
    return found.value.mistakes


def test_constants_stay_for_groups_that_read_them_in_any_order() -> None:
    """The order of their lines says nothing: each is given its place for all groups at once."""
    net = Net()
    x, first, second = net.input(1, 24), net.weight(24, 24), net.weight(24, 24)
    for weight in (first, second, second, first):
        x = net.op("MatMul", x, weight)
    model = prepared(net.model(x), "net")

    def follow(text: str) -> CompileResult:
        return compile_model(model, ROOMY, CompileOptions("fp32", tree=parse_tree(text)))

    steps = "step\n  layer t3\n  layer t4\nstep\n  layer t5\n  layer t6\n"
    made = follow(f"tree net\nhome t1 local\nhome t2 local\n{steps}")
    assert [list(d.group.pinned) for d in made.decisions] == [["t1", "t2"], ["t2", "t1"]]
    tree = extract_tree("net", made.steps, addresses=True)
    for homes in (tree.homes, tree.homes[::-1]):
        again = follow(print_tree(replace(tree, homes=homes)))
        assert print_program(again.program) == print_program(made.program)


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("tree other\n", ["line 1: this is a tree of other, not of net"]),
        (
            "tree net\nstep\n layer t44\nstep\n layer t8, t12\nstep\n layer t8\nhost t9\n",
            [
                "line 3: no operator makes 't44'; did you mean 't4'?",
                "line 5: a layer is one that the compiler made, or a run of its operators: t8 is "
                "of the layer t8",
                "line 7: t8 is made in line 5 already",
                "line 8: no call of the host makes t9",
            ],
        ),
        ("tree net\nstep\n layer t4\n layer t8\n", ["no step makes t12"]),
        (
            "tree net\nstep\n layer t12\nstep\n layer t4\nstep\n layer t8\n",
            ["line 3: t12 runs before t8, for which it has to wait"],
        ),
        (
            THREE.replace("core", "core h = 0:8").replace("for h 4", "for hh 4"),
            [
                "line 2: the cores' parts have to cover the last result, each position once; no "
                "core has h = 8:16",
                "line 4: no dimension 'hh'; there are: n, o, h, w; did you mean 'h'?",
            ],
        ),
        (
            THREE.replace("core", "core h = 0:8\n core h = 8:16"),
            ["line 2: 2 cores, where roomy has 1"],
        ),
        (THREE.replace("core", "core\n cores 1:3\n cores 0:1"),
         ["line 5: the step has its cores already"]),
        (THREE.replace("core", "core\n cores 0:2"), ["line 2: cores 0:2, where roomy has 1"]),
        (THREE.replace("core", "core h = 0:8\n core h = 8:16\n cores 0:1"),
         ["line 2: cores 0:1: 1 cores, 2 parts"]),
        (
            THREE.replace("for h 4", "for o 4"),
            ["line 4: tiles cannot move along o, only along h, w"],
        ),
        (THREE.replace("for h 4", "for h 40"), ["line 4: h has 16 positions only"]),
        (
            THREE.replace("for o 4", "for w 4; for c 4; for i 1; for c 2; for o 4"),
            [
                "line 7: two loops over c",
                "line 7: the sum over i cannot be split",
                "line 7: the loop that splits a sum is the innermost",
            ],
        ),
        (
            THREE.replace("net\n", "net\nhome t8 local\nhome t122 local\n"),
            ["line 3: no tensor 't122'; did you mean 't12'?"],
        ),
        (
            THREE.replace("net\n", "net\nhome t8 local\n"),
            ["line 2: t8 cannot stay in local memory between these steps"],
        ),
        (
            THREE.replace("net\n", "net\nhome t8 shared\n"),
            ["line 2: t8: roomy has no shared memory"],
        ),
        ("tree net\nstep\n for h 4\n layer t4\nstep\n layer t8\nstep\n layer t12\n",
         ["line 2: a step with loops says what its cores do"]),
        (
            "tree net\nhome t8 local at -64\nhome t4 local\nhome t4 local\nstep\n layer t4\n",
            ["line 2: expected a number from 0 on, not -64",
             "line 4: a second home of t4; the first is in line 3"],
        ),
        (
            "tree net\nhome t4 local at 100\nstep\n layer t4\nstep\n layer t8\n layer t12\n",
            ["line 2: t4 at 100: must be a multiple of 64 B"],
        ),
        (f"tree net\nhome t4 local at {1 << 30}\nstep\n layer t4\nstep\n layer t8\n layer t12\n",
         [f"line 2: t4: 10368 B are not free in local memory at {1 << 30}, of 262144"]),
        (
            "tree net\nstep\n core\n slots 2\n slots 3\n layer t4: residnet\nstep\n core\n"
            " layer t8: for h 4, for w 4\nstep\n layer t12: resident; resident\n",
            ["line 5: the step has its slots already",
             "line 6: expected 'for' or 'resident', got 'residnet'",
             "line 9: what is said of a layer stands apart by ';', not by ','",
             "line 11: 'resident' stands here twice",
             *(f"line {line}: this step has no layer" for line in (2, 7, 10))],
        ),
        (
            THREE + "  buffer t44 at 0 every 4\n",
            [
                "line 8: no buffer 't44'; did you mean 't4'?",
                "line 2: no place for t1, t10.bias8, t12, t12+sums, t2.bias8, t4, t4+sums, t5, "
                "t6.bias16, t8, t8+sums, t9, x0",
            ],
        ),
        (
            "tree net\nstep\n core\n for h 14 rolling ahead 1\n layer t4\n layer t8\n layer t12\n",
            ["line 2: t4 has one place for all tiles: none is made ahead"],
        ),
        (
            "tree net\nstep\n core\n layer t4: for o 4 ahead\n layer t8\n layer t12\n",
            ["line 4: ahead is for cores that pass on what they load; there is one"],
        ),
    ],
)  # fmt: skip
def test_all_mistakes_are_told_with_their_lines(text: str, mistakes: list[str]) -> None:
    found = told(text)
    assert found == mistakes


def test_what_stays_on_cores_is_read_by_these_alone() -> None:
    text = "tree net\nhome t4 local\n core\nstep\n core\n layer t4\nstep\n core\n cores 1:2\n"
    two = machine(name="two", cores=2, local={"size": 1 << 18, "banks": 4})
    assert told(f"{text} layer t8\nstep\n layer t12\n", two) == [
        "line 7: t4 stays in local memory of cores from 0 on, not of those from 1 on"
    ]


def test_what_does_not_fit_is_refused_with_the_sum() -> None:
    whole = "tree net\nstep\n core\n layer t4\nstep\n core\n layer t8\nstep\n core\n layer t12\n"
    with pytest.raises(DoesNotFit, match=r"local memory needs .* memories.local.size of at least"):
        compiled(whole, machine(name="tiny", local={"size": 8192, "banks": 2}))


def test_tiles_are_first_middle_and_last() -> None:
    """Of two layers with a window of three rows the first is one row ahead: five rows, then four,
    and in the end the three that are left."""
    net = Net()
    x = net.op("Conv", net.input(1, 8, 16, 8), net.weight(8, 8, 3, 3), pads=[1] * 4)
    model = net.model(net.op("Conv", x, net.weight(8, 8, 3, 3), pads=[1] * 4))
    arch = machine(types=("fp16",))
    given = CompileOptions(dtype="fp16", stages=Stages())
    made = form_after("tree", model, "net", arch, given)
    names = [line.split(":")[0].split()[1] for line in made.splitlines() if "  layer" in line]
    tree = "tree net\nstep\n  core\n  for h 4 rolling\n" + "".join(f"  layer {n}\n" for n in names)
    told = CompileOptions(dtype="fp16", stages=Stages(), tree=parse_tree(tree))
    lines = form_after("tile", model, "net", arch, told).splitlines()
    first, second = names
    assert lines[1:] == [
        "  core 0: 4 tiles",
        "    tile 0 (first)",
        f"      {first}: 0:1, 0:8, 0:5, 0:8",
        f"      {second}: 0:1, 0:8, 0:4, 0:8",
        "    tiles 1 - 2 (middle)",
        f"      {first}: 0:1, 0:8, 5:9, 0:8",
        f"      {second}: 0:1, 0:8, 4:8, 0:8",
        "    tile 3 (last)",
        f"      {first}: 0:1, 0:8, 13:16, 0:8",
        f"      {second}: 0:1, 0:8, 12:16, 0:8",
    ]
