"""Instructions, one class per family member: engine, cycles, traffic, effect, text."""

from simmodel.arch.base import Registry
from simmodel.isa.base import Instruction, Item, Loop, OperandTraffic, View
from simmodel.isa.copy import Copy, Fill, Gather, Indirect, Scatter
from simmodel.isa.matrix import Conv, DepthwiseConv, Gemm, MatrixInstruction, Tile, WinogradConv
from simmodel.isa.scalar import (
    HOST,
    Arrive,
    Await,
    Claim,
    HostCall,
    ScalarBinary,
    ScalarFamily,
    ScalarNop,
    ScalarReduce,
    ScalarTernary,
    ScalarUnary,
    Sync,
)
from simmodel.isa.vector import (
    Binary,
    Product,
    Reduce,
    Splat,
    Ternary,
    Unary,
    VectorFamily,
    VectorInstruction,
    Window,
)

_FAMILIES: tuple[type[Instruction], ...] = (
    Copy, Gather, Scatter, Fill,
    Tile, Gemm, Conv, WinogradConv, DepthwiseConv,
    Splat, Unary, Binary, Ternary, Reduce, Window, Product,
    ScalarNop, ScalarUnary, ScalarBinary, ScalarTernary, ScalarReduce, HostCall,
    Sync, Arrive, Await, Claim,
)  # fmt: skip
INSTRUCTIONS: dict[str, type[Instruction]] = Registry(
    "instruction", {kind.MNEMONIC: kind for kind in _FAMILIES}
)
"""Every instruction class by its mnemonic, family by family; users add theirs."""

__all__ = [
    "HOST", "INSTRUCTIONS", "Arrive", "Await", "Binary", "Claim", "Conv", "Copy", "DepthwiseConv",
    "Fill", "Gather", "Gemm", "HostCall", "Indirect", "Instruction", "Item", "Loop",
    "MatrixInstruction", "OperandTraffic", "Product", "Reduce", "ScalarBinary", "ScalarFamily",
    "ScalarNop", "ScalarReduce", "ScalarTernary", "ScalarUnary", "Scatter", "Splat", "Sync",
    "Ternary", "Tile", "Unary", "VectorFamily", "VectorInstruction", "View", "Window",
    "WinogradConv",
]  # fmt: skip
