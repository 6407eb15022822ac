"""Schedules as text that are wrong: every mistake at once, with its line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machines import machine
from networks import Net
from test_tree import ROOMY, THREE, compiled

from compiler.api import CompileOptions, CompileResult, compile_model, prepared
from compiler.decisions.text.extract import extract_tree
from compiler.decisions.text.text import TreeError, parse_tree, print_tree
from compiler.errors import DoesNotFit
from simmodel.arch.record import Arch
from simmodel.program.assembly import print_program


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
        "line 4: expected a whole number, not 'none'",
        "line 5: no line begins with 'lyer'; there are: tree, slots, home, step, core, for, layer, "
        "buffer, host",
        "line 7: expected a number from 1 on, not 0",
        "line 8: nothing may follow at 'extra'",
        "line 9: expected 'every' at the end",
        "line 3: this step has no layer",
    ]


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
         [f"line 2: t4: 10368 B are not free in local memory at {1 << 30}"]),
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
            "tree net\nstep\n core\n layer t4: for h 4; resident\n"
            "step\n core\n layer t8: resident\nstep\n layer t12\n",
            [f"line {line}: constants stay through the 'for' of a step, or between its layers; "
             "here is one layer without: leave 'resident' out" for line in (4, 7)],
        ),
        (
            THREE + "  buffer t44 at 0 every 4\n",
            [
                "line 8: no buffer 't44'; did you mean 't4'?",
                "line 2: no place for t1, t10.bias8, t12, t12+sums, t2.bias8, t4, t4+sums, t5, "
                "t6.bias16, t8, t8+sums, t9, x0",
            ],
        ),
    ],
)  # fmt: skip
def test_all_mistakes_are_told_with_their_lines(text: str, mistakes: list[str]) -> None:
    found = told(text)
    assert found == mistakes


def test_what_does_not_fit_is_refused_with_the_sum() -> None:
    whole = "tree net\nstep\n core\n layer t4\nstep\n core\n layer t8\nstep\n core\n layer t12\n"
    with pytest.raises(DoesNotFit, match=r"local memory needs .* memories.local.size of at least"):
        compiled(whole, machine(name="tiny", local={"size": 8192, "banks": 2}))
