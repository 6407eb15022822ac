"""A machine with one thing changed: its fields as its file would spell them, with others set.

The one idea: the changed machine is made and checked like any other, so what the rules of
architectures forbid is no machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from archgen.schema.json_schema import arch_view
from archgen.schema.tree import Table
from archgen.schema.variants import TWICE, as_node, near, variant
from simmodel.arch.costs import EnergyTable
from simmodel.arch.memories import DRAM_KINDS, Dram
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth, Delay

_KIB, _NANO = 1024, 1e9
_SIZES = ("size", "loop_buffer")
_BY_BILLIONS = {"compute": "GOPS", "clock": "GHz"}
"""Units of rates that nobody writes in ones."""
_FROM_KIND = {"memories.dram.kind", "memories.dram.bandwidth"}
"""Fields that what a kind of DRAM gives follows from."""
Fields = Mapping[str, Any]
"""Dotted field -> its new value, as a file spells it."""


def fields_of(arch: Arch) -> dict[str, Any]:
    """`arch` as its file would spell it, every field that it may state."""
    made: dict[str, Any] = arch.model_dump(mode="json", by_alias=True, exclude_none=True)
    _with_nulls(made, arch.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    for memory in made["memories"].values():
        # Ports of their own for reads and writes stand in the place of shared ones.
        if {"read_ports", "write_ports"} & memory.keys():
            memory.pop("ports", None)
    return made


def _with_nulls(made: dict[str, Any], stated: Mapping[str, Any]) -> None:
    """State in `made` what is nothing, where it would be something if nobody stated it."""
    for name, value in stated.items():
        if value is None:
            made[name] = None
        elif isinstance(value, Mapping):
            _with_nulls(made[name], value)


def scaled(arch: Arch, field: str, factor: float) -> Fields:
    """`field` times `factor`, in the unit that it has; nothing where the machine lacks it."""
    found: Any = fields_of(arch)
    for part in field.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    value = _times(found, field.rsplit(".", 1)[-1], factor)
    return {} if value is None else {field: value}


def _times(value: object, name: str, factor: float) -> str | int | float | None:
    if isinstance(value, float):
        unit = _BY_BILLIONS.get(name)
        return f"{value * factor / _NANO:.12g} {unit}" if unit else value * factor
    if isinstance(value, int):
        made = max(1, round(value * factor))
        return f"{made // _KIB} KiB" if name in _SIZES and made % _KIB == 0 else made
    if isinstance(value, str) and name.endswith("bandwidth"):
        rate = Bandwidth.parse(value)
        return str(Bandwidth(rate.amount * factor, rate.per_cycle))
    if isinstance(value, str) and name in ("latency", "startup", "per_inference"):
        delay = Delay.parse(value)
        if not (amount := delay.amount * factor):
            return None
        return f"{amount:g} cycles" if delay.in_cycles else f"{amount * _NANO:g} ns"
    return None


def changed(arch: Arch, fields: Fields) -> Arch | None:
    """`arch` with `fields` set; None where that is no valid machine, or no change."""
    own = fields_of(arch)
    if fields.keys() & _FROM_KIND:
        _without_given(own, arch)
    tree = as_node(own)
    assert isinstance(tree, Table)
    choice = {field: as_node(value) for field, value in fields.items()}
    made, mistakes = variant(tree, choice, name=arch.name) if fields else (None, [])
    return made.arch if made is not None and not mistakes and made.arch != arch else None


def _without_given(own: dict[str, Any], arch: Arch) -> None:
    """Leave out of `own` what the kind of DRAM gives, or nobody states: it is given anew."""
    dram = arch.memories.dram
    names = next(iter(DRAM_KINDS.values())).fields(0)
    fields = DRAM_KINDS[dram.kind].fields(arch.dram_peak * arch.clock) if dram.kind else {}
    plain = Dram.model_validate({"size": 1, "bandwidth": 1, **fields}).model_dump(mode="json")
    for name in names:
        if own["memories"]["dram"][name] == plain[name]:
            del own["memories"]["dram"][name]
    if own["energy"]["dram"] == (dram.kind or EnergyTable().dram):
        del own["energy"]["dram"]


def leaf_fields(arch: Arch) -> Iterator[tuple[str, Any]]:
    """Every field of `arch` that holds no further fields, by its path, and its value as spelled."""
    return flattened(fields_of(arch))


def flattened(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What stands in nested mappings, by its path."""
    if not isinstance(value, Mapping):
        yield path, value
        return
    for name, below in value.items():
        yield from flattened(below, f"{path}.{name}" if path else name)


def other_values(field: str, value: Any, factor: float = TWICE) -> Iterator[Any]:
    """What may stand in the place of `value`: `factor` times as much, of whole numbers what is near
    that, then less; the other truth; other words; a list with one word more, or less. Not all of
    them are lawful."""
    view = arch_view()
    known = view.words(view.at(tuple(field.split("."))))
    match value:
        case bool():
            yield not value
        case int() if value > 0:
            yield from (*near(value, factor), 1, *near(value, 1 / factor))
        case int() | float():
            yield from (value * factor, 1, value / factor) if value else (1, 4)
        case str() if known:
            yield from (word for word in known if word != value)
        case str() if match := _QUANTITY.fullmatch(value):
            amount, unit = float(match[1]), match[2]
            yield from (f"{times * amount or 100:.12g}{unit}" for times in (factor, 1 / factor))
        case list():
            yield from ([*value, word] for word in known if word not in value)
            yield from (value[:place] + value[place + 1 :] for place in range(len(value)))


_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)( ?[A-Za-z].*)")


def changed_to_other(
    arch: Arch, field: str, value: Any, factor: float = TWICE
) -> tuple[Any, Arch] | None:
    """`arch` with another value in `field`, and that value, amounts `factor` times as large where
    that is lawful; None where nothing else is."""
    for other in other_values(field, value, factor):
        made = changed(arch, {field: other})
        if made is not None:
            return other, made
    return None


# What a machine could do at best, from its file: to hold against data sheets.


@dataclass(frozen=True)
class Peaks:
    """Derived peaks of one architecture, for the whole chip unless said otherwise."""

    tops: dict[str, float]
    """Element type -> tera-operations per second (a multiply-accumulate counts two)."""
    bytes_per_cycle: dict[str, float]
    """Memory role -> bytes read per core cycle: DRAM of the chip, shared memory of one instance,
    the others of one core."""
    on_chip: int
    """Bytes of all memories on the chip."""
    ridge: float
    """MACs per DRAM byte, in the preferred type, above which compute is the limit."""


def peaks(arch: Arch) -> Peaks:
    """The derived peaks of `arch`."""
    memories = arch.memories.on_chip()
    held = arch.memories.srams()
    widths = dict(arch.far_rates)
    widths |= {role: float(memory.bytes_per_cycle()) for role, memory in memories.items()}
    return Peaks(
        tops={name: 2e-12 * arch.clock * arch.peak_macs(name) for name in arch.types},
        bytes_per_cycle=widths,
        on_chip=sum(memory.size * arch.instances(role) for role, memory in held.items()),
        ridge=arch.peak_macs(arch.types[0]) / arch.dram_bytes_per_cycle,
    )
