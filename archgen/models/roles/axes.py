"""How far each axis of each input goes through the network.

The one idea: an axis along which the network computes every position for itself arrives at the
outputs whole: nothing on its way sums, slides or picks along it. That is what a batch is, whatever
its name. Each value carries, for each of its axes, the axes of inputs that have come to lie there;
axes of two inputs that come to lie on one are of one extent and go together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from archgen.models.roles.net import Dim, Net, node_label
from archgen.models.roles.transfer import Moves, moves_of

Token = tuple[str, int]
"""An input and one of its axes."""
Places = dict[int, frozenset[Token]]
"""For axes of a value the tokens that lie there."""

_MANY = 1


@dataclass
class AxisFlow:
    """What becomes of the axes of all inputs."""

    mixed: dict[Token, str] = field(default_factory=dict)
    """Who mixes an axis first, and how: `Conv 'c' sums over it`."""
    batch: dict[Token, str] = field(default_factory=dict)
    """Who reads an axis as the batch, by its own definition."""
    outputs: dict[str, Places] = field(default_factory=dict)
    _fellow: dict[Token, Token] = field(default_factory=dict)

    def arrives(self, token: Token) -> tuple[str, int] | None:
        """An output where the axis lies whole, and where there."""
        for name, places in self.outputs.items():
            for axis, tokens in places.items():
                if token in tokens:
                    return name, axis
        return None

    def group(self, token: Token) -> Token:
        """The same for all axes that go together."""
        while token in self._fellow:
            token = self._fellow[token]
        return token

    def join(self, tokens: Iterable[Token]) -> None:
        """These axes go together."""
        first, *others = sorted({self.group(token) for token in tokens}) or [("", 0)]
        for other in others:
            self._fellow[other] = first


def flow_of(net: Net) -> AxisFlow:
    """Follows every axis of every input of `net`."""
    flow = AxisFlow()
    lying: dict[str, Places] = {
        name: {axis: frozenset({(name, axis)}) for axis in range(len(port.dims))}
        for name, port in net.inputs.items()
    }
    for node in net.nodes:
        moves = moves_of(node, net)
        _record(moves, lying, flow)
        for name, places in _carried(moves, lying, flow).items():
            known = lying.setdefault(name, {})
            for axis, tokens in places.items():
                known[axis] = known.get(axis, frozenset()) | tokens
    flow.outputs = {name: lying.get(name, {}) for name in net.outputs}
    return flow


def _record(moves: Moves, lying: dict[str, Places], flow: AxisFlow) -> None:
    given = moves.node.input
    for (slot, axis), how in moves.mixed.items():
        for token in lying.get(given[slot], {}).get(axis, ()):
            flow.mixed.setdefault(token, f"{node_label(moves.node)} {how}")
    for slot, axis in moves.batch:
        if slot >= len(given):
            continue
        tokens = lying.get(given[slot], {}).get(axis, frozenset())
        if slot == 0 and moves.dims(0) and axis < len(moves.dims(0)):
            tokens = frozenset(t for t in tokens if _spans_axis(moves, t, moves.dims(0)[axis]))
        for token in tokens:
            flow.batch.setdefault(token, f"{node_label(moves.node)} reads it as its batch")


def _spans_axis(moves: Moves, token: Token, extent: Dim) -> bool:
    """Whether an axis alone makes up an axis of `extent`; it may be merged with others there."""
    own = moves.net.inputs[token[0]].dims[token[1]]
    return extent is None or own == extent


def _carried(moves: Moves, lying: dict[str, Places], flow: AxisFlow) -> dict[str, Places]:
    """The tokens of each result; what is stretched over a longer axis, or meets a constant that
    has a value of its own for each position, does not go on."""
    landing: dict[tuple[int, int], list[tuple[Dim, frozenset[Token], bool]]] = {}
    for (slot, axis), to in moves.kept:
        name = moves.node.input[slot]
        tokens = lying.get(name, {}).get(axis, frozenset())
        own = name in moves.net.weights
        landing.setdefault(to, []).append((moves.dims(slot)[axis], tokens, own))
    found: dict[str, Places] = {}
    for (index, axis), parts in landing.items():
        if index >= len(moves.node.output):
            continue
        extents = [extent for extent, _, _ in parts]
        longer = any(extent != _MANY for extent in extents)
        arrived: set[Token] = set()
        for extent, tokens, _ in parts:
            if not (longer and extent == _MANY):
                arrived |= tokens
        if any(own and isinstance(e, int) and e > _MANY for e, _, own in parts):
            for token in arrived:
                flow.mixed.setdefault(
                    token, f"{node_label(moves.node)} has a constant for each position"
                )
            arrived = set()
        if arrived:
            flow.join(arrived)
            found.setdefault(moves.node.output[index], {})[axis] = frozenset(arrived)
    return found
