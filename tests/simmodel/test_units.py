"""Quantities: what is accepted, what is refused, and that text and value round-trip."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

import simmodel.arch.units as units

AMOUNTS = st.floats(min_value=1e-3, max_value=1e15)
PREFIXES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20}


@given(AMOUNTS, st.booleans())
def test_bandwidth_reads_what_it_prints(amount: float, per_cycle: bool) -> None:
    bandwidth = units.Bandwidth(amount, per_cycle)
    assert units.Bandwidth.parse(str(bandwidth)) == bandwidth


@given(st.floats(min_value=0, max_value=1e6), st.booleans())
def test_delay_reads_what_it_prints(amount: float, in_cycles: bool) -> None:
    delay = units.Delay(amount, in_cycles)
    assert units.Delay.parse(str(delay)) == delay


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        (units.Bytes, "TB"), (units.Hertz, "Hz"), (units.Hertz, "GHz"), (units.Energy, "J"),
        (units.EnergyPerByte, "J/bit"), (units.Power, "W"), (units.Area, "um2"),
        (units.Operations, "TOPS"), (units.Bandwidth, "TB/s"), (units.Bandwidth, "TB/cycle"),
        (units.Delay, "s"),
    ],
)  # fmt: skip
@given(st.integers(1, 10**18))
def test_what_can_be_written_comes_back_from_json(kind: Any, unit: str, number: int) -> None:
    adapter = TypeAdapter(kind)
    try:
        amount = adapter.validate_python(f"{number} {unit}")
    except ValueError:
        return
    assert adapter.validate_json(adapter.dump_json(amount)) == amount


@pytest.mark.parametrize("text", ["1 Hz", "0.25 Hz", "9.999 kHz", "12345 Hz"])
def test_a_slow_clock_comes_back_from_json(text: str) -> None:
    adapter = TypeAdapter(units.Hertz)
    amount = adapter.validate_python(text)
    assert adapter.validate_json(adapter.dump_json(amount)) == amount == units.parse_hertz(text)


@given(st.integers(1, 10**6), st.sampled_from(sorted(PREFIXES)), st.sampled_from(["", " ", "  "]))
def test_bytes_scale_by_their_unit(count: int, unit: str, gap: str) -> None:
    assert units.parse_bytes(f"{count}{gap}{unit}") == count * PREFIXES[unit]


@given(st.integers(0, 10**6))
def test_decimal_fractions_of_a_decimal_unit_are_whole_bytes(thousandths: int) -> None:
    if thousandths:
        assert units.parse_bytes(f"{thousandths / 1000:.3f} MB") == thousandths * 1000


def test_units_follow_the_clock() -> None:
    assert units.Bandwidth.parse("25.6 GB/s").at(2e9) == pytest.approx(12.8)
    assert units.Bandwidth.parse("64 B/cycle").at(2e9) == 64
    assert units.Delay.parse("100 ns").cycles(1.2e9) == 120
    assert units.Delay.parse("1 ns").cycles(1.5e9) == 2, "delays round up to whole cycles"
    assert units.Delay.parse("7 cycles").cycles(1e9) == 7


def test_bare_numbers_are_in_the_base_unit() -> None:
    assert units.parse_bytes(4096) == 4096
    assert units.Bandwidth.parse(16) == units.Bandwidth(16, True)
    assert units.Delay.parse(3) == units.Delay(3, True)
    assert units.parse_hertz(1e9) == units.parse_hertz("1 GHz")
    assert TypeAdapter(units.Operations).validate_python("2.5 TOPS") == 2.5e12


@pytest.mark.parametrize(
    ("amount", "text"), [(1000, "1000 B"), (1536, "1536 B"), (3 * 2**20, "3 MiB")]
)
def test_exact_bytes_lose_none(amount: int, text: str) -> None:
    assert units.exact_bytes(amount) == text
    assert units.parse_bytes(text) == amount
