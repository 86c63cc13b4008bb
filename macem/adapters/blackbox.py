"""Anything that can only be asked: an estimator with predict_proba, or a function."""

from __future__ import annotations

from typing import Any

from macem.oracle import BlackBoxOracle

__all__ = ["BlackBoxAdapter"]


class BlackBoxAdapter:
    """Ask any classifier or function for its probabilities, and look no deeper.

    What discovery falls back to; pass it as ``adapter=`` to keep a model from being read into a table.
    """

    def oracle(self, model: Any) -> BlackBoxOracle:
        """Wrap a model; see `macem.oracle.BlackBoxOracle` for what is refused."""
        kind = "a function" if not hasattr(model, "predict_proba") else f"a model of {type(model).__module__}"
        return BlackBoxOracle(model, note=f"{kind}, asked as a black box")
