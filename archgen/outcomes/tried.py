"""What is known of a change of a machine before anybody compiles for the changed one.

The one idea: a gain says how it was come by. Simulated is the strongest: the same program ran on
the changed machine. Compiled anew: a program was made for it, as one was for the machine as it is,
both at the least effort, and simulated. Estimated takes another program, which was not made. At
most is a bound.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SIMULATED, ANEW, ESTIMATED, AT_MOST = "simulated", "compiled anew", "estimated", "at most"
DETAIL = "tried"
"""Name among the details of an outcome."""


@dataclass(frozen=True)
class Tried:
    """A change, and the share of the time that it saves; below 0: that it takes."""

    fields: Mapping[str, Any]
    gain: float
    way: str
    """SIMULATED, ANEW, ESTIMATED or AT_MOST."""
    rests_on: str = ""


def key_of(fields: Mapping[str, Any]) -> str:
    """`fields` as what a change is looked up by."""
    return json.dumps(fields, sort_keys=True)


def plain(found: Sequence[Tried]) -> list[dict[str, Any]]:
    """As details hold it."""
    return [asdict(each) for each in found]


def known(details: Mapping[str, Any]) -> dict[str, Tried]:
    """What is in details, by `key_of`."""
    found = [Tried(**each) for each in details.get(DETAIL, ())]
    return {key_of(each.fields): each for each in found}
