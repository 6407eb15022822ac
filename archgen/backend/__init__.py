"""archgen as a backend of ONNX: `onnx.backend.base.Backend` on any architecture.

import archgen.backend as backend
outputs = backend.prepare(model).run([x])                 # on the machine of ONNX's node tests
edge = backend.on("ascend-310-like", dtype="fp16")        # on another one
tests = onnx.backend.test.BackendTest(edge, __name__).include("test_relu").test_cases

The one idea: ONNX tells shapes and parameters at the first `run`, a program knows them when it is
compiled; so a representation compiles when it runs, and keeps a program for each.

    base.py            the interface, as a class that `on` makes for a machine; a model that runs
    onnx-nodes.yaml    the machine where none is named: one that multiplies in fp32
"""

from archgen.backend.base import ArchBackend, Representation, on

__all__ = [
    "ArchBackend",
    "Representation",
    "is_compatible",
    "on",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

is_compatible = ArchBackend.is_compatible
prepare = ArchBackend.prepare
run_model = ArchBackend.run_model
run_node = ArchBackend.run_node
supports_device = ArchBackend.supports_device
