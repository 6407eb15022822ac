"""Of equal layers the first, the second and the last are executed, and the row says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from host_only import HOST_ONLY, small_model
from networks import model
from onnx import helper

from archgen.cli.main import cli
from archgen.outcomes.points import Execute, Point, Row
from archgen.process.files import cache_dir
from archgen.scheduling import Scheduling
from archgen.schema import load_arch
from archgen.studies.design import StudyError
from archgen.studies.run import Workbench
from archgen.studies.sweep import study
from archgen.toolchain import STANDARD, Compiled, Request, Toolchain
from compiler.api import Memo
from simmodel.isa import Item, Loop
from simmodel.isa.base import instructions
from simmodel.isa.region import Operand
from simmodel.program.program import Constant, Program
from simmodel.program.substitute import map_operands
from simmodel.verify.repeats import unlike

pytestmark = pytest.mark.usefixtures("own_cache")
COUNT, WIDTH, ROWS = 9, 32, 8
SOME = f"3 of {COUNT - 2} equal layers"
"""The first reads what the network is given, and behind it the constants of the second are loaded
early: those of the others lie where its lie."""
FLASHED = """
extends: ascend-310-like
name: flashed
memories: {flash: {size: 1 GiB, bandwidth: 4 GB/s}}
copy: {load: {from: [dram, shared, flash]}}
"""
Layer = dict[str, Any]
"""What a layer has in another way."""


def network(path: Path, count: int = COUNT, odd: int | None = None, **other: Any) -> Path:
    """Equal layers in a row: a product, a norm, a function and what came in. Of the `odd` one
    something is another."""
    random, nodes, weights, last = np.random.default_rng(0), [], {}, "x"
    for i in range(count):
        own: Layer = {"epsilon": 1e-5, "alpha": 0.1, "wide": WIDTH, "reads": last}
        own |= other if i == odd else {}
        for name, shape in (("u", (WIDTH, own["wide"])), ("d", (own["wide"], WIDTH))):
            values = random.standard_normal(shape) / np.sqrt(shape[0])
            weights[f"{name}{i}"] = values.astype(np.float32)
        weights |= {f"s{i}": random.uniform(0.5, 1, WIDTH).astype(np.float32)}
        nodes += [
            helper.make_node("LayerNormalization", [own["reads"], f"s{i}"], [f"n{i}"],
                             epsilon=own["epsilon"]),
            helper.make_node("MatMul", [f"n{i}", f"u{i}"], [f"m{i}"]),
            helper.make_node("LeakyRelu", [f"m{i}"], [f"l{i}"], alpha=own["alpha"]),
            helper.make_node("MatMul", [f"l{i}", f"d{i}"], [f"p{i}"]),
            helper.make_node("Add", [last, f"p{i}"], [f"y{i}" if i < count - 1 else "y"]),
        ]  # fmt: skip
        last = f"y{i}"
    ends = [1, ROWS, WIDTH]
    onnx.save(model(nodes, {"x": ends}, {"y": ends}, weights), path)
    return path


def row_of(
    path: Path, tools: Toolchain = STANDARD, execute: Execute = "distinct",
    machine: str = "ascend-310-like", dtype: str = "fp16", fusion: str = "none",
) -> Row:  # fmt: skip
    """Layers one by one, so that each is stored, unless another `fusion` is asked for."""
    way = Scheduling(effort=0, fusion=fusion)
    arch = load_arch(machine)
    point = Point("key", arch, str(path), 1, dtype, scheduling=way, execute=execute)
    row = Workbench(replace(tools, tries=False)).run(point).row
    assert row["status"] == "ok", row.get("reason")
    return row


def test_constants_may_lie_in_flash(tmp_path: Path) -> None:
    file = tmp_path / "flashed.yaml"
    file.write_text(FLASHED)
    row = row_of(network(tmp_path / "n.onnx"), machine=str(file))
    assert (row["verified"], row["executed"]) == (True, SOME)


@pytest.mark.parametrize("field", ["scale", "zero"])
def test_quantized_layers_are_equal_if_each_has_its_own_numbers(tmp_path: Path, field: str) -> None:
    path, made = network(tmp_path / "net.onnx"), []

    def wrong(request: Request) -> Compiled:
        """Of a layer that is not executed the second operator has its result as in layer 1."""
        made.append(STANDARD.compile(request))
        program = made[0].program
        groups = 5, 17
        own, other = (
            next(
                item
                for item, _ in instructions(program.cores[0])
                if program.origins[item.origin].group == group
                and any(operand.scale is not None for operand in item.writes())
            )
            for group in groups
        )
        number = getattr(own.writes()[0], field)
        assert number != getattr(other.writes()[0], field)
        target: Any = replace(other.writes()[0], **{field: number})
        changed = replace(other, dst=target)  # type: ignore[call-arg]

        def put(item: Item) -> Item:
            if isinstance(item, Loop):
                return replace(item, body=tuple(map(put, item.body)))
            return changed if item is other else item

        cores = tuple(tuple(map(put, core)) for core in program.cores)
        return replace(made[0], program=replace(program, cores=cores))

    row = row_of(path, replace(STANDARD, compile=wrong), machine="tpu-v1", dtype="int8")
    assert (row["verified"], row["executed"]) == (False, None)
    tools = replace(STANDARD, compile=lambda _: made[0])
    row = row_of(path, tools, machine="tpu-v1", dtype="int8")
    assert (row["verified"], row["executed"]) == (True, SOME)


SKIPPED = (9, True, "3 of 7 equal layers")


@pytest.mark.parametrize(
    ("layer", "verified", "executed"), [SKIPPED, (3, False, None), (19, False, None)]
)
def test_what_equal_layers_leave_on_chip_is_there_for_the_last(
    tmp_path: Path, layer: int, verified: bool, executed: str | None
) -> None:
    """Groups pass two tensors on in local memory, at places that alternate: a period is two layers.
    A mistake in one that is executed is found, though nothing is stored; then all are."""
    stored: list[tuple[str, ...]] = []

    def wrong(request: Request) -> Compiled:
        made = STANDARD.compile(request)
        assert made.recipe is not None
        stored[:] = [stage.stored for stage in made.recipe.stages]
        return replace(made, program=wrong_weights(layer)(made.program))

    tools = replace(STANDARD, compile=wrong)
    row = row_of(network(tmp_path / "net.onnx", 20), tools, fusion="line")
    assert (row["verified"], row["executed"]) == (verified, executed)
    assert not any(stored[:-1])
    assert verified != any(cache_dir().glob("reference-*"))  # nothing starts from what it makes


def test_what_passes_layers_on_chip_says_nothing_of_quantization(tmp_path: Path) -> None:
    """The last layer starts from what the second has left, not from the network's values."""
    path = network(tmp_path / "net.onnx", 18)
    row = row_of(path, machine="tpu-v1", dtype="int8", fusion="line")
    assert (row["verified"], row["executed"]) == (True, "3 of 8 equal layers")
    assert row["quantization_error"] is None


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Compiled]:
    """The network of equal layers and its program, compiled once."""
    path = network(tmp_path_factory.mktemp("equal") / "net.onnx")
    made: list[Compiled] = []

    def once(request: Request) -> Compiled:
        made.append(STANDARD.compile(request))
        return made[0]

    row_of(path, replace(STANDARD, compile=once))
    return path, made[0]


def judged(
    compiled: tuple[Path, Compiled], change: Callable[[Program], Program] = lambda program: program,
    execute: Execute = "distinct",
) -> Row:  # fmt: skip
    """The row of the network, whose program has changed."""
    path, made = compiled
    program = change(made.program)
    return row_of(
        path, replace(STANDARD, compile=lambda _: replace(made, program=program)), execute
    )


def wrong_weights(layer: int) -> Callable[[Program], Program]:
    """Negative where they lie, and where one load brings them with other constants."""

    def changed(program: Program) -> Program:
        (own,) = (c for c in program.constants if c.name.startswith(f"u{layer}#"))
        rows = np.asarray(own.data).reshape(-1, WIDTH)

        def put(one: Constant) -> Constant:
            data = np.asarray(one.data)
            made = data.tobytes()
            for row in rows:
                made = made.replace(row.tobytes(), (-row).tobytes())
            return replace(one, data=np.frombuffer(made, data.dtype).reshape(data.shape))

        return replace(program, constants=tuple(map(put, program.constants)))

    return changed


def moved(program: Program, source: str, target: str) -> Program:
    """What reads or writes one buffer of DRAM does it at the bytes of another."""
    at = {buffer.name: buffer for buffer in program.buffers}
    low, high = at[source].address, at[source].address + at[source].size

    def change(operand: Operand) -> Operand:
        address = operand.address
        if operand.memory != "dram" or not low <= address.base < high:
            return operand
        away = at[target].address - low
        return replace(operand, address=replace(address, base=address.base + away))

    def of_group(item: Item) -> Item:
        return map_operands(item, change)

    return replace(program, cores=tuple(tuple(map(of_group, core)) for core in program.cores))


def test_three_of_equal_layers_are_executed(compiled: tuple[Path, Compiled]) -> None:
    some, every = judged(compiled), judged(compiled, execute="all")
    assert (some["verified"], some["executed"]) == (True, SOME)
    assert (every["verified"], every["executed"]) == (True, None)
    skipped = 5 * (COUNT - 2 - 3)  # two are not equal, see SOME
    assert some["compared"] == every["compared"] - skipped
    assert some["max_abs_error"] is None  # nobody knows it at the end of all layers
    assert some["latency_cycles"] == every["latency_cycles"]


@pytest.mark.parametrize("layer", [0, 1, 2, COUNT - 1])
def test_a_mistake_in_an_executed_layer_is_found(
    compiled: tuple[Path, Compiled], layer: int
) -> None:
    row = judged(compiled, wrong_weights(layer))
    assert (row["verified"], row["executed"]) == (False, None)  # then all of it is executed
    assert f"m{layer}" in str(row["note"]) or f"l{layer}" in str(row["note"])


def test_a_mistake_in_a_layer_that_is_not_executed_takes_all_of_them(
    compiled: tuple[Path, Compiled],
) -> None:
    row = judged(compiled, wrong_weights(5))
    assert (row["verified"], row["executed"]) == (True, SOME)
    assert judged(compiled, wrong_weights(5), "all")["verified"] is False


@pytest.mark.parametrize("layer", [5, COUNT - 1])
def test_an_address_of_another_layer_is_found(compiled: tuple[Path, Compiled], layer: int) -> None:
    """Also where the layer is not executed, unless it does what an executed one does."""
    weights = {c.name.partition("#")[0]: c.name for c in compiled[1].program.constants}
    row = judged(compiled, lambda p: moved(p, weights[f"d{layer}"], weights["d3"]))
    assert (row["verified"], row["executed"]) == (False, None)


def test_a_group_is_like_another_one_at_its_own_tensors_alone(
    compiled: tuple[Path, Compiled],
) -> None:
    made = compiled[1]
    assert made.recipe is not None
    at = {number: stage.starts for number, stage in enumerate(made.recipe.stages)}
    twins = {11: 5, 12: 6}
    weights = {c.name.partition("#")[0]: c.name for c in made.program.constants}
    assert unlike(made.program, twins, at, {}, {}) == []
    assert unlike(moved(made.program, weights["d3"], weights["d5"]), twins, at, {}, {}) == [11]
    assert unlike(moved(made.program, weights["d1"], weights["d5"]), twins, at, {}, {}) == [11]
    assert unlike(made.program, {11: 6}, at | {6: at[5]}, {}, {}) == [11]


@pytest.mark.parametrize(
    "other",
    [{"alpha": 0.3}, {"epsilon": 1e-3}, {"wide": 48}, {"reads": "y2"}],
    ids=lambda o: next(iter(o)),
)
def test_a_layer_that_is_almost_equal_is_executed(tmp_path: Path, other: Layer) -> None:
    path, made = network(tmp_path / "net.onnx", 2 * COUNT + 1, COUNT, **other), []

    def wrong(request: Request) -> Compiled:
        made.append(STANDARD.compile(request))
        return replace(made[0], program=wrong_weights(COUNT)(made[0].program))

    assert row_of(path, replace(STANDARD, compile=wrong))["verified"] is False
    row = row_of(path, replace(STANDARD, compile=lambda _: made[0]))
    assert row["verified"] is True and re.match("3 of [78], 3 of ", str(row["executed"]))


def test_few_equal_layers_are_all_executed(tmp_path: Path) -> None:
    assert row_of(network(tmp_path / "net.onnx", 6))["executed"] is None


def test_what_is_executed_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="execute some: must be distinct or all"):
        study(["soma-edge"], ["squeezenet:image=32"], execute="some")  # type: ignore[arg-type]
    path = network(tmp_path / "net.onnx")
    told = ["study", "ascend-310-like", "-m", str(path), "--effort", "0", "--fusion", "none",
            "--no-plots", "-j", "1"]  # fmt: skip
    assert f"yes, {SOME} executed" in CliRunner().invoke(cli, told, env={"COLUMNS": "200"}).output


@pytest.mark.parametrize("batches", [[1], [1, 2]])
def test_results_of_a_check_are_kept_for_other_points(
    batches: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benches: list[Workbench] = []
    init = Workbench.__init__
    monkeypatch.setattr(
        Workbench, "__init__", lambda self, tools: (benches.append(self), init(self, tools))[1]
    )
    study(
        ["gemmini-16"],
        [small_model(tmp_path / "m.onnx")],
        batches,
        executor="here",
        tools=HOST_ONLY,
    )
    assert (benches[0]._memo.limit < Memo().limit) == (len(batches) == 1)


@pytest.mark.slow
def test_a_layer_of_real_width_is_checked_in_less_than_its_weights_take(tmp_path: Path) -> None:
    """Beside what a tiny network takes: the largest memory of a study of a Llama-3-8B layer."""
    sizes = ("hidden=64,heads=2,groups=1,wide=128", "hidden=4096,heads=32,groups=8,wide=14336")
    most = []
    for number, size in enumerate(sizes):
        command = [sys.executable, "-m", "archgen", "study", "tpu-v3-like", "--effort", "0"]
        command += ["--model", f"llama:sequence=1,past=511,{size}", "--no-plots"]
        command += ["--jobs", "1", "--out", str(tmp_path / f"{number}")]
        started = subprocess.Popen(
            command, env={**os.environ, "ARCHGEN_CACHE": str(tmp_path / "cache")},
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, used = os.wait4(started.pid, 0)
        assert status == 0
        most.append(used.ru_maxrss << 10)
    weights = 2 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336)
    assert most[1] - most[0] < 0.9 * weights
