"""The adapter of toyboost, as its own distribution would bring it."""

from __future__ import annotations

from typing import Any

import numpy as np

from macem.oracle import BlackBoxOracle, TreeOracle
from macem.trees import Link, Member, Tree

__all__ = ["ToyBoostAdapter"]


class ToyBoostAdapter:
    """Reads ToyBoost models."""

    def oracle(self, model: Any) -> TreeOracle:
        """Turn each stump into a tree of three nodes."""
        member = Member(
            trees=[_tree(*stump) for stump in model.stumps_],
            n_outputs=1,
            link=Link.SIGMOID,
            start=np.zeros(1),
            classes=(0, 1),
        )
        return TreeOracle(
            members=[member],
            classes=model.classes_,
            live=BlackBoxOracle(model),
            read=_numbers,
            n_features=1 + max(feature for feature, *_ in model.stumps_),
            single=False,
        )


def _numbers(X: Any) -> Any:
    return np.asarray(X, dtype=np.float64)


def _tree(feature: int, cut: float, left: float, right: float) -> Tree:
    return Tree(
        feature=np.array([feature, -1, -1]),
        threshold=np.nextafter([cut, 0.0, 0.0], -np.inf),  # toyboost asks x < cut, a tree asks x <= threshold
        left=np.array([1, 0, 0]),
        right=np.array([2, 0, 0]),
        value=np.array([[0.0], [left], [right]]),
        missing_left=np.zeros(3, bool),
    )
