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
    from compiler.codegen.kernels import Part, kernel
    from compiler.context import CompileOptions, CompileResult
    from compiler.cost.multicast import between_cores
    from compiler.decisions.cache import Decisions
    from compiler.decisions.text.text import TreeError, parse_tree
    from compiler.decisions.text.tree import Tree
    from compiler.errors import (
        CompilerError,
        DoesNotFit,
        Undecided,
        UnsupportedModel,
        at_node,
        operator_name,
    )
    from compiler.estimate.network_bound import (
        Attainable,
        NetworkEstimate,
        ProductCycles,
        bound_of,
        expected,
        product_cycles_on,
    )
    from compiler.estimate.quick_estimate import QuickEstimator, quick_estimate
    from compiler.explain.dump import CHOSEN, FORMS, form_after, form_of
    from compiler.explain.rejected import RejectedOption
    from compiler.explain.report import (
        Choice,
        Constants,
        GroupReport,
        report,
        working_set,
    )
    from compiler.frontend.canonicalize.symbolic_axes import OpenAxes
    from compiler.frontend.checks import is_known, other_ports, refuse_unknown_operators
    from compiler.frontend.constants import constant_values
    from compiler.frontend.importer import Load, hides_products, in_standard_operators, load
    from compiler.frontend.operators.body import Body, Declined, Tensor
    from compiler.frontend.operators.definitions import OperatorFailed
    from compiler.frontend.operators.functions import expression, rewrite
    from compiler.frontend.operators.reference import compute_own, is_own
    from compiler.frontend.reference_types import evaluated, evaluator, lacks_kernel
    from compiler.frontend.rewrite import GraphPass, const, is_op, replace_value, static_shape
    from compiler.lowering import elementwise
    from compiler.lowering.lower import TABLE as OPERATORS
    from compiler.numerics.expected_values import (
        ExpectedValue,
        ExpectedValues,
        StoredTensorCheck,
        VerificationPlan,
        compute_expected_values,
    )
    from compiler.numerics.host_error import host_error
    from compiler.numerics.memo import Memo
    from compiler.options import EFFORTS, GRAPH_PASSES, HALOS, OBJECTIVES, Stages, Trial, stages_of
    from compiler.passes import Pass, PassFailed, Within, pass_name, run_pass
    from compiler.pipeline import compile_model, following_lengths, prepared
    from compiler.schedule.fusion.optimal import STRATEGIES
    from compiler.search.best_program import (
        Best,
        SimulatedProgram,
        Wanted,
        alternatives,
        best_program,
    )
    from compiler.search.symbolic_sizes import specialize_result
    from compiler.symbolic.model import SymbolicModel
    from compiler.tensor_ir.arithmetic import beyond_fp32, infinities_to_limit
    from compiler.tensor_ir.nest import HostNode

# In the order in which they are needed, not of the alphabet.
__all__ = [  # noqa: RUF022
    # A network for a machine.
    "specialize_result",  # what was compiled for all lengths, for one of each
    "OpenAxes",  # which axes follow from lengths
    "following_lengths",  # of a network at several lengths: which axes follow from these
    "prepared",  # an ONNX model after all that no machine matters for
    "compile_model",  # that or an ONNX model, and an architecture: to a program
    "SymbolicModel",  # or such models for all lengths that are known only when a program runs
    "constant_values",  # of such a model, which follow from its lengths
    "CompileOptions",  # element type, host, passes
    "CompileResult",  # the program, and how it came about
    "best_program",  # the best of several programs, by a judge who runs them
    "Wanted",  # what of
    "Best",
    "SimulatedProgram",
    "alternatives",  # passes for the others
    "Decisions",  # schedules that were chosen before, by what of the machine they depend on
    "QuickEstimator",  # one network before any schedule, on many machines
    "quick_estimate",  # cycles layer by layer, before any schedule
    "NetworkEstimate",
    "expected",  # the same of what was compiled
    "bound_of",  # cycles below which no schedule of it gets
    "Attainable",
    "working_set",  # bytes between its layers that are alive at once
    "product_cycles_on",  # cycles that its products would take on another machine
    "ProductCycles",
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
    "Choice",
    "Constants",
    "RejectedOption",
    "Trial",
    "HostNode",  # operators that were left to the host, with the reason
    # What each stage makes, as text.
    "FORMS",  # names of all stages whose result can be printed
    "CHOSEN",  # those among them in which alternatives differ
    "form_after",  # of a network
    "form_of",  # of a result, from schedules on
    # What a program's own values should be.
    "VerificationPlan",  # what its steps compute, to be computed again
    "compute_expected_values",
    # in double precision, from the values that the steps before have stored
    "ExpectedValues",
    "ExpectedValue",  # values, and how far they may be off
    "StoredTensorCheck",
    "Memo",  # results shared by machines that compute the same
    "lacks_kernel",  # whether ONNX Runtime fails for want of a kernel alone
    "evaluator",  # what computes a model from ONNX's definitions then
    "evaluated",  # values by it
    "host_error",  # how far results of the host may be off
    "infinities_to_limit",  # values that count as infinite
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
