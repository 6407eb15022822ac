"""`archgen models`: the networks that come with archgen, and the inputs of any network.

The one idea: before a network is studied, its user sees which of its dimensions are free, which
axis takes the batch, what each input is held to be, and why; and what to write to say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click
from onnx import helper

from archgen.cli.guarded import guarding_options, run_guarded
from archgen.cli.options import EveryMistake, dim_option, role_option
from archgen.cli.terminal import PlainTable, plain_table, show
from archgen.models.errors import ModelError, option
from archgen.models.load import roles_of
from archgen.models.roles import InferredRoles
from archgen.models.roles.net import ModelPort
from archgen.process.guard import ResourceLimits
from archgen.process.steps import step
from archgen.schema.tree import attempted
from archgen.zoo.catalog import CATALOG


@click.command(cls=EveryMistake)
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@dim_option()
@role_option
@guarding_options
def models(
    names: tuple[str, ...], dims: dict[str, int], roles: dict[str, str], timeout: float | None,
    memory: int | None,
) -> None:  # fmt: skip
    """List the networks of the zoo with their options, or the inputs of MODEL.

    Sizes are the published ones at batch 1 and default options. An option is set after a colon:

    \b
    archgen study soma-edge --model resnet50:image=160,classes=10

    MODEL is a network of the zoo or an ONNX file. For each input its type, shape and role are
    shown, the axis of the batch, and the evidence: who reads it how, or what its dimensions are
    called. What --dim and --role say is taken in:

    \b
    archgen models net.onnx --dim sequence=128 --role cache=state:none
    """
    if not names and (dims or roles):
        raise click.UsageError("--dim and --role are about a MODEL, and none is given")
    if not names:
        show([plain_table("name", ">MMACs", ">Mparameters", "options", "description", rows=(
            (name, f"{entry.macs / 1e6:,.0f}", f"{entry.parameters / 1e6:.2f}",
             ", ".join(f"{key}={value}" for key, value in entry.options.items()), entry.description)
            for name, entry in CATALOG.items()
        ))])  # fmt: skip
        return

    def work() -> None:
        for name, inferred in _roles_by_model(names, dims, roles).items():
            show([f"{name}: inputs", _inputs(inferred)])
            show(["outputs", _outputs(inferred)], _advice(inferred))

    run_guarded(work, ResourceLimits(timeout, memory))


def _roles_by_model(
    names: Sequence[str], sizes: Mapping[str, int], roles: Mapping[str, str]
) -> dict[str, InferredRoles]:
    """The inputs of each model; ModelError with what is wrong with any of them."""

    def opened(name: str) -> tuple[str, InferredRoles]:
        with step(f"opening {name}"):
            return name, roles_of(name, sizes, roles)

    found, mistakes = attempted(opened, dict.fromkeys(names), ModelError)
    if mistakes:
        raise ModelError(*mistakes)
    return dict(found)


def _inputs(told: InferredRoles) -> PlainTable:
    headings = ("name", "type", "shape", "role", "batch axis", "evidence", "samples")
    roles = [told.roles[name] for name in told.inputs]
    return plain_table(*headings, rows=(
        (*_port_cells(port), role.kind, _axis_text(role.axis),
         f"{role.evidence}; {role.axis_evidence}",
         f"{role.low} to {role.high}" if role.fill == "range" else role.fill)
        for port, role in zip(told.inputs.values(), roles, strict=True)
    ))  # fmt: skip


def _outputs(told: InferredRoles) -> PlainTable:
    return plain_table("name", "type", "shape", "batch axis", rows=(
        (*_port_cells(port), _axis_text(told.output_axes.get(name)))
        for name, port in told.outputs.items()
    ))  # fmt: skip


def _port_cells(port: ModelPort) -> tuple[str, str, str]:
    kind = str(helper.tensor_dtype_to_np_dtype(port.elem_type))
    return port.name, kind, f"[{', '.join(map(str, port.dims))}]"


def _axis_text(axis: int | None) -> str:
    return "-" if axis is None else str(axis)


def _advice(told: InferredRoles) -> Iterator[str]:
    """What is to be given, what a batch changes, and how to say otherwise."""
    carried = {name: role.axis for name, role in told.roles.items() if role.axis is not None}
    batch = {told.inputs[name].dims[axis] for name, axis in carried.items()}
    free = dict.fromkeys(
        dim
        for name, port in told.inputs.items()
        for dim in port.dims
        if isinstance(dim, str) and dim not in batch and not told.is_unread(name)
    )
    if free:
        yield f"to be given: {' '.join(option('--dim', dim, '<size>') for dim in free)}"
    if carried:
        places = "; ".join(
            f"axis {axis} of {', '.join(name for name in carried if carried[name] == axis)}"
            for axis in sorted(set(carried.values()))
        )
        fixed = sorted(extent for extent in batch if isinstance(extent, int))
        held = (
            f" (the file fixes {', '.join(map(str, fixed))})"
            if fixed
            else " (free: 1 where it is not given)"
        )
        yield f"--batch N changes {places}{held}"
    else:
        yield "no input has a batch axis: it runs at batch 1"
    if told.inputs:
        first = next(iter(told.inputs))
        ways = ", ".join(option("--role", first, role) for role in ("batch:AXIS", "state"))
        yield f"to say otherwise: {ways}, ..."
