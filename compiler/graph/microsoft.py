"""Operators of ONNX Runtime's own domain, said in ONNX's."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.graph.activations import activations_of
from compiler.graph.body import Body, Declined, Tensor
from compiler.graph.operators import rewrite_of
from compiler.graph.rewrite import AttrValue

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


@rewrite_of(DOMAIN, "FusedConv")
def fused_conv(
    b: Body,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    other: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    **window: AttrValue,
) -> Tensor:
    """A convolution, what is added to it, and an activation."""
    return _fused_conv(b, b.one("Conv", x, w, bias, **window), other, activation, activation_params)


@rewrite_of(DOMAIN, "NhwcConv")
def nhwc_conv(
    b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None, **window: AttrValue
) -> Tensor:
    """A convolution whose channels are the last axis of the image, not of the weights."""
    rank = len(x.shape)
    turned = b.one("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    made = b.one("Conv", turned, w, bias, **window)
    return b.one("Transpose", made, perm=[0, *range(2, rank), 1])


@rewrite_of(DOMAIN, "NhwcFusedConv")
def nhwc_fused_conv(
    b: Body,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    other: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    **window: AttrValue,
) -> Tensor:
    """The same, what is added to it, and an activation."""
    made = nhwc_conv.function(b, x, w, bias, **window)
    return _fused_conv(b, made, other, activation, activation_params)


def _fused_conv(
    b: Body, y: Tensor, other: Tensor | None, activation: str, activation_params: Sequence[float]
) -> Tensor:
    """`y` with what follows a convolution."""
    if other is not None:
        y = y + other
    if not activation:
        return y
    if activation == "Clip":
        return b.one("Clip", y, *activation_params)
    alphas, betas = activation_params[:1], activation_params[1:2]
    if activation not in ("HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"):
        raise Declined(f"a convolution with the activation {activation!r}")
    (function,) = activations_of(b, [activation], alphas, betas)
    return function(y)


TABLE = (
    gelu, bias_gelu, fast_gelu, quick_gelu, fused_conv, nhwc_conv, nhwc_fused_conv,
)  # fmt: skip
