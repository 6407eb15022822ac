"""Loadables: what is written comes back the same, and what is no loadable is refused in words."""

from __future__ import annotations

import dataclasses
import random
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from handmade import at, constant, pipeline, program, random_programs, relay
from hypothesis import given, settings
from hypothesis import strategies as st
from loadable_mutants import Base, base_of, judged, mutant
from test_asm import items, rich, same

from simmodel import isa
from simmodel.asm import print_program
from simmodel.isa import Copy, Item, Loop
from simmodel.loadable import Loadable, LoadableError, from_bytes, to_bytes
from simmodel.loadable.container import Name, packed, unpacked
from simmodel.loadable.copies import Expanded, squeezed
from simmodel.program import Program
from simmodel.region import Address
from simmodel.relocation import PortBytes

PORTS = (PortBytes("x", "dram", 64, 96, True), PortBytes("y", "dram", 4096, 2, False))


def loadable(base: Program) -> bytes:
    states = (("cache", "cache out"),)
    return to_bytes(Loadable(base, '{"name": "test"}', states, "test 1", PORTS))


def sections(data: bytes) -> dict[Name, bytes]:
    return {name: bytes(content) for name, (_, content) in unpacked(data).items()}


@pytest.mark.parametrize("base", [pipeline(), pipeline("interlock"), relay(3), rich(), program()])
def test_programs_come_back(base: Program) -> None:
    again = from_bytes(loadable(base))
    assert same(again.program, base) and print_program(again.program) == print_program(base)
    assert again.machine == '{"name": "test"}' and again.maker == "test 1"
    assert again.states == (("cache", "cache out"),) and again.ports == PORTS


@given(random_programs(), st.lists(items, max_size=3).map(tuple))
@settings(max_examples=15)
def test_random_programs_come_back(base: Program, more: tuple[Item, ...]) -> None:
    base = replace(base, cores=(*base.cores, more), tokens=(*base.tokens, {"t": 3}))
    assert same(from_bytes(loadable(base)).program, base)


def moved(number: int) -> Copy:
    return Copy(engine="load", dst=at("local", 64 * number, (64,)),
                src=at("dram", 4096 - 128 * number, (64,)))  # fmt: skip


def test_what_goes_on_as_it_did_takes_no_room() -> None:
    few, many = (sections(loadable(program(tuple(map(moved, range(n)))))) for n in (4, 30))
    assert len(many["code", 0]) <= len(few["code", 0]) + 2
    nested = program((Loop("i", 3, (Loop("j", 2, (moved(1), moved(2))), moved(3))), moved(4)))
    assert same(from_bytes(loadable(nested)).program, nested)


BASES = [base_of(loadable(base)) for base in (pipeline(), relay(2), rich())]


@given(st.integers(0, 2**32), st.sampled_from(BASES))
def test_a_damaged_file_is_refused_or_read(seed: int, base: Base) -> None:
    assert judged(base, *mutant(base, random.Random(seed))) in ("refused", "same", "another")


def test_the_documentation_shows_these_bytes() -> None:
    def moved(number: int) -> Copy:
        source = at("dram", 4096 + 128 * number, (64,))
        return Copy(engine="load", dst=at("local", 64 * number, (64,)), src=source)

    page = (Path(__file__).parents[2] / "docs/loadable.md").read_text(encoding="utf-8")

    def shown(mark: str) -> bytes:
        example = page.split(f"<!-- {mark} -->\n```text\n")[1].split("```")[0]
        return bytes.fromhex("".join(line[:45] for line in example.splitlines()))

    code = sections(to_bytes(Loadable(program(tuple(map(moved, range(6)))), "{}")))["code", 0]
    assert shown("copies") == code
    assert shown("example") == Expanded(memoryview(code), 0, "code").data


def test_data_is_aligned_and_not_copied() -> None:
    base = program(constants=tuple(constant(f"c{n}", 64 * n, np.ones(n, "f4")) for n in (3, 5)))
    data = loadable(base)
    for each in from_bytes(data).program.constants:
        assert not each.data.flags.owndata and not each.data.flags.writeable


def refused(data: bytes, match: str) -> LoadableError:
    with pytest.raises(LoadableError, match=match) as caught:
        from_bytes(data)
    return caught.value


def test_damage_is_named_with_its_place() -> None:
    good = loadable(pipeline())
    refused(b"PK\x03\x04", "byte 0: no loadable: expected 89 4e 50 55 .* found 50 4b 03 04")
    refused(good[:20], "byte 20: expected a header of 32 bytes")
    refused(good[:-1], f"byte 24: expected {len(good)} bytes, the file has {len(good) - 1}")
    refused(good[:12] + b"\x03" + good[13:], "byte 12: format 2, for readers of format 3 on")
    refused(good[:8] + b"\x01" + good[9:], "byte 8: format 1; this reader knows 2 .. 2: compile")
    refused(good[:40] + b"x" + good[41:], "byte 32: the table of sections is damaged")
    offset, content = unpacked(good)["code", 0]
    broken = good[:offset] + b"\x05" + good[offset + 1 :]
    assert refused(broken, "section code is damaged: another checksum").offset == offset
    found = sections(good)
    refused(packed(found | {("machine", 0): b"{}"}), "machine: expected fingerprint [0-9a-f]{64}")
    del found["program", 0]
    refused(packed(found), "expected a section program, there is none")
    assert zlib.crc32(content) != zlib.crc32(broken[offset : offset + len(content)])


@pytest.mark.parametrize(
    ("code", "match"),
    [
        (b"", "code 0: expected a number of rows, found the end"),
        (b"\x01\x80", "expected a number, it is cut off"),
        (b"\x01" + b"\xff" * 10 + b"\x01", "expected a number of 64 bits"),
        (b"\x01\x07", "expected a row below 2, found 7"),
        (b"\x01\x00\x7f", "expected a record below"),
        (b"\x01\x01\x05", "expected a structure below 0, found 5"),
        (b"\x00\x01", "expected the end of the section, 1 numbers are left"),
    ],
)
def test_code_that_is_none_is_refused(code: bytes, match: str) -> None:
    found = sections(loadable(pipeline()))
    refused(packed(found | {("code", 0): squeezed(code)}), match)


@pytest.mark.parametrize(
    ("section", "match"),
    [
        (b"", "code 0: expected a size, it is cut off"),
        (b"\x02\x10\x01", "expected 2 bytes, found 1"),
        (b"\x01\x20\x01\x01", "expected 1 bytes, found more"),
        (b"\x03\x11\x01\x02\x00", r"expected a distance of 1 .. 1, found 2"),
        (b"\x01\x00", "expected bytes or a copy, found neither"),
        (b"\xff\x7f\x10\x00\x1f\x00", "6 bytes stand for more than 64 each"),
        (b"\x01\x10\x00\x00\x07", "expected padding, found 7"),
    ],
)
def test_copies_of_what_is_not_there_are_refused(section: bytes, match: str) -> None:
    found = sections(loadable(pipeline()))
    refused(packed(found | {("code", 0): section}), match)


@given(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=4), st.data())
def test_copies_stand_for_the_same_bytes(words: list[bytes], draw: st.DataObject) -> None:
    data = b"".join(draw.draw(st.lists(st.sampled_from(words), max_size=60)))
    section = squeezed(data)
    again = Expanded(memoryview(section), 100, "code")
    assert again.data == data and len(section) <= len(data) + len(data) // 15 + 3
    places = again.places(np.arange(len(data))) - 100
    assert ((places > 0) & (places < len(section))).all()


def test_a_long_run_is_a_few_bytes_and_its_padding() -> None:
    """A size of two bytes, one literal, a copy of the 15 + 9984 others, and what they warrant."""
    section = squeezed(bytes(10_000))
    assert section == b"\x90\x4e\x1f\x80\x4e\x00\x01" + bytes(157 - 7)


def test_a_few_bytes_do_not_stand_for_many_rows() -> None:
    found = sections(loadable(program(tuple(map(moved, range(30))))))
    rows = bytes(Expanded(memoryview(found["code", 0]), 0, "code").data)
    assert rows[0] == 30
    many = b"\xff\x7f" + rows[1:] + rows[-5:] * (16383 - 30)
    refused(packed(found | {("code", 0): squeezed(many)}), "stand for more than 256 words each")


def test_a_loop_is_known_by_where_it_is() -> None:
    """The same nest under other names is one row more, and not all its words again."""

    def nest(name: str) -> Loop:
        moved_by = replace(at("dram", 64, (64,)), address=Address(64, ((name, 64), ("o", 512))))
        copy = Copy(engine="load", dst=at("local", 0, (64,)), src=moved_by)
        return Loop(name, 4, (copy,))

    base = program((Loop("o", 2, (nest("a"), nest("b"), nest("c"))),))
    assert same(from_bytes(loadable(base)).program, base)
    found = sections(loadable(base))
    rows = bytes(Expanded(memoryview(found["code", 0]), 0, "code").data)
    # c: a loop whose name is the next one, a copy as before, its end; and that of the outer loop.
    assert rows.endswith(bytes((5, 2, 6, 4, 4)))
    further = rows.replace(b"\x02\x80\x08", b"\x04\x80\x08")
    refused(packed(found | {("code", 0): squeezed(further)}), "one of 2 loops, found number 2")


@dataclass(frozen=True, kw_only=True)
class _Own(isa.Sync):
    MNEMONIC: ClassVar[str] = "own.sync"
    before: int


@dataclass(frozen=True, kw_only=True)
class _Newer(isa.Sync):
    MNEMONIC: ClassVar[str] = "own.sync"
    before: int
    since: tuple[int, ...] = (4,)


def test_files_outlive_new_fields_and_not_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(isa.INSTRUCTIONS, "own.sync", _Own)
    old = loadable(program((_Own(engine="load", before=7),)))
    monkeypatch.setitem(isa.INSTRUCTIONS, "own.sync", _Newer)
    (read,) = from_bytes(old).program.cores[0]
    assert read == _Newer(engine="load", before=7)
    new = loadable(program((dataclasses.replace(read, since=(1, 2)),)))
    monkeypatch.setitem(isa.INSTRUCTIONS, "own.sync", _Own)
    refused(new, "instruction 'own.sync' has a field 'since' unknown here; there are engine, waits")
    monkeypatch.delitem(isa.INSTRUCTIONS, "own.sync")
    refused(new, "code 0: instruction 'own.sync' is unknown here")
