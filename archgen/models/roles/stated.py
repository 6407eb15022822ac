"""What users say of inputs: `NAME=state`, `NAME=batch:1`, `NAME=mask:none`, `NAME=state::OUTPUT`.

The one idea: what is said is written into the model, as a metadata property for each input, so
that it travels with the model wherever that goes and is part of what the model is. A file may
carry such properties of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx

from archgen.models.roles.kinds import KINDS, Kind
from archgen.schema.tree import guess, listed

BATCH = "batch"
NONE = "none"
_PROPERTY = "archgen.role."


@dataclass(frozen=True)
class StatedRole:
    """A role in a user's words; None: as it is found."""

    kind: Kind | None
    axis: int | None
    has_axis: bool
    """Whether `axis` is said; None is then: there is no batch."""
    becomes: str | None = None
    """Of a state, the output that it is in the next inference."""


def parse_roles(
    given: Mapping[str, str], ranks: Mapping[str, int], outputs: Collection[str]
) -> tuple[dict[str, StatedRole], list[str]]:
    """Roles by input, and everything that is wrong with them; `ranks`: of all inputs."""
    found: dict[str, StatedRole] = {}
    mistakes: list[str] = []
    for name, text in given.items():
        role, wrong = _parsed(text, ranks.get(name), outputs)
        if name not in ranks:
            known = f" (inputs: {', '.join(ranks) or 'none'})"
            wrong = [f"there is no such input{guess(name, ranks)}{known}", *wrong]
        mistakes += [f"role {name}={text}: {each}" for each in wrong]
        if not wrong:
            found[name] = role
    return found, mistakes


def _parsed(text: str, rank: int | None, outputs: Collection[str]) -> tuple[StatedRole, list[str]]:
    word, colon, rest = text.partition(":")
    place, pair, becomes = rest.partition(":")
    axis = int(place) if place.isascii() and place.isdigit() else None
    has_axis = bool(place or (colon and not pair)) or word == BATCH
    wrong: list[str] = []
    if word != BATCH and word not in KINDS:
        known = (BATCH, *KINDS)
        wrong.append(f"unknown role {word!r}{guess(word, known)}; known: {listed(known, 'and')}")
    if pair and word != "state":
        wrong.append(f"only a state becomes an output, such as state::{becomes or 'OUTPUT'}")
    elif pair and becomes not in outputs:
        there = f"{guess(becomes, outputs)} (outputs: {', '.join(outputs)})"
        wrong.append(f"there is no output {becomes!r}{there}")
    if colon and axis is None and place != NONE and not (pair and not place):
        wrong.append(f"{place!r} is no axis: expected a number or {NONE}, such as batch:1")
    if axis is not None and word == "parameter":
        wrong.append("a parameter has no batch axis")
    if axis is not None and rank is not None and axis >= rank:
        wrong.append(f"there is no axis {axis}: the input has {rank}")
    if word == BATCH and not colon:
        axis = 0
        wrong += ["a scalar has no axis for the batch"] if rank == 0 else []
    kind = next((kind for kind in KINDS if kind == word), None)
    return StatedRole(kind, axis, has_axis or kind == "parameter", becomes or None), wrong


def state_roles(proto: onnx.ModelProto, given: Mapping[str, str]) -> None:
    """Writes checked roles into `proto`, over those that it has for the same inputs."""
    names = {_PROPERTY + name for name in given}
    kept = [entry for entry in proto.metadata_props if entry.key not in names]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    for name in sorted(given):
        proto.metadata_props.add(key=_PROPERTY + name, value=given[name])


def written_roles(proto: onnx.ModelProto, inputs: Sequence[str]) -> dict[str, str]:
    """The words that `proto` carries, by input."""
    words = {entry.key: entry.value for entry in proto.metadata_props}
    return {name: words[_PROPERTY + name] for name in inputs if _PROPERTY + name in words}
