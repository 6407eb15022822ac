"""Small networks of the zoo, compiled and executed, agree with ONNX Runtime.

The one idea: the smallest networks with what the others lack, run-time indices and recurrence,
go the whole way from a name to numbers.
"""

from __future__ import annotations

import numpy as np
import pytest

import archgen
from archgen.check.reference import run_reference, sample_inputs

SMALL = [
    "dlrm:rows=20,hidden=16,tables=3,width=8",
    "lstm_kws:frames=4,features=8,hidden=16,classes=4",
]


@pytest.mark.parametrize("name", SMALL)
def test_a_small_network_computes_what_onnx_runtime_computes(name: str) -> None:
    arch = archgen.load_arch("ascend-310-like")
    model = archgen.load_model(name)
    inputs = sample_inputs(model.proto)
    program = archgen.compile_model(model, arch, effort=0)
    made = archgen.execute(program, inputs, arch)
    for output, values in run_reference(model.proto, inputs).items():
        assert np.std(values) > 0.05 or values.size == 1
        np.testing.assert_allclose(made[output], values, atol=0.03, err_msg=output)
