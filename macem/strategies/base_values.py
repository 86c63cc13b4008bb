"""Base values: what a feature is when it says nothing. Medians of numbers, modes of categories.

Pure numbers in, numbers out, so that `macem.features` can stand on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from macem.kernel import F8, I8

__all__ = ["by_frequency", "informative", "median", "on_grid"]


def informative(values: F8, special_codes: F8) -> F8:
    """The values that say something: neither missing nor a special code."""
    missing = np.isnan(values)
    silent = missing | np.isin(values, special_codes) if special_codes.size else missing
    return values[~silent] if silent.any() else values


def on_grid(values: F8, decimals: int) -> F8:
    """The nearest numbers with so many decimals (half up), each the float that the written decimal parses to."""
    if decimals < 0:
        return values
    grid = 10.0**decimals
    return np.asarray(np.floor(values * grid + 0.5) / grid)


def median(values: F8, decimals: int) -> float:
    """Median, on the data's own grid: of an even number of integers it may fall between two."""
    return float(on_grid(np.median(values), decimals))


def by_frequency(levels: Sequence[Any], counts: I8) -> I8:
    """Order of levels from the mode to the rarest; ties by value, so that the order of rows decides nothing."""
    rank = np.empty(len(levels), np.int64)
    rank[sorted(range(len(levels)), key=lambda at: _stable_key(levels[at]))] = np.arange(len(levels))
    return np.lexsort((rank, -counts)).astype(np.int64)


def _stable_key(level: Any) -> tuple[str, Any]:
    """Sorts levels of any types: numbers and strings by value, others by how they print."""
    if isinstance(level, (bool, int, float)):
        return "", level
    return type(level).__name__, level if isinstance(level, str) else repr(level)
