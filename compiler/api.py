"""What the compiler offers to whoever stands above it: archgen, and extensions of its users.

The one idea: this page is the whole interface. archgen imports from here alone, as a contract
checks, so that everything below may change its place; what is not on this page is the compiler's
own business. A name is imported when it is first asked for, from where the imports below say that
it is, which type checkers alone follow: a verb pays for what it uses.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.attainable import Attainable, bound_of
    from compiler.choices import EFFORTS, HALOS, OBJECTIVES, stages_of
    from compiler.constant_values import constant_values
    from compiler.cost.handover import between_cores
    from compiler.decisions import Decisions, Shelf
    from compiler.driver import (
        CompileOptions,
        CompileResult,
        compile_model,
        following_lengths,
        prepared,
    )
    from compiler.dump import CHOSEN, FORMS, form_after, form_of
    from compiler.elsewhere import Products, products_on
    from compiler.emit.kernels import Offer, Part, kernel
    from compiler.errors import (
        CompilerError,
        DoesNotFit,
        Undecided,
        UnsupportedModel,
        at_node,
        operator_name,
    )
    from compiler.estimate import NetworkEstimate, expected
    from compiler.family import Family
    from compiler.forms import FormReport
    from compiler.fuse.strategies import STRATEGIES
    from compiler.graph.base import GraphPass
    from compiler.graph.body import Body, Declined, Tensor
    from compiler.graph.by_definition import evaluated, evaluator
    from compiler.graph.defined import expression, rewrite
    from compiler.graph.no_numbers import other_ports
    from compiler.graph.open_axes import OpenAxes
    from compiler.graph.operators import OperatorFailed
    from compiler.graph.reference import compute_own, is_own
    from compiler.graph.rewrite import const, is_op, replace_value, static_shape
    from compiler.graph.runtime import lacks_kernel
    from compiler.graph.unknown import is_known, refuse_unknown_operators
    from compiler.host_error import host_error
    from compiler.judge_groups import Trial
    from compiler.load import Load, load
    from compiler.nest.ir import HostNode
    from compiler.nest.memo import Memo
    from compiler.nest.type_error import beyond, beyond_fp32
    from compiler.ops import elementwise
    from compiler.ops.lower import TABLE as OPERATORS
    from compiler.options import Within
    from compiler.outlook import Outlook, outlook
    from compiler.passes import Pass, PassFailed, pass_name, run_pass
    from compiler.recompute import Made, Recipe, Recomputed, Stored, recompute
    from compiler.rejected import Option
    from compiler.report import Choice, Constants, GroupReport, LayerReport, report
    from compiler.search import Best, Tried, Wanted, alternatives, best_program
    from compiler.settle import at_lengths
    from compiler.stages import GRAPH_PASSES, Stages
    from compiler.standard_form import hides_products, in_standard_operators
    from compiler.tree.ir import Tree
    from compiler.tree.text import TreeError, parse_tree, print_tree
    from compiler.working_set import working_set

# In the order in which they are needed, not of the alphabet.
__all__ = [  # noqa: RUF022
    # A network for a machine.
    "at_lengths",  # what was compiled for all lengths, for one of each
    "OpenAxes",  # which axes follow from lengths
    "following_lengths",  # of a network at several lengths: which axes follow from these
    "prepared",  # an ONNX model after all that no machine matters for
    "compile_model",  # that or an ONNX model, and an architecture: to a program
    "Family",  # or such models for all lengths that are known only when a program runs
    "constant_values",  # of such a model, which follow from its lengths
    "CompileOptions",  # element type, host, passes
    "CompileResult",  # the program, and how it came about
    "best_program",  # the best of several programs, by a judge who runs them
    "Wanted",  # what of
    "Best",
    "Tried",
    "alternatives",  # passes for the others
    "Decisions",  # schedules that were chosen before, by what of the machine they depend on
    "Shelf",  # where these outlive the process
    "Outlook",  # one network before any schedule, on many machines
    "outlook",  # cycles layer by layer, before any schedule
    "NetworkEstimate",
    "expected",  # the same of what was compiled
    "bound_of",  # cycles below which no schedule of it gets
    "Attainable",
    "working_set",  # bytes between its layers that are alive at once
    "products_on",  # cycles that its products would take on another machine
    "Products",
    # How it is scheduled.
    "STRATEGIES",  # ways to form groups, by name; an extension may add one
    "HALOS",  # what neighbouring tiles share, by name
    "OBJECTIVES",  # what schedules are compared by, by name
    "EFFORTS",  # how long the search may take
    "stages_of",  # passes for a choice of these
    "Stages",  # all passes, whose fields are their options
    "Within",  # the range of such an option
    "Tree",  # a schedule by names, which can be written by hand
    "parse_tree",  # from text
    "print_tree",  # to text
    "TreeError",  # what is wrong with it, line by line
    # Refusals: what a user can do something about.
    "CompilerError",  # of which the others are
    "DoesNotFit",  # the sum that exceeds a memory, and what would make it fit
    "UnsupportedModel",  # operators or types that can run nowhere
    "Undecided",  # one that constants in the place of inputs may settle
    "is_known",  # whether anybody defines an operator
    "refuse_unknown_operators",  # raises one for what no ONNX has
    "other_ports",  # inputs and outputs that are no tensors of numbers, in words
    "at_node",
    "between_cores",  # how messages name a node
    "operator_name",  # and its operator
    "PassFailed",  # no refusal: an error of the compiler's own
    # Why it is as it is.
    "report",  # every decision about every group, with the best that was rejected
    "GroupReport",
    "LayerReport",
    "FormReport",
    "Choice",
    "Constants",
    "Option",
    "Trial",
    "HostNode",  # operators that were left to the host, with the reason
    # What each stage makes, as text.
    "FORMS",  # names of all stages whose result can be printed
    "CHOSEN",  # those among them in which alternatives differ
    "form_after",  # of a network
    "form_of",  # of a result, from schedules on
    # What a program's own values should be.
    "Recipe",  # what its steps compute, to be computed again
    "recompute",  # in double precision, from the values that the steps before have stored
    "Recomputed",
    "Made",  # values, and how far they may be off
    "Stored",
    "Memo",  # results shared by machines that compute the same
    "lacks_kernel",  # whether ONNX Runtime fails for want of a kernel alone
    "evaluator",  # what computes a model from ONNX's definitions then
    "evaluated",  # values by it
    "host_error",  # how far results of the host may be off
    "beyond",  # values that count as infinite
    "beyond_fp32",
    # Passes and operators: to explain them, and to add some.
    "Pass",
    "pass_name",
    "run_pass",  # with its contract checked
    "GRAPH_PASSES",  # rewrites of ONNX graphs, in order; an extension may insert one
    "GraphPass",  # base of a rewrite of nodes
    "load",  # an ONNX model as graph passes see it
    "hides_products",  # whether operators of a model have products inside
    "in_standard_operators",  # the model without these, for whoever quantizes products
    "Load",  # how far loops and sequences unfold there
    "const",  # values of a constant
    "is_op",
    "static_shape",
    "replace_value",
    "rewrite",  # decorator: an operator as a function that builds its body
    "expression",  # decorator: an operator as a function that gives a tensor expression
    "Body",  # the builder that it is handed
    "Tensor",  # and the values of a body
    "kernel",  # decorator: assembly for tiles of an operator, beside what the compiler emits
    "Part",  # an operand of such a tile
    "Offer",  # a kernel that was compared
    "Declined",  # what it raises for a node that it does not cover
    "OperatorFailed",  # a function of an operator that fails, or does not suit its node
    "is_own",  # whether an operator has a reference other than ONNX Runtime
    "compute_own",  # that reference
    "OPERATORS",  # ONNX operator -> what makes nests of it; an extension may add one
    "elementwise",  # such functions, and operators that are functions of the vector engine
]


def __getattr__(name: str) -> object:
    """What goes by `name` on this page, from the module that defines it."""
    if name not in _origins():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, own = _origins()[name]
    value: object = getattr(import_module(module), own)
    globals()[name] = value
    return value


@cache
def _origins() -> dict[str, tuple[str, str]]:
    """Of each name on this page the module that defines it, and its name there."""
    page = ast.parse(Path(__file__).read_bytes())
    [offered] = (node for node in page.body if isinstance(node, ast.If))
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in offered.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
