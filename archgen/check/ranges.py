"""The ranges that the values of a network have on samples, by which an int8 network has its scales.

    at 1 token: r in -9.1 .. 3.0          at 512: r in -2.4 .. 4.2          together: -9.1 .. 4.2

The one idea: one network computes at all lengths with the same scales, so a range goes as far as
the value does at any of those that are tried.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, create_calibrator
from onnxruntime.quantization.calibrate import TensorData, TensorsData

Sample = Mapping[str, NDArray[Any]]


def observed(
    proto: onnx.ModelProto, samples: Sequence[Sample], kinds: Sequence[str]
) -> TensorsData:
    """Ranges on ``samples`` of what operators of ``kinds`` read and make, by name."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)  # saving moves the data out of what it is given
    with tempfile.TemporaryDirectory() as directory:
        given, augmented = Path(directory, "given.onnx"), Path(directory, "augmented.onnx")
        onnx.save_model(copy, given, save_as_external_data=True)
        calibrator = create_calibrator(given, kinds, augmented_model_path=str(augmented))
        calibrator.collect_data(_Samples(samples))
        return calibrator.compute_data()


def united(ranges: TensorsData, others: Iterable[TensorsData]) -> TensorsData:
    """``ranges``, each as wide as ``others`` together make it."""
    found = dict(ranges.items())
    for other in others:
        for name in found.keys() & other.keys():
            one, more = found[name], other[name]
            found[name] = TensorData(
                lowest=np.minimum(one.lowest, more.lowest),
                highest=np.maximum(one.highest, more.highest),
            )
    return TensorsData(ranges.calibration_method, found)


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    """Hands samples to ONNX Runtime one by one."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._left: Iterator[Sample] = iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._left, None)
