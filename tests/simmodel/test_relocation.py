"""Ports at addresses of the caller's: what is theirs moves, all else stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from handmade import at, constant, program

from simmodel.isa import Copy, Loop
from simmodel.isa.region import Address, Operand, Ring
from simmodel.program.program import Port, Program
from simmodel.program.relocation import PlaceError, PortBytes, ports_of, relocate


def port(name: str, address: int, size: int) -> Port:
    return Port(name, at("dram", address, (size,)), (size,), "int8")


def moving(base: int, *terms: tuple[str, int], ring: Ring | None = None) -> Operand:
    return replace(at("dram", 0, (64,)), address=Address(base, terms, ring))


def copied(src: Operand, dst: Operand) -> Copy:
    return Copy(engine="load", src=src, dst=dst)


LOCAL = at("local", 0, (64,))


def net(*more: Copy) -> Program:
    """x at 0 .. 256 is read in four turns, y at 256 .. 384 written in a ring of two."""
    body = (
        copied(moving(192, ("t", -64)), LOCAL),
        copied(LOCAL, moving(256, ring=Ring(2, 64, 0, (("t", 1),)))),
    )
    base = program(
        (Loop("t", 4, body), *more), constants=(constant("w", 512, np.zeros(64, np.int8)),)
    )
    return replace(base, inputs=(port("x", 0, 256),), outputs=(port("y", 256, 128),))


def test_what_is_of_a_port_moves_with_it_and_nothing_else() -> None:
    base = net(copied(at("dram", 512, (64,)), LOCAL))
    assert ports_of(base) == (
        PortBytes("x", "dram", 0, 256, True), PortBytes("y", "dram", 256, 128, True),
    )  # fmt: skip
    moved = relocate(base, {"x": 4096})
    (loop, weights) = moved.cores[0]
    assert isinstance(loop, Loop) and weights == base.cores[0][1]
    read, written = loop.body
    assert isinstance(read, Copy) and read.src == moving(4096 + 192, ("t", -64))
    assert written == base.cores[0][0].body[1]  # type: ignore[union-attr]
    assert [each.operand.address.base for each in (*moved.inputs, *moved.outputs)] == [4096, 256]
    assert relocate(moved, {"x": 0}).cores == base.cores


def test_ports_may_change_places() -> None:
    swapped = relocate(net(), {"x": 128, "y": 0})
    assert [(each.base, each.size) for each in ports_of(swapped)] == [(128, 256), (0, 128)]
    assert relocate(swapped, {"x": 0, "y": 256}).cores == net().cores


def test_ports_in_one_place_move_together() -> None:
    base = replace(net(), inputs=(port("x", 0, 256), port("before", 256, 128)))
    assert ports_of(relocate(base, {"y": 1024}))[1].base == 1024
    with pytest.raises(PlaceError, match="y: before and y lie in one place, which is asked to"):
        relocate(base, {"before": 1024, "y": 2048})


def test_a_port_that_a_command_reaches_across_stays() -> None:
    base = net(copied(at("dram", 224, (64,)), LOCAL))
    assert [each.movable for each in ports_of(base)] == [False, False]
    with pytest.raises(PlaceError, match="x stays where it is: a command reaches from its bytes"):
        relocate(base, {"x": 4096})


def test_every_reason_is_listed() -> None:
    with pytest.raises(PlaceError) as caught:
        relocate(net(), {"z": 0, "x": -1})
    assert str(caught.value).splitlines() == [
        "there is no port 'z'; there are x, y",
        "x: expected an address from 0 on, found -1",
    ]
    with pytest.raises(PlaceError) as caught:
        relocate(net(copied(at("dram", 1024, (64,)), LOCAL)), {"x": 448, "y": 1000})
    assert str(caught.value).splitlines() == [
        "x: bytes 0x1c0 .. 0x2c0 are those of constant w, 0x200 .. 0x240; "
        "all from 0x480 on are free",
        "y: bytes 0x3e8 .. 0x468 are those of what lies between layers, 0x400 .. 0x440; "
        "all from 0x480 on are free",
    ]
