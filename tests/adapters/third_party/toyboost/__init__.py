"""A toy model library: boosted stumps for two classes, as small as a library can be."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["ToyBoost"]


class ToyBoost:
    """Stumps, each fitted to what is left of the labels; a number goes left below its stump's cut, NaN goes right."""

    def __init__(self, n_stumps: int = 20, rate: float = 0.5) -> None:
        self.n_stumps = n_stumps
        self.rate = rate

    def fit(self, X: Any, y: Any) -> ToyBoost:
        numbers = np.asarray(X, dtype=np.float64)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.stumps_: list[tuple[int, float, float, float]] = []  # feature, cut, score left, score right
        raw = np.zeros(len(codes))
        for place in range(self.n_stumps):
            feature = place % numbers.shape[1]
            cut = float(np.quantile(numbers[:, feature], (place % 7 + 1) / 8))
            rest = codes - 1.0 / (1.0 + np.exp(-raw))
            left = numbers[:, feature] < cut
            scores = [self.rate * float(rest[side].mean()) if side.any() else 0.0 for side in (left, ~left)]
            self.stumps_.append((feature, cut, *scores))
            raw += np.where(left, *scores)
        return self

    def predict_proba(self, X: Any) -> Any:
        numbers = np.asarray(X, dtype=np.float64)
        raw = np.zeros(len(numbers))
        for feature, cut, left, right in self.stumps_:
            raw += np.where(numbers[:, feature] < cut, left, right)
        from scipy.special import expit

        positive = expit(raw)
        return np.column_stack([1.0 - positive, positive])

    def predict(self, X: Any) -> Any:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
