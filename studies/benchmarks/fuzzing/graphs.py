"""Random graphs: any operators on any values, as models that ONNX Runtime runs.

The one idea: growing is trying. A random operator is tried on one of the last values; what cannot
be (see `net`) is tried again with another. Several outputs, branches, inputs and constants that
nobody reads, and coded (QDQ) graphs are as likely as they are troublesome.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import onnx

from fuzzing import blocks, integers, moves, natives, pointwise, products, reductions, windows
from fuzzing.net import Net

Grower = Callable[[Net, str], str | None]
ANY: tuple[Grower, ...] = (
    *[pointwise.unary] * 4, *[pointwise.binary] * 4, pointwise.clip, pointwise.choice,
    pointwise.masked, pointwise.cast, pointwise.isnan, pointwise.affine,
    *[moves.pad] * 2, *[moves.cut] * 2, moves.split, *[moves.concat] * 2, *[moves.transpose] * 2,
    *[moves.reshape] * 2, moves.view, moves.gather, moves.stretch, moves.scan, moves.lookup,
    *[reductions.reduction] * 3, reductions.best, *[reductions.softmax] * 2, *[reductions.norm] * 2,
    products.matmul, products.matmul_left, products.own_product, products.gemm,
    integers.coded, integers.counted, integers.qlinear, blocks.centred,
)  # fmt: skip
IMAGE: tuple[Grower, ...] = (
    *[windows.conv] * 8, windows.conv_transpose, *[windows.pool] * 4, windows.global_pool,
    windows.resize, windows.space, windows.local_norm, integers.conv_integer,
    *[blocks.basic] * 2, blocks.inception, blocks.dense, blocks.squeeze, *[blocks.inverted] * 2,
    blocks.late, blocks.head, blocks.unrolled,
)  # fmt: skip
SIGNAL: tuple[Grower, ...] = (windows.conv, windows.conv, windows.pool, windows.conv_transpose)
TOKENS: tuple[Grower, ...] = (
    *[products.matmul] * 4, *[products.attention] * 2, *[products.perceptron] * 3,
    products.own_product, products.recurrent, products.einsum, blocks.mixed, integers.dynamic,
    reductions.norm,
)  # fmt: skip
SHARED: dict[int, tuple[Grower, ...]] = {
    4: (windows.conv, windows.conv, blocks.basic, blocks.inception, blocks.squeeze, windows.pool),
    3: (products.matmul, products.matmul, products.perceptron, products.attention),
}
"""By rank, what reads weights or rows of which several cores need the same."""
NATIVE: tuple[Grower, ...] = (
    natives.attention_operator, natives.several_heads, natives.rotated, natives.late_norm,
    natives.late_activation, *[natives.best_few] * 2, *[natives.gathers] * 3, natives.scatters,
    *[natives.truths] * 2, *[natives.whole] * 3, *[natives.rearranged] * 2,
    natives.einsums, natives.lone, natives.nothing,
)  # fmt: skip
PRIMES = (1, 2, 3, 5, 7, 11, 13, 17, 19)
TRIES = 12
"""Operators tried for each that is added."""


def graph(
    rng: random.Random, *, quick: bool = False, coded: bool = False, many: bool = False,
    blocks: bool = False,
) -> onnx.ModelProto:  # fmt: skip
    """A model of one to eight random operators or blocks (four if `quick`); with `many` there is
    something for many cores to do: a larger input, and products of it first; with `blocks` these
    are over channels in whole blocks."""
    half = not coded and rng.random() < 0.04
    net = Net(rng, coded=coded, half=half, most=2500 if quick and not many else 8000)
    kept = [in_blocks(net) if blocks else wide(net) if many else start(net, quick)]
    for _ in range(2 if many or blocks else 0):
        grower = net.rng.choice(SHARED.get(len(net.shape(kept[-1])), ANY))
        kept.append(grower(net, kept[-1]) or kept[-1])
    if net.maybe(0.2):
        kept.append(net.input(*net.shape(kept[0])))
    for _ in range(rng.randint(1, 4 if quick else 8)):
        made = grown(net, net.pick(*kept[-3:]))
        if made is not None:
            kept.append(made)
    if net.maybe(0.06):
        net.const(net.random.standard_normal(net.pick(3, 2000)), net.real)
    if net.maybe(0.04):
        net.input(net.shape(kept[0])[0], 3)
    return net.model(outputs(net, kept))


def odd(rng: random.Random) -> onnx.ModelProto:
    """A model of two to six operators of any kind on values of any rank: extents are primes, axes
    lie in any order, and values without axes or without elements are as good as others."""
    net = Net(rng, most=5000, least=0, opset=23)
    rank = net.pick(1, 2, 2, 3, 3, 3, 4, 4, 4, 5)
    x = net.input(*(net.pick(*PRIMES[: 9 if rank < 3 else 6]) for _ in range(rank)))
    kept = [(moves.transpose(net, x) if net.maybe(0.25) else None) or x]
    size = net.rng.randint(2, 6)
    for _ in range(3 * size):
        if len(net.nodes) >= size:
            break
        x = str(net.pick(*kept[-2:]))
        rank = len(net.shape(x))
        kinds = net.pick(NATIVE, NATIVE, ANY, {4: IMAGE, 3: TOKENS + SIGNAL}.get(rank, ANY))
        made = net.rng.choice(kinds)(net, x) if rank else pointwise.unary(net, x)
        if made is not None and net.is_real(made):
            kept.append(made)
    return net.model(outputs(net, kept))


def wide(net: Net) -> str:
    """An input of which each of many cores gets a part: an image or tokens."""
    batch = net.pick(1, 1, 1, 2, 4)
    if net.maybe(0.65):
        return net.input(batch, net.pick(3, 8, 16, 24), net.pick(9, 16, 23, 32), net.pick(4, 7, 9))
    return net.input(batch, net.pick(8, 16, 33, 64), net.pick(8, 16, 24, 48))


def in_blocks(net: Net) -> str:
    """An input whose channels are whole blocks with a scale: an image or tokens."""
    deep = net.pick(32, 32, 64)
    if net.maybe(0.5):
        return net.input(1, deep, net.pick(5, 8), net.pick(4, 7))
    return net.input(1, net.pick(5, 8, 12), deep)


def start(net: Net, quick: bool) -> str:
    """The first input: an image, a signal, tokens, rows, or (seldom) less."""
    batch = net.pick(1, 1, 1, 1, 2, 3)
    sides = (1, 4, 5, 7, 8, 11) if quick else (1, 5, 7, 8, 11, 16, 23)
    kind = net.rng.random()
    if kind < 0.55:
        return net.input(batch, net.pick(1, 3, 4, 8, 13), net.pick(*sides), net.pick(*sides))
    if kind < 0.65:
        return net.input(batch, net.pick(1, 3, 8), net.pick(4, 9, 17))
    if kind < 0.9:
        return net.input(batch, net.pick(1, 2, 5, 8, 13), net.pick(1, 4, 6, 8, 12, 24))
    if kind < 0.97:
        return net.input(batch, net.pick(1, 5, 16, 33))
    return net.input(net.pick(1, 7, 16))


def grown(net: Net, x: str) -> str | None:
    """`x` with one more operator, of whichever kind works; None if none does."""
    for _ in range(TRIES):
        rank = len(net.shape(x))
        kinds = ANY if net.maybe(0.4) else {4: IMAGE, 3: TOKENS + SIGNAL}.get(rank, ANY)
        made = net.rng.choice(kinds)(net, x) if rank else pointwise.unary(net, x)
        if made is not None and net.is_real(made):
            return made
    return None


def outputs(net: Net, kept: list[str]) -> list[str]:
    """What the model gives away: the last value, and sometimes others on the way."""
    last = kept[-1]
    if last in net.inputs or last in {tensor.name for tensor in net.constants}:
        last = net.op("Neg", last) or last
    found = [last]
    computed = [name for name in net.values if name[0] == "t" and name != last]
    if computed and net.maybe(0.3):
        found += net.rng.sample(computed, min(len(computed), net.pick(1, 1, 2)))
    loose = unread(net) - set(found)
    return found + sorted(loose) if net.maybe(0.25) else found


def unread(net: Net) -> set[str]:
    """Results that no operator reads."""
    read = {name for node in net.nodes for name in node.input}
    return {name for node in net.nodes for name in node.output if name and name not in read}
