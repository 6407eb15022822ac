"""Flash: constants lie in it and are loaded from there, everything else lies in DRAM."""

from __future__ import annotations

import onnx
import pytest
from machines import changed, machine
from networks import Checked, Net, check, refused

from compiler.api import CompileOptions, bound_of
from compiler.cost.transfer import Path
from compiler.errors import DoesNotFit
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth
from simmodel.isa import Copy
from simmodel.isa.base import instructions
from simmodel.machine.run import simulate
from simmodel.program.assembly import constant_data, parse_program, print_program
from simmodel.program.relocation import ports_of

OWN = machine(flash="fetch", weights=8192)
SLOW = Bandwidth.parse("0.25 B/cycle")
JOINT = machine(flash="load", sync="interlock")


def network() -> onnx.ModelProto:
    net = Net(quantized=True, seed=1)
    x = net.input(1, 8, 9, 9)
    hidden = net.op("Conv", x, net.weight(16, 8, 3, 3), net.vector(16))
    return net.model(net.op("Conv", hidden, net.weight(8, 16, 1, 1)))


def compiled(arch: Arch) -> Checked:
    return check(network(), arch, "int8", CompileOptions())


@pytest.mark.parametrize("arch", [OWN, JOINT], ids=["own", "joint"])
def test_constants_lie_in_flash_alone(arch: Arch) -> None:
    found = compiled(arch)
    program, traffic = found.compiled.program, found.trace.traffic
    assert program.constants and all(c.memory == "flash" for c in program.constants)
    held = {c.name for c in program.constants}
    assert {b.name for b in program.buffers if b.memory == "flash"} == held
    copies = [i for i, _ in instructions(program.cores[0]) if isinstance(i, Copy)]
    engines = {i.engine for i in copies if i.src.memory == "flash"}
    assert engines == {"fetch" if arch is OWN else "load"}
    # What outputs take of constants comes from flash, the rest from DRAM.
    assert program.demand is not None and traffic["flash.write"] == 0
    ports = sum(port.operand.distinct for port in program.inputs)
    assert 0 < program.demand.constants <= traffic["flash.read"]
    assert program.demand.read - program.demand.constants == ports <= traffic["dram.read"]
    text = print_program(program)
    assert print_program(parse_program(text, constant_data(program))) == text


def test_flash_is_paid_as_flash() -> None:
    # 100 B in bursts of 32 are 128 B at 4 B/cycle, behind 50 cycles of latency.
    assert float(Path(OWN, 1, "flash", "local").run(100).cycles) == 50 + 128 / 4
    # The bound and the run follow the memory that constants come from, not the other one.
    slow = changed(machine(flash="fetch", weights=8192), "memories.flash", bandwidth=SLOW)
    found = compiled(slow)
    bound = bound_of(found.compiled, slow)
    assert found.compiled.program.demand is not None
    assert bound.resource == "flash"
    assert bound.flash == found.compiled.program.demand.constants / 0.25
    assert bound.cycles <= found.trace.cycles
    assert simulate(found.compiled.program, OWN).cycles < found.trace.cycles / 4


def test_rows_of_a_constant_table_come_from_flash() -> None:
    net = Net()
    rows = net.op("Gather", net.weight(200, 64), net.const([3, 150, 7, 3], "i8"), axis=0)
    model = net.model(net.op("Add", rows, net.input(4, 64)))
    found = check(model, machine(flash="load"), "fp32")
    assert not found.compiled.host


@pytest.mark.parametrize(
    "arch",
    [
        machine(cores=3, flash="load", among="load"),
        machine(cores=2, flash="fetch", shared={"size": 1 << 16}),
    ],
    ids=["broadcast", "shared"],
)
def test_several_cores_load_from_flash(arch: Arch) -> None:
    found = compiled(arch)
    size = sum(constant.data.nbytes for constant in found.compiled.program.constants)
    assert size <= found.trace.traffic["flash.read"] <= 2 * size


def test_an_output_may_be_a_constant() -> None:
    net = Net()
    constant = net.weight(2, 3)
    sums = net.op("Add", net.input(2, 3), constant)
    found = check(net.model(net.op("Identity", constant), sums), OWN, "fp32")
    memories = [(port.memory, port.movable) for port in ports_of(found.compiled.program)]
    assert memories == [("dram", True), ("flash", False), ("dram", True)]


@pytest.mark.parametrize("role", ["flash", "dram"])
def test_what_does_not_fit_names_its_memory(role: str) -> None:
    with pytest.raises(DoesNotFit) as raised:
        compiled(changed(machine(flash="fetch", weights=8192), f"memories.{role}", size=500))
    said = refused(raised.value)
    named, terms = ("flash", "constants") if role == "flash" else ("DRAM", "feature maps")
    assert f"net: {named}" in said and terms in said and f"memories.{role}.size" in said
    assert role == "dram" or "feature maps" not in said  # what is between constants is no map
