"""Mutated programs: what the compiler made for small networks, with one thing changed at random.

A mutant is refused by the verifier in words, or it runs: without an error, and to the same bytes
whatever memory held before. `verdict` says which. A longer run than the suite's:

    python tests/compiler/mutants.py --seconds 600 --seed 7
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from machines import NAMED
from networks import Net, feeds_of

import simmodel.execute
from archgen.check.reference import run_node
from compiler.api import CompileOptions, compile_model, prepared
from compiler.options import Stages
from compiler.target.place_on_host import PlaceOnHost
from simmodel.arch.element_types import SIZES
from simmodel.arch.record import Arch
from simmodel.errors import HostFailed
from simmodel.execute import allocate, execute
from simmodel.isa import Instruction, Item, Loop
from simmodel.isa.region import Address, Operand, Ring
from simmodel.machine.run import simulate
from simmodel.program.assembly import ParseError, constant_data, parse_program, print_program
from simmodel.program.program import Program
from simmodel.verify import findings

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Subject:
    """A program that is right, and what it is run on."""

    name: str
    program: Program
    arch: Arch
    feeds: dict[str, Array]


def subjects() -> list[Subject]:
    """Every small network on the machines that take it."""
    found = []
    for kind, build in NETWORKS.items():
        for machine, dtype in ON[kind]:
            net = Net(quantized=dtype == "int8")
            model = net.model(build(net))
            options = CompileOptions(dtype, stages=Stages(host=PlaceOnHost(kept="Sinh")))
            made = compile_model(prepared(model, kind), NAMED[machine], options)
            name = f"{kind} on {machine}, {dtype}"
            found.append(Subject(name, made.program, NAMED[machine], feeds_of(model)))
    return found


def _image(net: Net) -> str:
    x = net.input(1, 5, 7, 6)
    y = net.op("Conv", x, net.weight(8, 5, 3, 3), pads=[1, 1, 1, 1])
    y = net.op("Relu", y)
    z = net.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    return net.op("Conv", z, net.weight(8, 1, 2, 2), group=8)


def _joined(net: Net) -> str:
    x = net.input(1, 4, 6, 5)
    y = net.op("Conv", x, net.weight(4, 4, 1, 1))
    z = net.op("Concat", net.op("Add", x, y), y, axis=1)
    return net.op("GlobalAveragePool", z)


def _tokens(net: Net) -> str:
    x = net.input(1, 9, 8)
    y = net.op("MatMul", x, net.weight(8, 12))
    y = net.op("Softmax", y, axis=-1)
    return net.op("MatMul", y, net.weight(12, 5))


def _moved(net: Net) -> str:
    x = net.input(1, 6, 5)
    y = net.op("Transpose", x, perm=[0, 2, 1])
    return net.op("LeakyRelu", net.op("Mul", y, y), alpha=0.1)


def _hosted(net: Net) -> str:
    x = net.op("Relu", net.input(1, 4, 6))
    return net.op("Relu", net.op("Sinh", x))


NETWORKS: dict[str, Callable[[Net], str]] = {
    "image": _image, "joined": _joined, "tokens": _tokens, "moved": _moved, "hosted": _hosted,
}  # fmt: skip
ON = {
    "image": [
        ("finishing", "int8"), ("bare", "fp32"), ("fine", "int8"), ("small", "int8"),
        ("gemms", "fp16"), ("clustered", "fp32"),
    ],
    "joined": [("interlocked", "int8"), ("joined", "fp32")],
    "tokens": [("plain", "fp32"), ("unread", "int8")],
    "moved": [("wide", "fp16")],
    "hosted": [("plain", "fp32")],
}  # fmt: skip


def mutant(program: Program, rng: random.Random) -> Program:
    """`program` with one instruction, loop, port or constant changed."""
    if rng.random() < 0.08:
        return _record(program, rng)
    core = rng.choice([c for c, stream in enumerate(program.cores) if stream])
    stream = list(program.cores)
    stream[core] = _changed(program.cores[core], rng)
    return replace(program, cores=tuple(stream))


def _record(program: Program, rng: random.Random) -> Program:
    """Another port or constant."""
    kind = rng.choice(("inputs", "outputs", "constants"))
    records = list(getattr(program, kind))
    if not records:
        return program
    at = rng.randrange(len(records))
    if kind == "constants":
        records[at] = replace(records[at], address=_number(records[at].address, rng))
    else:
        records[at] = replace(records[at], operand=_operand(records[at].operand, rng))
    return replace(program, **{kind: tuple(records)})


def _changed(items: tuple[Item, ...], rng: random.Random) -> tuple[Item, ...]:
    """One item changed, dropped, doubled or swapped with its neighbour."""
    at = rng.randrange(len(items))
    item, how = items[at], rng.random()
    before, after = items[:at], items[at + 1 :]
    if how < 0.02:
        return (*before, *after)
    if how < 0.04:
        return (*before, item, item, *after)
    if how < 0.06 and after:
        return (*before, after[0], item, *after[1:])
    if isinstance(item, Loop):
        if not item.body or rng.random() < 0.1:
            return (*before, replace(item, count=_number(item.count, rng)), *after)
        return (*before, replace(item, body=_changed(item.body, rng)), *after)
    return (*before, _instruction(item, rng), *after)


def _instruction(item: Instruction, rng: random.Random) -> Instruction:
    """`item` with one field changed."""
    synchronization = ("waits", "signals", "notifies", "origin")
    names = [f.name for f in fields(item) if f.name not in synchronization]
    operands = [name for name in names if isinstance(getattr(item, name), Operand)]
    name = rng.choice(operands if operands and rng.random() < 0.7 else names)
    value = getattr(item, name)
    if isinstance(value, Operand) and len(operands) > 1 and rng.random() < 0.1:
        return replace(item, **{name: getattr(item, rng.choice(operands))})
    return replace(item, **{name: _value(value, rng)})


def _value(value: Any, rng: random.Random) -> Any:
    match value:
        case Operand():
            return _operand(value, rng)
        case tuple() if value:
            at = rng.randrange(len(value))
            if rng.random() < 0.1:
                return value[:at] + value[at + 1 :]
            return (*value[:at], _value(value[at], rng), *value[at + 1 :])
        case tuple():
            return (rng.randrange(4),)
        case int():
            return _number(value, rng)
        case float():
            return rng.choice((0.0, -value, value * 2, 1e30, float("nan"), float("inf"), 3.7))
        case str():
            words = ("load", "store", "vector", "matrix", "sum", "max", "add", "exp", "select", "x")
            return rng.choice(words)
    return None


def _number(value: int, rng: random.Random) -> int:
    choices = (value + 1, value - 1, value * 2, -value, 0, value + 16, value // 2, 1 << 62, 1 << 70)
    weights = (9, 9, 5, 2, 3, 4, 4, 1, 1)
    return rng.choices(choices, weights)[0]


def _operand(operand: Operand, rng: random.Random) -> Operand:
    """`operand` with another place, shape, step or type."""
    kind = rng.choice(("shape", "shape", "strides", "strides", "rank", "dtype", "address", "more"))
    if kind in ("shape", "strides") and operand.shape:
        numbers = list(getattr(operand, kind))
        at = rng.randrange(len(numbers))
        if rng.random() < 0.3:
            rng.shuffle(numbers)
        else:
            numbers[at] = _number(numbers[at], rng)
        return replace(operand, **{kind: tuple(numbers)})
    if kind == "rank":
        if rng.random() < 0.5:
            more = rng.choice((1, 2))
            return replace(operand, shape=(more, *operand.shape), strides=(0, *operand.strides))
        return replace(operand, shape=operand.shape[1:], strides=operand.strides[1:])
    if kind == "dtype":
        return replace(operand, dtype=rng.choice(list(SIZES)))
    if kind == "more":
        changed = rng.choice(("scale", "zero", "memory", "cores"))
        others = {
            "scale": (None, 0.0, -1.0, 0.5, 1e-30, float("nan")),
            "zero": (0, 3, -200, 1 << 40), "memory": ("dram", "local", "shared", "accumulators"),
            "cores": ((), (0,), (0, 1), (9,)),
        }  # fmt: skip
        return replace(operand, **{changed: rng.choice(others[changed])})
    return replace(operand, address=_address(operand.address, rng))


def _address(address: Address, rng: random.Random) -> Address:
    how = rng.randrange(3)
    if how == 0 and address.terms:
        at = rng.randrange(len(address.terms))
        name, factor = address.terms[at]
        changed = (name, _number(factor, rng))
        return replace(address, terms=(*address.terms[:at], changed, *address.terms[at + 1 :]))
    if how == 1 and address.ring is not None:
        name = rng.choice(("slots", "pitch", "offset"))
        ring: Ring = replace(address.ring, **{name: _number(getattr(address.ring, name), rng)})
        return replace(address, ring=ring)
    return replace(address, base=_number(address.base, rng))


def verdict(subject: Subject, program: Program, patch: pytest.MonkeyPatch) -> str:
    """`refused`, `harmless`, `other` outputs or `host`; AssertionError where what memory held
    before shows. Any error of numpy is the caller's to see."""
    if findings(program, subject.arch):
        return "refused"
    simulate(program, subject.arch)
    right = _run(subject, subject.program, 0, patch)
    try:
        runs = [_run(subject, program, garbage, patch) for garbage in (0x5A, 0xFF)]
    except HostFailed:
        return "host"
    assert runs[0] == runs[1], "what memory held before shows in the outputs"
    return "harmless" if runs[0] == right else "other"


def _run(
    subject: Subject, program: Program, garbage: int, patch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """Outputs of `program`, on memories that are full of `garbage`."""

    def dirty(*given: Any) -> dict[Any, Array]:
        return {spot: np.full_like(m, garbage) for spot, m in allocate(*given).items()}

    with patch.context() as patched:
        patched.setattr(simmodel.execute, "allocate", dirty)
        found = execute(program, subject.feeds, subject.arch, host=run_node)
    return {name: values.tobytes() for name, values in found.items()}


def mutants(found: list[Subject], seed: int) -> Iterator[tuple[Subject, Program, int]]:
    """Without end: a subject, its mutant, and the seed that makes this one."""
    while True:
        rng = random.Random(seed)
        subject = rng.choice(found)
        yield subject, mutant(subject.program, rng), seed
        seed += 1


def texts(found: list[Subject], rng: random.Random) -> tuple[Subject, str]:
    """A subject and its assembly with a few characters, words or lines changed."""
    subject = rng.choice(found)
    text = print_program(subject.program)
    for _ in range(rng.choice((1, 1, 2, 4))):
        text = _edited(text, rng)
    return subject, text


def _edited(text: str, rng: random.Random) -> str:
    at, how = rng.randrange(len(text)), rng.randrange(5)
    if how == 0:
        return (
            text[:at]
            + rng.choice('0129-+*/@=!,:;()[]{} "\nabixnot.%\\\u0663\u20ac')
            + text[at + 1 :]
        )
    if how == 1:
        return text[:at] + text[at + rng.randrange(1, 12) :]
    spans = [m.span() for m in re.finditer(r"[0-9]+|[A-Za-z_.]+", text)]
    (a, b), (c, d) = rng.choice(spans), rng.choice(spans)
    if how == 2:
        return text[:a] + text[c:d] + text[b:]
    if how == 3:
        numbers = ("0", "-1", "7", "1e9", "1e999", "99999999999999999999999", "0x", "inf", "nan")
        return text[:a] + rng.choice(numbers) + text[b:]
    lines = text.split("\n")
    row = rng.randrange(len(lines))
    lines[row] = " " * rng.randrange(1, 9) + lines[rng.randrange(len(lines))].lstrip()
    return "\n".join(lines)


def text_verdict(subject: Subject, text: str) -> str:
    """`unreadable`, `refused` by the verifier, or `sound`; any error but ParseError escapes."""
    try:
        program = parse_program(text, constant_data(subject.program))
    except ParseError as refusal:
        assert 1 <= refusal.line <= text.count("\n") + 1 and str(refusal)
        return "unreadable"
    return "refused" if findings(program, subject.arch) else "sound"


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutate programs until the time is up.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    end, patch = time.monotonic() + options.seconds, pytest.MonkeyPatch()
    for subject, program, seed in mutants(subjects(), options.seed):
        try:
            counts[verdict(subject, program, patch)] += 1
        except Exception as escape:
            counts["ESCAPED"] += 1
            print(f"seed {seed}, {subject.name}: {type(escape).__name__}: {escape}", flush=True)
        if time.monotonic() > end:
            break
    print(dict(counts))


if __name__ == "__main__":
    main()
