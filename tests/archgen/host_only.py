"""A compiler for tests: it leaves the whole model to the host, in one instruction.

Its programs pass the verifier, execute and simulate like any other, so everything around the
compiler is tested with real parts. Names of the models choose what goes wrong. And commands and
processes as a user starts them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import numpy as np
import onnx
from click.testing import CliRunner, Result
from networks import model
from onnx import helper, numpy_helper

from archgen.cli.main import cli, report_error
from archgen.toolchain import Compiled, Request, Toolchain
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.options import Stages
from simmodel.arch.dtype import NAMES
from simmodel.arch.element_types import size_of
from simmodel.execute import run
from simmodel.isa import HostCall
from simmodel.isa.region import Address, Operand, contiguous
from simmodel.machine.run import simulate
from simmodel.metrics import measure
from simmodel.program.program import Buffer, Origin, Port, Program
from simmodel.verify import verify

LOG = "HOST_ONLY_LOG"
"""Environment variable with the path of a file that gets a line for each compilation."""
_LEAKED: list[np.ndarray] = []


def small_model(path: Path, weights: float = 1.0, output: str = "y") -> Path:
    """A file with `output` = Relu(x W), x of shape (n, 8) with n free, W of shape (8, 16)."""
    values = weights * np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], [output]),
    ]
    shapes = {"x": ["n", 8]}, {output: ["n", 16]}
    onnx.save(model(nodes, *shapes, {"w": values}, name="small"), path)
    return path


def compile_host_only(request: Request) -> Compiled:
    """One host call for the whole model."""
    if log := os.environ.get(LOG):
        with Path(log).open("a", encoding="utf-8") as file:
            lent = "" if request.schedule_from is None else f" {request.schedule_from.name}"
            file.write(f"{request.arch.name} {request.name}{lent} {os.getpid()}\n")
    _mishap(request.name)
    address = 0
    ports: dict[str, Port] = {}
    for value in (*request.model.graph.input, *request.model.graph.output):
        port = _port(value, address)
        ports[value.name] = port
        address += port.operand.bytes
    inputs = tuple(ports[value.name] for value in request.model.graph.input)
    outputs = tuple(ports[value.name] for value in request.model.graph.output)
    call = HostCall(
        payload=0,
        inputs=tuple(port.operand for port in inputs),
        outputs=tuple(port.operand for port in outputs),
        operations=64,
    )
    count = request.arch.core_count
    program = Program(
        name=request.name,
        arch=request.arch.name,
        cores=((call,), *[()] * (count - 1)),
        tokens=tuple({} for _ in range(count)),
        barriers={},
        constants=(),
        buffers=tuple(
            Buffer(port.name, "dram", port.operand.address.base, port.operand.bytes)
            for port in ports.values()
        ),
        inputs=inputs,
        outputs=outputs,
        origins=(Origin("whole", 0, "Model"),),
        payloads=(_payload(request).SerializeToString(),),
        macs=8 * 16,
    )
    verify(program, request.arch)
    return Compiled(program, {"compiler": "host only"})


def _port(value: onnx.ValueInfoProto, address: int) -> Port:
    kind = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in kind.shape.dim)
    dtype = NAMES[helper.tensor_dtype_to_np_dtype(kind.elem_type)]
    strides = contiguous(shape, size_of(dtype))
    operand = Operand("dram", Address(address), shape, strides, dtype)
    return Port(value.name, operand, shape, dtype)


def _mishap(name: str) -> None:
    if name.startswith("huge"):
        raise DoesNotFit(2048, 1024, "B", (("weights", 2048),), ("a larger memory",), "l1")
    if name.startswith("odd"):
        raise UnsupportedModel("operator Odd")
    if name.startswith("crash"):
        raise RuntimeError("something broke")
    if name.startswith("kill"):
        os._exit(9)
    if name.startswith("hang"):
        time.sleep(600)
    if name.startswith("eat"):
        eaten = []
        while True:
            eaten.append(np.ones(1 << 23))
    if name.startswith("leak"):
        _LEAKED.append(np.ones(1 << 23))


def _payload(request: Request) -> onnx.ModelProto:
    """The model itself, or one with another weight where the name asks for a wrong result."""
    if not request.name.startswith("wrong"):
        return request.model
    copy = onnx.ModelProto()
    copy.CopyFrom(request.model)
    for tensor in copy.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size > 1:
            tensor.CopyFrom(numpy_helper.from_array(values * np.float32(1.5), tensor.name))
    return copy


def as_it_is(proto: onnx.ModelProto, name: str, stages: Stages) -> onnx.ModelProto:
    """Loading does nothing here."""
    return proto


HOST_ONLY = Toolchain(as_it_is, compile_host_only, run, simulate, measure)


def invoke(*arguments: object) -> Result:
    """What a command does."""
    return CliRunner().invoke(cli, list(map(str, arguments)))


def refused(*arguments: object) -> str:
    """What a command says of a mistake of its user, a line each."""
    error = invoke(*arguments).exception
    assert isinstance(error, Exception)
    with redirect_stderr(StringIO()) as printed:
        assert report_error(error) == 2
    return "".join(line.removeprefix("error: ") for line in printed.getvalue().splitlines(True))


def compiled(net: Path | str, file: Path, arch: str = "mcu-npu", *more: object) -> Path:
    """A file with the program of a network."""
    done = invoke("compile", arch, "-m", net, "--effort", 0, *more, "-o", file)
    assert done.exit_code == 0, done.output
    return file


def python(*arguments: object) -> subprocess.Popen[str]:
    """A process that can import what stands in this folder and beside it, for the compiler."""
    here = Path(__file__).parent
    paths = [str(here), str(here.parent / "compiler"), str(here.parents[1])]
    paths.append(os.environ.get("PYTHONPATH", ""))
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip


def prints(process: subprocess.Popen[str]) -> str:
    """The next line of a process."""
    assert process.stdout is not None
    return process.stdout.readline()


def go_on(*processes: subprocess.Popen[str]) -> None:
    """Processes that wait for a line have it."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
