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
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except FileNotFoundError:
        raise ModelError(f"{what} {path}: no such file") from None
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as wrong:
        raise ModelError(f"{what} {path}: not an .npz file of arrays: {wrong}") from None
