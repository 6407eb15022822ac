"""What is said of archgen's own errors: where, on what, and nothing that a user cannot use."""

from __future__ import annotations

import pickle
import re
import traceback

import pytest

from archgen.process.internal_errors import error_line, written
from compiler.errors import UnsupportedModel, on
from compiler.frontend.shapes import broadcast
from compiler.passes import PassFailed


def mistaken() -> ValueError:
    """An error that one of our functions raises on a node."""
    with pytest.raises(ValueError) as found, on("node 'a' (Add)"):
        broadcast((2,), (3,))
    return found.value


def test_an_error_says_where_it_happened_and_to_what() -> None:
    expected = (
        r"internal error in compiler/frontend/shapes\.py:\d+ on node 'a' \(Add\): "
        r"ValueError: shapes \(\(2,\), \(3,\)\) do not broadcast"
    )
    assert re.fullmatch(expected, error_line(mistaken()))


def test_an_error_of_another_process_says_the_same() -> None:
    """Sent from there it has no frames, only a note of them."""
    here = mistaken()
    here.add_note("".join(traceback.format_exception(here)))
    assert (
        error_line(pickle.loads(pickle.dumps(here))) == error_line(here) == error_line(mistaken())
    )


def test_an_error_of_a_pass_names_it() -> None:
    assert (
        error_line(PassFailed("fold-pad (apply): x"))
        == "internal error in pass fold-pad (apply): x"
    )


def test_a_refusal_passes_as_it_is() -> None:
    with pytest.raises(UnsupportedModel) as found, on("node 'a' (Add)"):
        raise UnsupportedModel("no")
    assert not hasattr(found.value, "__notes__")


def test_the_file_holds_what_was_done_and_all_frames() -> None:
    text = written(mistaken(), {"model": "net.onnx", "batch": 2, "calibration": None})
    assert text.splitlines()[:4] == [error_line(mistaken()), "", "model: net.onnx", "batch: 2"]
    for part in ("archgen: ", "python: 3.", "Traceback", "in broadcast", "on node 'a' (Add)"):
        assert part in text
    assert "calibration" not in text
