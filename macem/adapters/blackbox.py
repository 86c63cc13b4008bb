"""Anything that can only be asked: an estimator with predict_proba, or a function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from macem.kernel import F8
from macem.oracle import BlackBoxOracle

__all__ = ["BlackBoxAdapter", "FirstColumn"]


class BlackBoxAdapter:
    """Ask any classifier or function for its probabilities, and look no deeper.

    What discovery falls back to; pass it as ``adapter=`` to keep a model from being read into a table.
    """

    def oracle(self, model: Any) -> BlackBoxOracle:
        """Wrap a model; see `macem.oracle.BlackBoxOracle` for what is refused."""
        kind = "a function" if not hasattr(model, "predict_proba") else f"a model of {type(model).__module__}"
        return BlackBoxOracle(model, note=f"{kind}, asked as a black box")


@dataclass(frozen=True)
class FirstColumn:
    """A classifier of one class, which answers with a second column that belongs to none."""

    model: Any

    def __call__(self, X: Any) -> F8:
        return np.asarray(self.model.predict_proba(X))[:, :1]
