"""The input density in the choice of an example: the valid point of least cost - γ log p, by moves of one feature."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from macem import kernel
from macem.kernel import F8, I8, Plan, Problems, Weights
from macem.search import MAX_QUERIES_AT_ONCE, Ask, Limits, Work

__all__ = ["toward_density"]

MAX_ROUNDS = 25  # one move of each problem a round; most end after a few
STEPS = np.array([0.01, 0.03, 0.1, 0.2, 0.4, 0.7])  # of the scale, both ways, from the reference and from the point
LEAST_GAIN = 1e-9


def toward_density(
    work: Work, plan: Plan, weights: Weights, ask: Ask, log_density: Callable[[F8, I8], F8], limits: Limits
) -> None:
    """Move the best examples where the density is worth the distance, as long as they stay valid.

    Parameters
    ----------
    work : Work
        Its best examples and their costs are replaced; a problem whose anchor is the answer stays.
    plan, weights : Plan, Weights
    ask : callable
        Probabilities of numbers (n, d) proposed for problems (n,).
    log_density : callable
        Log-densities (n,) of the same.
    limits : Limits
    """
    best, row = work.best, work.best.row
    still = work.open[np.isfinite(row["cost"][work.open])]
    gain = np.zeros(row.size)  # γ log p of the best examples
    gain[still] = weights.density * log_density(best.numbers[still], still)
    for _ in range(MAX_ROUNDS):
        if not still.size:
            return
        if limits.passed:
            row["exhausted"][still] = True
            return
        asked = [_moved(best.numbers[p], list(_moves(plan, work.problems, p, best.numbers[p]))) for p in still]
        rows = np.repeat(still, [len(moved) for moved in asked])
        numbers, costs = np.concatenate(asked), np.empty(rows.size)
        kernel.cost_rows(plan, weights, work.problems, rows, numbers, costs)
        gains = weights.density * _in_batches(log_density, numbers, rows)
        better = costs - gains < row["cost"][rows] - gain[rows] - LEAST_GAIN
        numbers, rows, costs, gains = numbers[better], rows[better], costs[better], gains[better]
        row["n_queries"] += np.bincount(rows, minlength=row.size)
        row["exhausted"][still] |= row["n_queries"][still] >= best.max_queries
        reached = np.empty(rows.size, bool)
        if rows.size:
            answers = _in_batches(ask, numbers, rows)
            kernel.judge_rows(weights, work.problems, rows, answers, np.empty(rows.size), reached)
        valid = np.flatnonzero(reached)
        valid = valid[np.argsort((costs - gains)[valid], kind="stable")]
        still, first = np.unique(rows[valid], return_index=True)  # the best move of each problem
        chosen = valid[first]
        best.numbers[still], row["cost"][still], gain[still] = numbers[chosen], costs[chosen], gains[chosen]
        still = still[~row["exhausted"][still]]


def _moves(plan: Plan, problems: Problems, p: int, numbers: F8) -> Iterator[tuple[int, float]]:
    """Feasible places of one feature beside its present one, along a grid, or its levels."""
    for feature in np.flatnonzero(problems.cell["movable"][p]).tolist():
        coordinate = plan.feature[feature]
        if coordinate["kind"] > kernel.GRID:
            first, last = coordinate["first_level"], plan.feature[feature + 1]["first_level"]
            places = np.flatnonzero(problems.allowed[p, first:last]).astype(np.float64)
        else:
            centres = np.array([problems.cell["reference"][p, feature], numbers[feature]])
            steps = coordinate["scale"] * np.concatenate([-STEPS, [0.0], STEPS])
            near = (centres[:, None] + steps).ravel()
            places = np.unique([kernel.settle(plan, problems, p, feature, place) for place in near])
        for place in places[places != numbers[feature]]:
            yield feature, float(place)


def _moved(numbers: F8, moves: list[tuple[int, float]]) -> F8:
    """One row per move."""
    rows = np.repeat(numbers[None, :], len(moves), axis=0)
    for at, (feature, place) in enumerate(moves):
        rows[at, feature] = place
    return rows


def _in_batches(answer: Callable[[F8, I8], F8], numbers: F8, rows: I8) -> F8:
    """What a function answers, in batches of bounded size."""
    firsts = range(0, max(rows.size, 1), MAX_QUERIES_AT_ONCE)
    return np.concatenate(
        [answer(numbers[at : at + MAX_QUERIES_AT_ONCE], rows[at : at + MAX_QUERIES_AT_ONCE]) for at in firsts]
    )
