"""Base values: what a numeric feature is when it says nothing.

By default the median, on the data's own grid; a category's is the mode. ``base=`` takes the values of single features
in a dict, or one of these rules, or a rule of your own, for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from macem.kernel import F8

__all__ = ["BaseRule", "Constant", "median"]


class BaseRule(Protocol):
    """Chooses the base value of a numeric column; what it chooses is moved onto the grid and into the range."""

    def __call__(self, values: F8) -> float:
        """Base value of a column with these values, those left out that are missing or special codes."""
        ...


def median(values: F8) -> float:
    """The least interesting value of a column, robust to outliers: what the paper takes."""
    return float(np.median(values))


@dataclass(frozen=True)
class Constant:
    """The same base value for every numeric feature, such as 0 for the paper's molecules."""

    value: float

    def __call__(self, values: F8) -> float:
        return self.value
