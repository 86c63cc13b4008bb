"""Rows, features and options -> the arrays of the problems that the search solves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from macem import columns, kernel
from macem.features import Features
from macem.kernel import F8, I8, Plan, Problems, Weights
from macem.options import SearchOptions
from macem.oracle import Cutoff

__all__ = ["NEGATIVE", "POSITIVE", "free_problems", "pose", "select", "weights_from"]

POSITIVE = "positive"
NEGATIVE = "negative"


def weights_from(options: SearchOptions, cutoff: Cutoff | None = None) -> Weights:
    """The terms of the objective, as the kernel reads them."""
    label, threshold = (-1, 0.5) if cutoff is None else cutoff
    return Weights(
        l1=float(options.l1_weight),
        margin=float(options.margin),
        change=float(options.change_cost),
        category=-1.0 if options.category_cost is None else float(options.category_cost),
        density=float(options.density_weight),
        log_score=int(options.score == "log"),
        cutoff_class=label,
        cutoff=threshold,
    )


def pose(
    features: Features,
    plan: Plan,
    numbers: F8,
    codes: F8,
    predicted: I8,
    kinds: Sequence[str],
    *,
    target: int | None,
    away_from_base: bool,
) -> Problems:
    """Pose one problem per row and kind, rows outermost.

    Parameters
    ----------
    features : Features
    plan : Plan
    numbers, codes : ndarray of float64, shape (n, d)
        The rows, as numbers and as the compiled trees read them.
    predicted : ndarray of int, shape (n,)
        Class of each row, as a position.
    kinds : sequence of {"positive", "negative"}
    target : int or None
        The class that a negative is to reach; None: any other.
    away_from_base : bool
        Whether a negative is to be at least as far from the base values as its row.
    """
    n_rows, n_kinds = numbers.shape[0], len(kinds)
    own, codes = np.repeat(numbers, n_kinds, axis=0), np.repeat(codes, n_kinds, axis=0)
    silent = np.repeat(features.silent(numbers), n_kinds, axis=0)
    positive = np.array([kind == POSITIVE for kind in kinds] * n_rows, dtype=bool)
    goal = np.repeat(predicted, n_kinds)
    if target is not None:
        goal[~positive] = target
    problems = _unfilled(plan, goal, keep=positive | (target is not None))
    bound = problems.bound
    kernel.bound_rows(plan, features.rules, own, positive, away_from_base, bound)
    for feature, dtype in features.narrow:  # its cells are rounded, and the ends move inward by that much
        ends = bound[:, feature]
        kept = (ends == own[:, feature, None, None]) | np.isinf(ends)
        bound[:, feature] = np.where(kept, ends, columns.inward(ends, dtype))
    kernel.pose_rows(plan, features.rules, own, codes, silent, positive, away_from_base, problems)
    return problems


def free_problems(features: Features, plan: Plan, numbers: F8, codes: F8, goal: I8) -> Problems:
    """Problems whose every feature may move through its whole range, to see what a class rests on."""
    problems = _unfilled(plan, goal, keep=1)
    kernel.free_rows(plan, features.rules, numbers, codes, problems)
    return problems


def _unfilled(plan: Plan, goal: I8, keep: Any) -> Problems:
    """Problems with their goals set, and all else still to be filled."""
    n, d = goal.size, plan.feature.size - 1
    return Problems(
        cell=np.empty((n, d), kernel.CELL),
        row=kernel.records(kernel.GOAL, n, goal=goal, keep=keep),
        anchor=np.empty((n, d)),
        bound=np.empty((n, d, 2, 2)),
        place=np.empty((n, d, 2, 2)),
        allowed=np.empty((n, plan.level.size), bool),
    )


def select(problems: Problems, rows: I8) -> Problems:
    """Some of the problems."""
    return Problems(*(np.ascontiguousarray(field[rows]) for field in problems))
