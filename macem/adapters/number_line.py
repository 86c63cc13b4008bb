"""The numbers of a type in their order, as integers: so bisection finds the last of them that a question keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macem.kernel import F8, I8

__all__ = ["NumberLine", "largest_on_the_left"]


class NumberLine:
    """The numbers of a type in their order, as integer keys; neighbours differ by one."""

    def __init__(self, dtype: np.dtype[Any], limit: float) -> None:
        self.dtype = dtype
        self._bits = np.dtype(f"i{dtype.itemsize}") if dtype.kind == "f" else None
        if dtype.kind == "f":
            largest = min(limit, float(np.finfo(dtype).max))
            self.low, self.high = (int(key) for key in self.keys(np.array([-largest, largest])))
        elif dtype.kind == "b":
            self.low, self.high = 0, 1
        else:
            information = np.iinfo(dtype)
            exact = min(int(limit), 1 << 53)  # a table holds float64
            self.low, self.high = max(information.min, -exact), min(information.max, exact)

    def keys(self, numbers: NDArray[Any]) -> I8:
        """Key of the largest number of the type that is not above each number."""
        if self._bits is None:
            return np.asarray(np.clip(np.floor(numbers), self.low, self.high), dtype=np.int64)
        with np.errstate(over="ignore"):
            nearest = numbers.astype(self.dtype)
            nearest = np.where(nearest > numbers, np.nextafter(nearest, self.dtype.type(-np.inf)), nearest)
        bits = nearest.view(self._bits).astype(np.int64)
        return np.where(bits < 0, -(bits & np.iinfo(self._bits).max), bits)

    def numbers(self, keys: I8) -> NDArray[Any]:
        if self._bits is None:
            return keys.astype(self.dtype)
        size = np.abs(keys).astype(self._bits).view(self.dtype)
        return np.where(keys < 0, -size, size)


def largest_on_the_left(seen: Callable[[F8], F8], thresholds: F8, largest: float) -> F8:
    """Find the largest float that a monotone function still keeps at or below each threshold, by bisection over floats.

    Parameters
    ----------
    seen : callable
        The function, not decreasing, over arrays.
    thresholds : ndarray of float64
    largest : float
        Numbers up to this size may be asked; where it stays on the left, so does everything.
    """
    line = NumberLine(np.dtype(float), largest)
    low, high = np.full(thresholds.shape, line.low), np.full(thresholds.shape, line.high)
    never, always = seen(line.numbers(low)) > thresholds, seen(line.numbers(high)) <= thresholds
    for _ in range(64):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        left = seen(line.numbers(middle)) <= thresholds
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return np.where(never, -np.inf, np.where(always, np.inf, line.numbers(low)))
