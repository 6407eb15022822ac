"""Stub."""

import onnx_ir as ir


def prepare(model: ir.Model) -> ir.Model:
    return model
