"""Operators with windows over images and signals: convolutions, pools, resizing.

Each grows a net by any legal (sometimes absurd) choice of its attributes.
"""

from __future__ import annotations

from typing import Any

from fuzzing.net import Net


def kernels(net: Net, sides: tuple[int, ...], dilations: list[int]) -> list[int]:
    """Kernel extents, mostly no longer than the image is."""
    return [
        net.pick(*[k for k in (1, 2, 3, 3, 4, 5) if d * (k - 1) < side + 2])
        for side, d in zip(sides, dilations, strict=True)
    ]


def borders(net: Net, spans: list[int], same: bool) -> list[int]:
    """Border before and after each side: what keeps the size, none, or anything within a window."""
    if same:
        return [(s - 1) // 2 for s in spans] + [s // 2 for s in spans]
    if net.maybe(0.3):
        return [0] * (2 * len(spans))
    return [net.rng.randrange(s) for s in (*spans, *spans)]


def window(net: Net, sides: tuple[int, ...]) -> dict[str, Any]:
    """Kernel, stride, dilation and border of a window; some stay away, as exporters leave them."""
    ones = [1] * len(sides)
    dilations = [net.pick(1, 2, 3) for _ in sides] if net.maybe(0.2) else ones
    kernel = kernels(net, sides, dilations)
    strides = ones if net.maybe(0.55) else [net.pick(1, 2, 2, 3, 5) for _ in sides]
    made: dict[str, Any] = {"kernel_shape": kernel}
    if net.maybe(0.12):
        made["auto_pad"] = net.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        dilations = ones
        # Windows that leave a rest out: ONNX Runtime's operators disagree about where it lies.
        strides = [min(s, k) for s, k in zip(strides, kernel, strict=True)]
    else:
        spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
        made["pads"] = borders(net, spans, net.maybe(0.5))
    if strides != ones or net.maybe(0.3):
        made["strides"] = strides
    if dilations != ones or net.maybe(0.3):
        made["dilations"] = dilations
    return made


def conv(net: Net, x: str) -> str | None:
    """A convolution: plain, grouped or depthwise, with or without bias."""
    _, channels, *sides = net.shape(x)
    if not sides:
        return None
    made = window(net, tuple(sides))
    group = net.pick(1, 1, 1, max(1, channels), *(g for g in (2, 3, 4) if channels % g == 0))
    out = net.pick(1, 2, 3, 5, 8, 13, 16)
    if group > 1:
        out = channels * net.pick(1, 1, 1, 2) if group == channels else group * net.pick(1, 2, 3)
        made["group"] = group
    weights = net.weight(out, channels // group, *made["kernel_shape"], axis=0)
    more = [net.const(net.random.standard_normal(out), net.real)] if net.maybe(0.6) else []
    if net.maybe(0.2):
        del made["kernel_shape"]
    return net.op("Conv", x, weights, *more, **made)


def conv_transpose(net: Net, x: str) -> str | None:
    """A transposed convolution, sometimes with the output's shape given."""
    _, channels, *sides = net.shape(x)
    if not sides:
        return None
    made = window(net, tuple(sides))
    group = net.pick(1, 1, 1, channels) if net.maybe(0.4) else 1
    strides = made.get("strides", [1] * len(sides))
    if group > 1:
        made["group"] = group
    if net.maybe(0.25):
        made["output_padding"] = [net.rng.randrange(max(1, s)) for s in strides]
    elif net.maybe(0.15):
        made.pop("pads", None)
        made["output_shape"] = [side * s for side, s in zip(sides, strides, strict=True)]
    out = net.pick(1, 2, 4, 5)
    weights = net.weight(channels, out, *made["kernel_shape"])
    bias = [net.const(net.random.standard_normal(out * group), net.real)] if net.maybe(0.5) else []
    return net.op("ConvTranspose", x, weights, *bias, **made)


def pool(net: Net, x: str) -> str | None:
    """A pool, with every attribute that its kind has."""
    sides = net.shape(x)[2:]
    if not sides:
        return None
    made = window(net, sides)
    kind = net.pick("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool")
    if net.maybe(0.25):
        made["ceil_mode"] = 1
    if kind == "AveragePool":
        made["count_include_pad"] = net.pick(0, 1)
    if kind == "LpPool":
        made["p"] = net.pick(1, 2, 2)
    return net.op(kind, x, **made)


def global_pool(net: Net, x: str) -> str | None:
    """A pool over the whole image."""
    if len(net.shape(x)) < 3:
        return None
    return net.op(net.pick("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), x)


def resize(net: Net, x: str) -> str | None:
    """An image of another size, in any mode; by scales or sizes."""
    shape = net.shape(x)
    if len(shape) != 4:
        return None
    mode = net.pick("nearest", "nearest", "linear", "cubic")
    made: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": net.pick(
            "asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"
        ),
    }
    if mode == "nearest":
        made["nearest_mode"] = net.pick("floor", "round_prefer_floor", "ceil", "round_prefer_ceil")
    if net.maybe(0.5):
        scales = [1.0, 1.0, net.pick(1.0, 2.0, 3.0, 0.5, 1.5), net.pick(1.0, 2.0, 2.0, 0.5)]
        return net.op("Resize", x, "", net.const(scales, "f4"), **made)
    sizes = [
        *shape[:2],
        *(max(1, side * net.pick(1, 2, 3) // net.pick(1, 1, 2)) for side in shape[2:]),
    ]
    return net.op("Resize", x, "", "", net.ints(*sizes), **made)


def space(net: Net, x: str) -> str | None:
    """Pixels to channels or back."""
    shape = net.shape(x)
    if len(shape) != 4:
        return None
    if shape[1] % 4 == 0 and net.maybe(0.6):
        return net.op("DepthToSpace", x, blocksize=2, mode=net.pick("DCR", "CRD"))
    return net.op("SpaceToDepth", x, blocksize=2)


def local_norm(net: Net, x: str) -> str | None:
    """Normalization over neighbouring channels."""
    if len(net.shape(x)) != 4:
        return None
    return net.op("LRN", x, size=net.pick(1, 3, 5), alpha=0.01, beta=0.75, bias=1.0)
