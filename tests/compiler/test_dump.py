"""The sequence of tiles as text: what a walk of rows computes, tile by tile."""

from __future__ import annotations

from machines import machine
from networks import Net

from compiler.context import CompileOptions
from compiler.decisions.text.text import parse_tree
from compiler.explain.dump import form_after
from compiler.options import Stages


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
