"""What a machine could do without: parts that its runs hardly use, and what they cost.

The one idea: the mirror image of a lever. Half of something can at most double the time that it
works, so a part that works little costs little time when it is halved; memory that no run has
filled by half costs none. Area is what the energy model says of the smaller machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from archgen.report.account import Account
from archgen.report.changed import Price, price
from archgen.report.words import percent
from archgen.schema.rewritten import Fields, scaled
from simmodel.arch import Arch
from simmodel.units import show_bytes

_IDLE = 0.2
_WORTH = 0.02
"""Shares: of time that a part may work, of area that its half must save."""


@dataclass(frozen=True)
class Saver:
    """A smaller part."""

    title: str
    fields: Fields
    longer: float
    """Share by which a run gets longer at most, with the same program."""
    rests_on: str
    price: Price


def savers(arch: Arch, accounts: Sequence[Account]) -> list[Saver]:
    """What could be halved on `arch`, given all its runs; the largest area first."""
    if not accounts:
        return []
    found = [
        *(_memory(arch, role, accounts) for role in arch.memories.on_chip()),
        _engine(arch, "matrix", "matrix.cols", "multipliers", accounts),
        _engine(arch, "vector", "vector.lanes", "vector lanes", accounts),
    ]
    kept = [each for each in found if each is not None and -each.price.area_share >= _WORTH]
    return sorted(kept, key=lambda saver: saver.price.area)


def _memory(arch: Arch, role: str, accounts: Sequence[Account]) -> Saver | None:
    size = arch.memories.on_chip()[role].size
    used = max(account.point.get(f"peak_{role}_bytes") for account in accounts)
    fields = scaled(arch, f"memories.{role}.size", 0.5)
    if not used <= size / 2:
        return None
    said = f"at most {show_bytes(used)} of {show_bytes(size)} is ever in use"
    return Saver(f"half the {role} memory", fields, 0.0, said, _price(arch, fields, accounts, 0))


def _engine(
    arch: Arch, engine: str, field: str, noun: str, accounts: Sequence[Account]
) -> Saver | None:
    share = max(account.share(engine) for account in accounts)
    fields = scaled(arch, field, 0.5)
    if share > _IDLE or not fields or math.isnan(share):
        return None
    said = f"{engine} engines compute at most {percent(share)} of the time"
    return Saver(f"half the {noun}", fields, share, said, _price(arch, fields, accounts, share))


def _price(arch: Arch, fields: Fields, accounts: Sequence[Account], longer: float) -> Price:
    return price(arch, fields, accounts[0].point, 1 + longer)
