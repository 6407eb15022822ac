"""Random networks on random machines: right, or refused with a sum that adds up.

`check` compares ONNX Runtime, the nests and the executed program, after the verifier's proof, and
simulates to the end.
"""

from __future__ import annotations

import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import machines
from networks import check, networks, refused

from compiler.errors import DoesNotFit, UnsupportedModel
from simmodel.arch import Arch

ANY = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@ANY
@given(machines(), st.data())
def test_any_network_on_any_machine(arch: Arch, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(arch.types))
    model: onnx.ModelProto = data.draw(networks(dtype == "int8"))
    try:
        check(model, arch, dtype)
    except (DoesNotFit, UnsupportedModel) as why:
        refused(why)
