"""Operators of ONNX Runtime's own domain, said in ONNX's."""

from __future__ import annotations

from compiler.graph.body import Body, Tensor
from compiler.graph.operators import rewrite_of

DOMAIN = "com.microsoft"


@rewrite_of(DOMAIN, "Gelu")
def gelu(b: Body, x: Tensor) -> Tensor:
    """x * Phi(x)."""
    return _gelu(b, x, None, "none")


@rewrite_of(DOMAIN, "BiasGelu")
def bias_gelu(b: Body, x: Tensor, bias: Tensor) -> Tensor:
    """Gelu of x + bias."""
    return _gelu(b, x, bias, "none")


@rewrite_of(DOMAIN, "FastGelu")
def fast_gelu(b: Body, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu of x + bias, approximated by tanh."""
    return _gelu(b, x, bias, "tanh")


def _gelu(b: Body, x: Tensor, bias: Tensor | None, approximate: str) -> Tensor:
    moved = x if bias is None else x + bias
    return b.one("Gelu", moved, approximate=approximate)


@rewrite_of(DOMAIN, "QuickGelu")
def quick_gelu(b: Body, x: Tensor, *, alpha: float = 1.702) -> Tensor:
    """x * sigmoid(alpha * x)."""
    return x * b.one("Sigmoid", x * alpha)


TABLE = (gelu, bias_gelu, fast_gelu, quick_gelu)
