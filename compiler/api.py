"""What the compiler offers to whoever stands above it: archgen, and extensions of its users.

The one idea: this page is the whole interface. archgen imports from here alone, as a contract
checks, so that everything below may change its place; what is not on this page is the compiler's
own business. What a name is, its own docstring says. A name is imported when it is first asked for,
from where the imports below say that it is, which type checkers alone follow: a verb pays for what
it uses.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # A network for a machine, and how it is scheduled.
    from compiler.context import CompileOptions, CompileResult
    from compiler.decisions.cache import Decisions
    from compiler.decisions.text.text import TreeError, parse_tree
    from compiler.decisions.text.tree import Tree
    from compiler.frontend.canonicalize.symbolic_axes import OpenAxes
    from compiler.frontend.importer import (
        Load,
        constant_values,
        hides_products,
        in_standard_operators,
        load,
    )
    from compiler.numerics.memo import Memo
    from compiler.options import EFFORTS, HALOS, OBJECTIVES, Stages, alternatives, stages_of
    from compiler.pipeline import compile_model, following_lengths, prepared
    from compiler.schedule.fusion.optimal import STRATEGIES
    from compiler.search.back_to_back import BackToBack, back_to_back
    from compiler.search.best_program import Best, SimulatedProgram, Wanted, best_program
    from compiler.search.symbolic_sizes import specialize_result
    from compiler.symbolic.infer_from_samples import SymbolicModel

if TYPE_CHECKING:  # Refusals, and what a message says of a node.
    from compiler.cost.multicast import between_cores
    from compiler.errors import (
        CompilerError,
        DoesNotFit,
        Undecided,
        UnsupportedModel,
        at_node,
        operator_name,
    )
    from compiler.frontend.checks import is_known, other_ports, refuse_unknown_operators
    from compiler.frontend.operators.definitions import OperatorFailed
    from compiler.passes import PassFailed

if TYPE_CHECKING:  # What it takes, why it is so, and whether its values are right.
    from compiler.estimate.network_bound import (
        Attainable,
        NetworkEstimate,
        ProductCycles,
        bound_of,
        expected,
        product_cycles_on,
    )
    from compiler.estimate.quick_estimate import QuickEstimator
    from compiler.explain.dump import CHOSEN, FORMS, form_after, form_of
    from compiler.explain.rejected import Choice, RejectedOption
    from compiler.explain.report import Constants, GroupReport, report, working_set
    from compiler.frontend.microscaling import microscaling, rounding
    from compiler.frontend.operators.functions import compute_own, is_own
    from compiler.frontend.reference_types import (
        RUNTIME_ERRORS,
        evaluated,
        evaluator,
        lacks_kernel,
        session_options,
    )
    from compiler.frontend.stored_tensors import (
        content_of,
        is_outside,
        numbers_in,
        pieces_in,
        set_folder,
        set_inside,
        set_microscaled,
        set_normal,
        with_all_numbers,
    )
    from compiler.numerics.equal_stages import NOTHING_SKIPPED
    from compiler.numerics.expected_values import (
        ExpectedValue,
        ExpectedValues,
        Recomputation,
        StoredTensorCheck,
    )
    from compiler.numerics.host_error import host_error
    from compiler.numerics.recipe import VerificationPlan
    from compiler.options import Trial
    from compiler.tensor_ir.arithmetic import beyond_fp32, infinities_to_limit
    from compiler.tensor_ir.nest import HostNode

if TYPE_CHECKING:  # Passes, operators and kernels of extensions.
    from compiler.codegen.kernels import Part, kernel
    from compiler.frontend.operators.body import Body, Declined, Tensor
    from compiler.frontend.operators.functions import expression, rewrite
    from compiler.frontend.rewrite import GraphPass, const, is_op, replace_value, static_shape
    from compiler.lowering import elementwise
    from compiler.lowering.lower import TABLE as OPERATORS
    from compiler.options import GRAPH_PASSES
    from compiler.passes import pass_name, run_pass


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
    offered = (line for node in page.body if isinstance(node, ast.If) for line in node.body)
    return {
        alias.asname or alias.name: (line.module, alias.name)
        for line in offered
        if isinstance(line, ast.ImportFrom) and line.module
        for alias in line.names
    }
