"""Expected mean and variance of each channel of a tensor, and how layers change them.

The one idea: with weights of random sign, the variance of a weighted sum is, in expectation, the
sum of squared weights times the variances, whatever the correlation between the terms. So moments
can be followed through a network by arithmetic on its weights alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Neighbouring pixels are alike: averaging n of them lowers the variance like n**0.5 independent
# ones (measured on the networks of this zoo, fed with noise).
_INDEPENDENCE = 0.5

Values = NDArray[np.float64]
# Places and weights by which functions of a standard normal variable are averaged.
_NODES, _RAW_WEIGHTS = np.polynomial.hermite_e.hermegauss(33)
_WEIGHTS = _RAW_WEIGHTS / _RAW_WEIGHTS.sum()


@dataclass(frozen=True)
class Moments:
    """``mean`` and ``variance``, each of shape (channels,)."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @staticmethod
    def standard(channels: int) -> Moments:
        """Zero mean and unit variance."""
        return Moments(np.zeros(channels), np.ones(channels))

    @staticmethod
    def concatenated(parts: Sequence[Moments]) -> Moments:
        """Channels of all ``parts`` one after another."""
        return Moments(
            np.concatenate([part.mean for part in parts]),
            np.concatenate([part.variance for part in parts]),
        )

    def split(self, parts: int) -> list[Moments]:
        """Of equal ``parts`` of the channels, the inverse of ``concatenated``."""
        pairs = zip(np.split(self.mean, parts), np.split(self.variance, parts), strict=True)
        return [Moments(mean, variance) for mean, variance in pairs]

    def through(self, weight: NDArray[np.float32], groups: int = 1) -> Moments:
        """After a weighted sum with ``weight`` of shape (outputs, inputs / groups, ...)."""
        outputs, inputs = weight.shape[:2]
        flat = weight.reshape(groups, outputs // groups, inputs, -1)
        first = flat.sum(axis=3, dtype=np.float32)
        second = np.einsum("goik,goik->goi", flat, flat)
        mean = np.einsum("goi,gi->go", first, self.mean.reshape(groups, inputs))
        variance = np.einsum("goi,gi->go", second, self.variance.reshape(groups, inputs))
        return Moments(mean.reshape(outputs), variance.reshape(outputs))

    def scaled(self, factor: float) -> Moments:
        """After multiplication by ``factor``."""
        return Moments(self.mean * factor, self.variance * factor**2)

    def centred(self) -> Moments:
        """After subtraction of the mean."""
        return Moments(np.zeros_like(self.mean), self.variance)

    def plus(self, other: Moments) -> Moments:
        """Of a sum of two independent tensors."""
        return Moments(self.mean + other.mean, self.variance + other.variance)

    def rectified(self) -> Moments:
        """After Relu of a normal distribution."""
        deviation = np.sqrt(self.variance)
        ratio = self.mean / deviation
        density = np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
        below = np.array([0.5 * (1 + math.erf(r / math.sqrt(2))) for r in ratio])
        mean = self.mean * below + deviation * density
        square = (self.mean**2 + self.variance) * below + self.mean * deviation * density
        return Moments(mean, np.maximum(square - mean**2, 1e-3 * self.variance))

    def mapped(self, function: Callable[[Values], Values]) -> Moments:
        """After ``function`` of a normal distribution, by Gauss-Hermite quadrature."""
        places = self.mean[:, np.newaxis] + np.sqrt(self.variance)[:, np.newaxis] * _NODES
        values = function(places)
        mean = values @ _WEIGHTS
        square = values**2 @ _WEIGHTS
        return Moments(mean, np.maximum(square - mean**2, 1e-3 * self.variance))

    def times(self, other: Moments) -> Moments:
        """Of a product of two independent tensors."""
        mean = self.mean * other.mean
        square = (self.variance + self.mean**2) * (other.variance + other.mean**2)
        return Moments(mean, square - mean**2)

    def maximum(self, count: int) -> Moments:
        """Of the largest among ``count`` rectified neighbours, whose long tail keeps its spread."""
        rise = math.sqrt(2 * math.log(count)) * 0.6
        return Moments(self.mean + rise * np.sqrt(self.variance), self.variance)

    def averaged(self, count: int) -> Moments:
        """Of the average of ``count`` neighbours."""
        return Moments(self.mean, self.variance / count**_INDEPENDENCE)

    def repeated(self, count: int) -> Moments:
        """With each channel spread over ``count`` consecutive features."""
        return Moments(np.repeat(self.mean, count), np.repeat(self.variance, count))
