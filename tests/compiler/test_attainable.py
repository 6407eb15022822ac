"""The bound that knows the machine: by hand, never above what was simulated, and on another
machine; from it to the measured cycle both accounts add up.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import pytest
from blocks import blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine, machines
from networks import Net, check
from test_bind import SLOW, narrow, window
from test_closed_forms import free
from test_mapping import STEP, slowed

from archgen.schema import rewritten
from compiler.api import CompileOptions, compile_model
from compiler.cost.work import product_startup
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.estimate.network_bound import Attainable, Demands, bound_of, product_cycles_on
from compiler.options import Stages
from compiler.target.group_depthwise import GroupDepthwise
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate
from simmodel.metrics import Waterfall, measure, waterfall

CUBE = {"kind": "cube", "rows": 10, "cols": 32, "depth": 32, "overlap": False}


def of(model: onnx.ModelProto, arch: Arch, dtype: str = "fp16") -> tuple[Attainable, int]:
    made = compile_model(model, arch, CompileOptions(dtype=dtype))
    return bound_of(made, arch), simulate(made.program, arch).cycles


def convolution(channels: int, filters: int = 32, kernel: int = 3) -> onnx.ModelProto:
    net = Net()
    x, weight = net.input(1, channels, 10, 10), net.weight(filters, channels, kernel, kernel)
    return net.model(net.op("Conv", x, weight, pads=[kernel // 2] * 4))


@pytest.mark.parametrize(
    ("channels", "filters", "cycles"), [(32, 32, 90), (3, 32, 10), (3, 33, 20)]
)
def test_an_array_has_whole_folds(channels: int, filters: int, cycles: int) -> None:
    """Ten blocks of ten pixels; nine kernel positions of 3 channels are one reduction of 27."""
    found, _ = of(convolution(channels, filters), free(CUBE))
    assert found.matrix == cycles


def test_what_only_the_vector_engine_does() -> None:
    """1600 elements of two additions each on 16 lanes."""
    net = Net()
    x = net.input(1, 16, 10, 10)
    arch = machine(types=("fp16",))
    found, took = of(net.model(net.op("Exp", net.op("Mul", x, x))), arch)
    assert found.vector == 1600 / 16 * (1 + 8)
    assert (found.resource, found.cycles) == ("vector", 900)
    assert took >= 900


def chain(sizes: tuple[int, ...]) -> onnx.ModelProto:
    """An image of 24 x 24, then as many channels; the last layers see one pixel."""
    net = Net()
    x = net.input(1, 16, 24, 24)
    before = 16
    for size in sizes[:-2]:
        x, before = net.op("Conv", x, net.weight(size, before, 1, 1)), size
    x = net.op("GlobalAveragePool", x)
    for size in sizes[-2:]:
        x, before = net.op("Conv", x, net.weight(size, before, 1, 1)), size
    return net.model(x)


def test_late_weights_wait_for_room() -> None:
    """Two late layers of 16 KiB each pass 8 KiB of memory at 16 B a cycle only when the ones before
    are over: what does not fit comes afterwards."""
    local = {"size": 8192, "banks": 4, "bank_width": 16}
    arch = machine(types=("fp16",), local=local, matrix={"rows": 1, "cols": 4, "depth": 4})
    model = chain((16, 16, 512, 16))
    found, took = of(model, arch)
    early = 2 * 576 * 4 * 4  # two layers of 16 x 16 for 576 pixels, a sixteenth in a cycle
    weights = (512 * 16 * 2 * 2 - 8192) / 16
    assert early < found.weights <= early + weights + 2 * 512
    assert found.weights > found.bandwidth
    assert took >= found.cycles


def test_a_product_behind_a_norm_waits_for_all_that_is_normalized() -> None:
    """It reads the sum element by element as well, of which one column alone needs little."""
    net = Net()
    x = net.input(8, 32)
    y = net.op("Softmax", net.op("Add", x, net.op("MatMul", x, net.weight(32, 32))))
    model = net.model(net.op("MatMul", y, net.weight(32, 32)))
    made = compile_model(model, machine(types=("fp16",)), CompileOptions(dtype="fp16"))
    assert made.search is not None
    demands = Demands(made.search.graph, made.search.parts)
    first, last = demands.sizes
    assert demands.before[last][demands.names.index(first)] == 1


def added() -> tuple[onnx.ModelProto, Arch]:
    """Two inputs of 6400 bytes and a result of as many, all compulsory; one copy engine each way,
    of 2 B a cycle, where DRAM has 16."""
    net = Net()
    shape = 1, 32, 10, 10
    arch = machine(types=("fp16",), copy={"bandwidth": "2 B/cycle"}, latency=0)
    return net.model(net.op("Add", net.input(*shape), net.input(*shape))), arch


@pytest.mark.parametrize(
    ("changes", "cycles"),
    [
        ({}, 6400.0),  # the loads; stores run beside them
        ({"copy.load.to": ["local", "dram"]}, 6400.0),  # it may store, but not what lies on chip
        ({"copy.load.bandwidth": "16 B/cycle"}, 3200.0),  # the stores
        ({"copy.load.bandwidth": "16 B/cycle", "cores": 2}, 1600.0),  # those of each core
        ({"copy.more": {"from": "dram", "to": "local", "bandwidth": "6 B/cycle"}}, 3200.0),
        ({"copy.load.outstanding": 1, "copy.load.request": 16, "memories.dram.latency": 16},
         12800.0),  # one request of 16 B in 16 cycles
        ({"links.bus": {"from": "dram", "to": "local", "bandwidth": "1 B/cycle"}}, 12800.0),
        ({"links.bus": {"from": ["dram", "local"], "to": ["local", "dram"],
                        "bandwidth": "1 B/cycle", "duplex": False}}, 19200.0),
        ({"links.bus": {"from": "dram", "to": "local", "bandwidth": "1 B/cycle",
                        "scope": "core"}, "cores": 2}, 6400.0),
    ],
)  # fmt: skip
def test_copy_engines_and_links_carry_what_is_compulsory(
    changes: dict[str, Any], cycles: float
) -> None:
    model, arch = added()
    other = rewritten.changed(arch, changes) or arch
    found, took = of(model, other)
    assert (found.copies, found.resource) == (cycles, "copies")
    assert took >= found.cycles


def test_an_engine_that_reads_flash_and_dram_reads_one_after_the_other() -> None:
    """6400 bytes of an input at 4 B a cycle, 6400 of constants at as much from flash."""
    net = Net()
    arch = machine(types=("fp16",), copy={"bandwidth": "4 B/cycle"}, flash="load", latency=0)
    shape = 1, 32, 10, 10
    found, took = of(net.model(net.op("Add", net.input(*shape), net.weight(*shape))), arch)
    assert (found.flash, found.copies, found.resource) == (1600.0, 3200.0, "copies")
    assert took >= found.cycles


def test_reads_and_writes_of_dram_each_have_a_rate() -> None:
    model, arch = added()
    slow = rewritten.changed(arch, {"memories.dram.write_efficiency": 0.25})
    assert slow is not None
    assert of(model, arch)[0].bandwidth == 19200 / 16
    assert of(model, slow)[0].bandwidth == 12800 / 16 + 6400 / 4


def test_nothing_begins_before_the_host_has_done_its_part() -> None:
    model, arch = added()
    late = rewritten.changed(arch, {"host.per_inference": "1000 cycles"})
    assert late is not None
    (found, took), (with_host, later) = of(model, arch), of(model, late)
    assert (with_host.cycles, later) == (found.cycles + 1000, took + 1000)
    assert (with_host.host, with_host.resource) == (1000.0, "copies")
    calls = Attainable(matrix=9.0, vector=0.0, bandwidth=0.0, weights=0.0, host=18.0, before=10.0)
    assert (calls.cycles, calls.resource) == (19, "host")  # calls of 8 cycles run beside products


SLOWER = {
    "copy.load.bandwidth": ("1 B/cycle", "3 B/cycle"),
    "copy.store.bandwidth": ("1 B/cycle", "5 B/cycle"),
    "memories.dram.write_efficiency": (0.3,),
    "host.per_inference": ("700 cycles",),
    "links.in": tuple({"from": ["dram", "shared"], "to": ["local", "weights"],
                       "bandwidth": "2 B/cycle", "scope": scope, "duplex": False}
                      for scope in ("chip", "core")),
    "links.out": ({"from": "local", "to": "dram", "bandwidth": "3 B/cycle"},),
}  # fmt: skip
"""Changes of a machine that slow its way to and from DRAM down."""


@settings(max_examples=25, derandomize=True)
@given(machines(), st.sets(st.sampled_from(sorted(SLOWER)), max_size=3), st.data())
def test_no_run_is_quicker(arch: Arch, slower: set[str], data: st.DataObject) -> None:
    changes = {name: data.draw(st.sampled_from(SLOWER[name])) for name in sorted(slower)}
    with suppress(ValueError):
        arch = rewritten.changed(arch, changes) or arch
    dtype = data.draw(st.sampled_from(arch.types))
    model: onnx.ModelProto = data.draw(blocks(dtype == "int8", most=3))
    with suppress(DoesNotFit, UnsupportedModel):
        made = compile_model(model, arch, CompileOptions(dtype=dtype))
        trace = simulate(made.program, arch)
        found = bound_of(made, arch)
        assert found.cycles <= trace.cycles
        roofline = measure(trace, made.program, arch).roofline_cycles
        assert found.bandwidth <= roofline + 1 or "memories.dram.write_efficiency" in changes


def test_a_depthwise_convolution_of_which_nothing_is_read_takes_nothing() -> None:
    net = Net()
    whole = net.op("Conv", net.input(2, 4, 8, 8), net.weight(4, 1, 3, 3), group=4)
    none = [net.const([0], np.int64)] * 3
    found, _ = of(net.model(net.op("Slice", whole, *none)), machine(types=("fp16",)))
    assert found.cycles == 0


@pytest.mark.parametrize(
    ("wider", "cycles"),
    [
        ({}, 90),
        ({"cols": 64}, 90),  # 32 filters fill half of the columns
        ({"rows": 20}, 45),  # five blocks of twenty pixels
        ({"depth": 64}, 50),  # nine times 32 channels are five folds of 64
        ({"depth": 288}, 10),
    ],
)
def test_a_larger_array_gains_whole_folds(wider: dict[str, int], cycles: int) -> None:
    """Ten blocks of ten pixels, 32 channels at nine kernel positions, 32 filters."""
    made = compile_model(convolution(32), free(CUBE), CompileOptions(dtype="fp16"))
    found = product_cycles_on(made, free(CUBE | wider))
    assert list(found.dense.values()) == [cycles]
    assert found.depthwise == {}


@pytest.mark.parametrize("together", [True, False])
def test_depthwise_layers_take_the_same_elsewhere_whatever_they_are_here(together: bool) -> None:
    """64 channels on 32 columns at nine kernel positions are 18 folds of ten blocks, each 256
    cycles long; on one lane each of 6400 results takes nine products of 256 cycles,
    and as long to be finished."""
    net = Net(quantized=True)
    stages = Stages(depthwise=GroupDepthwise(enabled=together))
    options = CompileOptions(dtype="int8", stages=stages)
    made = compile_model(net.model(window(net, net.input(1, 64, 10, 10), 64)), narrow(), options)
    native, lanes = narrow(depthwise=True), narrow()
    (on_array,) = product_cycles_on(made, native).depthwise.values()
    assert on_array == 18 * 10 * SLOW + product_startup(native)
    (on_lanes,) = product_cycles_on(made, lanes).depthwise.values()
    assert 6400 * 9 * SLOW <= on_lanes <= 6400 * 10 * SLOW


def accounts(model: onnx.ModelProto, arch: Arch) -> Waterfall:
    program = compile_model(model, arch, CompileOptions(dtype="fp16")).program
    return waterfall(simulate(program, arch), program, arch)


@pytest.mark.parametrize(("channels", "padding"), [(32, 0), (16, 45), (8, 67.5)])
def test_half_a_reduction_is_half_padding(channels: int, padding: float) -> None:
    """Ten pixels, all filters and 32 products of each in a cycle: 90 cycles, whatever is in them;
    each takes 16384 times as long, so that memory does not matter."""
    found = accounts(convolution(channels), slowed(free(CUBE | {"granularity": "gemm"})))
    assert found.matrix["products"] == 9 * STEP - padding * STEP / 10
    assert found.matrix["padding"] == padding * STEP / 10
    assert found.matrix["products again"] == found.matrix["start-ups"] == 0


def test_each_instruction_starts_up_once() -> None:
    """Nine products of ten blocks of ten pixels, five cycles each."""
    arch = free(CUBE | {"granularity": "tile", "max_pixels": 10, "startup": "5 cycles"})
    found = accounts(convolution(32), arch)
    assert found.matrix["start-ups"] == 9 * 10 * 5


@pytest.mark.parametrize(("cores", "flash"), [(1, ""), (2, ""), (2, "load")])
def test_all_accounts_add_up(cores: int, flash: str) -> None:
    net = Net()
    x = net.op("Conv", net.input(1, 8, 20, 20), net.weight(16, 8, 3, 3), pads=[1] * 4)
    x = net.op("Conv", net.op("Relu", x), net.weight(8, 16, 3, 3), pads=[1] * 4)
    local = {"size": 8 << 10, "banks": 4, "bank_width": 16}
    arch = machine(cores=cores, local=local, flash=flash)
    checked = check(net.model(x), arch, "fp16")
    program, trace = checked.compiled.program, checked.trace
    found = waterfall(trace, program, arch)
    assert bool(found.flash) is bool(flash)
    for account in (found.matrix, found.dram, *[found.flash] * bool(flash)):
        assert sum(account.values()) == pytest.approx(trace.cycles)
        assert min(account.values()) >= -1e-6
    assert found.dram["again"] > 0  # the halo between the tiles
    if flash:
        constants = 2 * (16 * 8 * 9 + 8 * 16 * 9)  # bytes, at 4 B a cycle
        assert found.flash["compulsory"] == constants / 4
