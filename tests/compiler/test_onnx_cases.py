"""ONNX's own tests of operators as nests: what they mean, without a machine.

`studies/benchmarks/onnx_nodes.py` runs the same cases through compiler, verifier and executor.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from networks import cleaned
from onnx_nodes import Case, by_runtime, cases, difference, floor, with_constants

from archgen.check.reference import run_node
from compiler.api import Undecided
from compiler.frontend.importer import load
from compiler.lowering.lower import TABLE, lower
from compiler.tensor_ir.interpreter import run
from simmodel.arch.element_types import MX_BLOCK

HOSTS = {"test_reduce_max_empty_set_bool"}
"""Native by a pass of the machine alone."""


def wrong(cases: list[Case]) -> Iterator[str]:
    """Cases of which nests compute something else than ONNX, or else ONNX Runtime, expects."""
    for case in cases:
        model = with_constants(case)
        try:
            graph = lower(cleaned(load(model, case.name)), "fp32")
        except Undecided:  # its first input decides a shape, so it is computed while compiling
            continue
        feeds = {port.name: case.inputs[port.name] for port in model.graph.input}
        values = run(graph, feeds, run_node)
        got = [values[port.name] for port in model.graph.output]
        off = difference(got, case.expected, case)
        there = by_runtime(case) if off else None
        if off and (there is None or difference(got, there, case)):
            yield f"{case.name}: {off}"


def test_nests_compute_what_onnx_expects() -> None:
    native = {name for name, words in floor().items() if words[-1] == "native"}
    known = [case for case in cases() if case.name in native - HOSTS]
    # Of quantized models, spellings, and what rounds to blocks.
    ours = {"QConv", "QConvTranspose", "QMatMul", "Silu", "Swish", *MX_BLOCK}
    assert set(TABLE) - ours <= {case.operator for case in known}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not list(wrong(known))
