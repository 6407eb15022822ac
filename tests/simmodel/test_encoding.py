"""Control words: what a machine says of its fields decides their bits, and what fetching costs."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from handmade import at, machine, program

from simmodel.arch.record import Arch
from simmodel.arch_rules import problems
from simmodel.isa import Instruction, Item, Loop, ScalarNop, Unary
from simmodel.machine.run import simulate
from simmodel.metrics import measure
from simmodel.program.encoding import (
    EncodingError,
    Format,
    at_hand,
    control_words,
    program_bytes,
    typical_bytes,
)


def packing(**encoding: Any) -> Arch:
    return machine(encoding=encoding)


def nop(count: int) -> Instruction:
    return ScalarNop(count=count)


def test_fields_fill_words_from_the_lowest_bit_on() -> None:
    arch = packing(
        word=2, opcodes={"scalar.nop": 5, "loop": 1, "end": 2}, numbers={"engine": {"scalar": 3}},
        widths={"opcode": 4, "engine": 4, "count": 16, "*.count": 4, "variable": 4, "waits.0": 2},
        order={"scalar.nop": ["count"]},
    )  # fmt: skip
    stream = (Loop("i", 3, (nop(0x123),)), ScalarNop(count=1, waits=(("full", 2),)))
    ((loop, first, end, second),), names = control_words(program(stream), arch)
    # opcode 1, variable 0 (the first name), count 3; little-endian words of two bytes.
    assert loop[1] == bytes((0x01, 0x03, 0x00, 0x00))
    # opcode 5, then count, engine 3, and three empty lists.
    assert first[1] == bytes((0x35, 0x12, 0x30, 0x00, 0x00, 0x00))
    assert end[1] == bytes((0x02, 0x00))
    # one wait: name 1 in 2 bits, then how many in 16.
    word = int.from_bytes(second[1], "little")
    assert [word >> 24 & 15, word >> 28 & 3, word >> 30 & 0xFFFF] == [1, 1, 2]
    assert names == {"i": 0, "full": 1}
    assert program_bytes(program(stream), arch) == 4 + 6 + 2 + len(second[1])


def test_what_a_field_does_not_hold_is_listed() -> None:
    arch = packing(widths={"count": 4, "waits.*": 0}, numbers={"engine": {"vector": 0}})
    with pytest.raises(EncodingError) as caught:
        control_words(program((nop(7), nop(8), ScalarNop(count=9, waits=(("a", 1),)))), arch)
    assert str(caught.value).splitlines() == [
        "scalar.nop engine: scalar has no number; those of vector are stated",
        "scalar.nop count: 9 in 4 bits",
        "scalar.nop waits.count: 1 in 0 bits",
    ]


def test_fetching_takes_the_bytes_of_each_instruction() -> None:
    relu = Unary(engine="vector", function="relu", a=at("local", 0, (16,)),
                 dst=at("local", 64, (16,)))  # fmt: skip
    stream = program((nop(1), relu, nop(1)))
    arch = packing(word=1)
    small, large = (len(words) for _, words in control_words(stream, arch)[0][0][:2])
    assert large == typical_bytes(arch, "vector.unary.relu", 1) > small
    slow = arch.model_copy(
        update={"front_end": machine(front_end={"fetch_bandwidth": "2 B/cycle"}).front_end}
    )
    assert simulate(stream, slow).cycles == (small + large) // 2 + 1
    assert program_bytes(stream, slow) == 2 * small + large
    fixed = machine(front_end={"instruction_bytes": 24}, encoding={})
    assert program_bytes(stream, fixed) == 3 * 24
    assert measure(simulate(stream, slow), stream, slow).program_bytes == 2 * small + large


def said_of(**encoding: Any) -> dict[str, str]:
    """Messages about an encoding by the fields that they are about."""
    found = problems(packing(**encoding))
    return {".".join(map(str, each.path[1:])): each.message for each in found}


def test_formats_have_what_arrays_add_where_they_do() -> None:
    plain = packing()
    adds = plain.model_copy(
        update={"matrix": plain.matrix.model_copy(update={"writeback": ("add",)})}
    )
    bits = [
        [Format(arch, arch.encoding).width(path) for path in ("added.given", "middle.count")]
        for arch in (plain, adds)
        if arch.encoding is not None
    ]
    assert bits == [[0, 0], [1, 2]]


def test_an_encoding_of_unknown_instructions_is_refused() -> None:
    said = said_of(
        opcodes={"copi": 1, "copy": 2, "sync": 2, "fill": 300}, order={"matrix": ["dst"]}
    )
    assert said["opcodes.copi"] == "there is no instruction 'copi'; did you mean 'copy'?"
    assert said["opcodes.copy"] == "2 is the number of sync as well"
    assert said["opcodes.fill"] == "300 is more than the 8 bits of opcode hold"
    assert said["order.matrix"].startswith("there is no instruction 'matrix'")
    assert not said_of(opcodes={"copy": 300}, widths={"opcode": 9})


@pytest.mark.parametrize("word", [3, 48, 2048, 2**30])
def test_words_are_powers_of_two_that_can_be_printed(word: int) -> None:
    said = f"a word of {word} bytes, expected a power of two up to 1024"
    assert said_of(word=word) == {"word": said}
    assert not said_of(word=1) and not said_of(word=1024)


# Which words have to be fetched, against a buffer that is simulated word by word.

WORD = 16


def random_items(dice: random.Random, depth: int) -> tuple[Item, ...]:
    items: list[Item] = []
    for number in range(dice.randrange(1, 4)):
        if depth and dice.random() < 0.5:
            body = random_items(dice, depth - 1)
            items.append(Loop(f"v{depth}{number}", dice.randrange(1, 5), body))
        else:
            items.append(nop(1))
    return tuple(items)


class Buffer:
    """Holds the words that were fetched last."""

    def __init__(self, words: int) -> None:
        self._held: deque[int] = deque(maxlen=words)
        self.found: list[bool] = []

    def run(self, items: tuple[Item, ...], first: int) -> int:
        """Walk a stream whose first word lies at `first`; where the next one lies."""
        for item in items:
            self.fetch(first, loop=isinstance(item, Loop))
            first += 1
            if isinstance(item, Loop):
                for _ in range(item.count):
                    end = self.run(item.body, first)
                first = end
        return first

    def fetch(self, word: int, loop: bool) -> None:
        held = word in self._held
        if not held:
            self._held.append(word)
        if not loop:
            self.found.append(held)


@pytest.mark.parametrize("seed", range(200))
def test_what_is_at_hand_is_what_a_buffer_holds(seed: int) -> None:
    dice = random.Random(seed)
    items, words = random_items(dice, 3), dice.randrange(1, 12)
    arch = machine(front_end={"loop_buffer": words * WORD})
    made = program(items)
    buffer = Buffer(words)
    buffer.run(items, 0)
    sites = made.expanded[0]
    flags = at_hand(items, sites, arch)
    # Of sites that repeat only the first turn is told.
    turns = [sites.sites[index].times for index in sites.order]
    ends = [sum(turns[:n]) for n in range(len(turns))]
    assert flags.tolist() == [buffer.found[n] for n in ends]


def test_nothing_is_at_hand_without_a_buffer() -> None:
    items = (Loop("i", 3, (nop(1), nop(1))),)
    assert not at_hand(items, program(items).expanded[0], machine()).any()
