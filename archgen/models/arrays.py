"""Arrays by name in .npz files: samples, inputs, outputs."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archgen.models.errors import ModelError


def arrays_in(path: str | Path, what: str) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file by name; `what` they are starts each message.

    Raises:
        ModelError: there is no such file, or it holds something else.
    """
    try:
        stored = np.load(path, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            said = "one array (.npy), expected arrays by name, as np.savez(path, name=array) writes"
            raise ModelError(f"{what} {path}: {said}")
        with stored:
            return {name: _native(stored[name]) for name in stored.files}
    except FileNotFoundError:
        raise ModelError(f"{what} {path}: no such file") from None
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as wrong:
        # What numpy says of files that are none of its own is how to load them unsafely.
        reason = "" if "pickle" in str(wrong) else f": {wrong}"
        raise ModelError(f"{what} {path}: not an .npz file of arrays{reason}") from None


def load_calibration(path: str | Path | None) -> dict[str, NDArray[Any]] | None:
    """Arrays of an .npz file by input name; None for no path. Raises ModelError."""
    return None if path is None else arrays_in(path, "calibration")


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """`array` with its bytes in the order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
