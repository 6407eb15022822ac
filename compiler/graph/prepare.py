"""The graph half of the compiler, in order: from a loaded model to the operators of the machine."""

from __future__ import annotations

import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.decompose_composites import DecomposeComposites
from compiler.graph.expand_qlinear import ExpandQlinear
from compiler.graph.fold_affine import FoldAffine
from compiler.graph.fold_batch_norm import FoldBatchNorm
from compiler.graph.fold_constants import FoldConstants
from compiler.graph.fold_pad import FoldPad
from compiler.graph.fuse_activations import FuseActivations
from compiler.graph.hoist_quantize import HoistQuantize
from compiler.graph.integer_operators import IntegerOperators
from compiler.graph.normalize_axes import NormalizeAxes
from compiler.graph.normalize_conv import NormalizeConv
from compiler.graph.normalize_gemm import NormalizeGemm
from compiler.graph.sink_dequantize import SinkDequantize
from compiler.passes import Observer, run_passes

GRAPH_PASSES: list[GraphPass] = [
    ExpandQlinear(),  # first: one form of quantized models for everything below
    NormalizeConv(),  # padding must be explicit before any can be added to it
    FoldPad(),
    FoldBatchNorm(),
    FoldAffine(),  # after fold-batch-norm, which exposes Conv, Mul, Add chains
    SinkDequantize(),  # brings quantization next to the operators that integers can run
    HoistQuantize(),  # after sink-dequantize: what moves as it is need not be quantized again
    FoldConstants(keep=("DequantizeLinear",)),  # weights moved as integers are constants again
    IntegerOperators(),
    FoldPad(),  # again: a Pad that became integer fits a QConv by its zero point
    FoldConstants(),  # the weights that stayed float
    FuseActivations(),  # before decompositions blur the spellings
    DecomposeComposites(),
    NormalizeGemm(),  # after integer-operators, which takes a Gemm whole
    FoldConstants(),  # what the decompositions computed from constants
    NormalizeAxes(),  # last: the axes and shapes of whatever is left
]
"""Every graph pass, in order; extensions put theirs where they belong."""


def prepare(model: ir.Model, observe: Observer[ir.Model] | None = None) -> ir.Model:
    """Run `GRAPH_PASSES` on a loaded model, in place, and return it."""
    return run_passes(GRAPH_PASSES, model, observe).ir
