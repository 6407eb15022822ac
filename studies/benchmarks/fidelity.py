"""Machines beside measured times that are public, before and after what they assume is fitted.

    python studies/benchmarks/fidelity.py [--quick] [--only TEXT]

`archgen` is the time with the values that the machine's file states, `fitted` with those of its
four assumed fields that come nearest to all points, `held out` with those that come nearest to the
other half of the points. Points were drawn at random (seed 0) from the published tables:

    tpu-v4       TPU v4, a compiled JAX function of one operator: the measurements behind SCALE-Sim
                 TPU (Dang et al., arXiv 2603.22535), github.com/yutation/SCALE-SIM_Validation
    gemmini-rtl  Gemmini's RTL on FPGAs with the mapping of each point: DOSA (Hong et al., MICRO
                 2023), github.com/ucb-bar/dosa, BSD 2-Clause, data/firesim_test_data/dataset.csv;
                 `own` is the compiler's own schedule on the fitted machine, beside what Gemmini's
                 default tiler measured
    scale-sim    SCALE-Sim 3.0.0: cycles of the array alone, which fit nothing
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tables import arguments, table

import archgen
from archgen.api import load_model, prepared_for, request_for
from archgen.exploration.calibrate import Calibration, Measurement, calibrate
from archgen.models.mapping import following
from archgen.scheduling import choice
from archgen.schema.rewritten import changed
from archgen.toolchain import STANDARD
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate
from simmodel.program.program import Program

HERE = Path(__file__).parent
COLUMNS = ("kind", "point", "measured us", "archgen", "ratio", "fitted", "held out", "ratio ")
SCALE_SIM = {
    # Output pixels, filters, window: cycles less one on 32 x 32, outputs, weights, inputs in place.
    (784, 256, 512): (114799, 112383, 139999),
    (196, 1024, 256): (71231, 74239, 62607),
    (49, 512, 2048): (67519, 146431, 77567),
    (1, 1000, 2048): (67519, 194559, 70015),
}
DATAFLOWS = ("output-stationary", "weight-stationary", "input-stationary")


# Networks of one operator, as they were measured.


def network(spec: str, integer: bool, path: Path) -> str:
    """What `load_model` takes for a point: the zoo's name, or a file of a network like it.

    Integers go in and come out as such, channels last: the zoo's networks begin and end with real
    numbers, channels first.
    """
    kind, _, said = spec.partition(":")
    if kind in ("gemm", "conv"):
        return _integer(kind, said, path) if integer else spec
    shape = [int(size) for size in said.split("x")]
    operator = {"add": "Add", "layer_norm": "LayerNormalization"}.get(kind, kind.capitalize())
    inputs, constants = ["x", "y"] if kind == "add" else ["x"], []
    if kind == "layer_norm":
        constants = [numpy_helper.from_array(np.ones(shape[-1], np.float32), "scale")]
    node = helper.make_node(operator, [*inputs, *(c.name for c in constants)], ["z"], name=kind)
    value = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in (*inputs, "z")}
    return _saved([node], [value[n] for n in inputs], value["z"], constants, path)


def _integer(kind: str, said: str, path: Path) -> str:
    size = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", said)}
    random = np.random.default_rng(0)
    x: tuple[int, ...]
    w: tuple[int, ...]
    z: tuple[int, ...]
    operands = ["x", "scale", "zero", "w", "scale", "zero", "scale", "zero"]
    if kind == "gemm":
        x, w, z = ((1, size["m"], size["k"]), (size["k"], size["n"]), (1, size["m"], size["n"]))
        nodes = [helper.make_node("QLinearMatMul", operands, ["z"], name=kind)]
    else:
        side, kernel, stride = size["image"], size["kernel"], size["stride"]
        x, w = (
            (1, side, side, size["channels"]),
            (size["filters"], size["channels"], kernel, kernel),
        )
        z = (1, -(-side // stride), -(-side // stride), size["filters"])
        pads, strides = [kernel // 2] * 4, [stride] * 2
        operands[0] = "first"
        nodes = [
            helper.make_node("Transpose", ["x"], ["first"], perm=[0, 3, 1, 2]),
            helper.make_node("QLinearConv", operands, ["last"], kind, pads=pads, strides=strides),
            helper.make_node("Transpose", ["last"], ["z"], perm=[0, 2, 3, 1]),
        ]
    constants = [
        numpy_helper.from_array(random.integers(-127, 127, w, np.int8), "w"),
        numpy_helper.from_array(np.array(0.01, np.float32), "scale"),
        numpy_helper.from_array(np.array(0, np.int8), "zero"),
    ]
    values = [
        helper.make_tensor_value_info(*v)
        for v in (("x", TensorProto.INT8, x), ("z", TensorProto.INT8, z))
    ]
    return _saved(nodes, values[:1], values[1], constants, path)


def _saved(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto, constants: Sequence[onnx.TensorProto], path: Path,
) -> str:  # fmt: skip
    graph = helper.make_graph(nodes, path.stem, inputs, [output], constants)
    opset = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=opset), path)
    return str(path)


# Targets with measured points.


def points_of(
    target: str, arch: Arch, folder: Path, options: argparse.Namespace
) -> tuple[list[dict[str, str]], list[Measurement]]:
    """Rows of a target's table, and what `calibrate` takes for each."""
    with (HERE / "fidelity" / f"{target}.csv").open(encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if all(w in r["model"] for w in options.only)]
    rows = rows[:: max(1, len(rows) // 4)] if options.quick else rows
    found = []
    for number, row in enumerate(rows):
        mapping = row.get("mapping")
        model = network(row["model"], mapping is not None, folder / f"{target}-{number}.onnx")
        tree = _tree(mapping, folder / f"{target}-{number}.map") if mapping else ""
        ms = float(row["cycles"]) / arch.clock * 1e3 if mapping else float(row["us"]) / 1e3
        found.append(Measurement(model, ms, None, tree, row["kind"], ""))
    return rows, found


def _tree(mapping: str, path: Path) -> str:
    """The file of a mapping; one that splits the columns of a square kernel is turned."""
    if "R" in mapping.partition(" - ")[0]:
        mapping = mapping.translate(str.maketrans("PQRS", "QPSR"))
    path.write_text(mapping, encoding="utf-8")
    return str(path)


def compiled(arch: Arch, point: Measurement) -> Program:
    """The program of a point, by its own schedule if it has one."""
    print(arch.name, point.model, file=sys.stderr, flush=True)
    scheduling = choice(effort=0)
    prepared, dtype = prepared_for(load_model(point.model), arch, scheduling=scheduling)
    request = request_for(prepared, dtype, arch, True, scheduling)
    if point.tree:
        text = Path(point.tree).read_text("utf-8")
        request, _ = following(request, prepared.edge.proto, text)
    return STANDARD.compile(request).program


def shown(rows: Sequence[Mapping[str, str]], found: Calibration) -> Iterator[Sequence[object]]:
    """Each point, and the medians of each kind."""
    held = found.held_out or found.after
    for row, point, before, after, left in zip(
        rows, found.points, found.before, found.after, held, strict=True
    ):
        yield (
            row["kind"], row["model"], 1e3 * point.ms, 1e3 * before, before / point.ms,
            1e3 * after, 1e3 * left, left / point.ms,
        )  # fmt: skip
    for kind in (*dict.fromkeys(row["kind"] for row in rows), ""):
        errors = [median(found.errors(times, kind)) for times in (found.before, found.after, held)]
        said = [f"{error:.1%}" for error in errors]
        yield kind or "all", "median error", None, said[0], None, said[1], said[2], None


def measured(target: str, options: argparse.Namespace) -> None:
    """Print one target."""
    arch = archgen.load_arch(HERE / "fidelity" / f"{target}.yaml")
    with tempfile.TemporaryDirectory() as folder:
        rows, points = points_of(target, arch, Path(folder), options)
        if not points:
            return
        found = calibrate(arch, points, lambda point: compiled(arch, point))
        print(table(target, COLUMNS, shown(rows, found)))
        print("fitted:", ", ".join(f"{name} {value}" for name, value in found.fields.items()))
        print(found.sentence())
        fitted = changed(arch, found.fields)
        if "default" in rows[0] and fitted is not None:
            print(table("Compiler", GAIN, gains(rows, points, found, fitted)))


GAIN = ("point", "mapping", "own schedule", "gain", "measured: mapping", "default tiler", "gain ")


def gains(
    rows: Sequence[Mapping[str, str]], points: Sequence[Measurement], found: Calibration, arch: Arch
) -> Iterator[Sequence[object]]:
    """The compiler's own schedule on the fitted machine, which has the largest run's memories."""
    for row, point, after in zip(rows, points, found.after, strict=True):
        own = simulate(compiled(arch, replace(point, tree="")), arch).cycles
        mapping, cycles, default = (
            round(after * arch.clock / 1e3),
            int(row["cycles"]),
            int(row["default"]),
        )
        yield row["model"], mapping, own, mapping / own, cycles, default, cycles / default


def scale_sim() -> Iterator[Sequence[object]]:
    """The array's cycles in whole programs; memory takes no time to speak of."""
    base = archgen.load_arch(HERE / "fidelity" / "scale-sim.yaml")
    for (m, n, k), cycles in SCALE_SIM.items():
        for dataflow, last in zip(DATAFLOWS, cycles, strict=True):
            arch = changed(base, {"matrix.dataflow": dataflow}) or base
            program = compiled(arch, Measurement(f"gemm:m={m},n={n},k={k}", 1, None, "", "", ""))
            busy = simulate(program, arch).busy("matrix")
            yield f"{m} x {n} x {k}", dataflow, last + 1, busy, busy / (last + 1)


def main(given: Sequence[str] | None = None) -> None:
    """Print the tables."""
    options = arguments(__doc__, given)
    for target in ("gemmini-rtl", "tpu-v4"):
        measured(target, options)
    if not options.only:
        columns = ("product", "dataflow", "SCALE-Sim", "archgen", "ratio")
        print(table("SCALE-Sim 3.0.0, 32 x 32, folds one after another", columns, scale_sim()))


if __name__ == "__main__":
    main()
