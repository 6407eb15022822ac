"""The toolchain that archgen ships: its compiler, its executor and its event simulator."""

from __future__ import annotations

from compiler.driver import CompileOptions, compile_model

from archgen.toolchain import Compiled, Request, Toolchain
from simmodel.functional import execute
from simmodel.metrics import measure
from simmodel.simulate import simulate


def compile_request(request: Request) -> Compiled:
    """The verified program that answers `request`; raises CompilerError when it is refused."""
    options = CompileOptions(dtype=request.dtype, host=request.host)
    result = compile_model(request.proto, request.arch, options)
    return Compiled(result.program, result.report)


STANDARD = Toolchain(compile_request, execute, simulate, measure)
