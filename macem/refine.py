"""Resets, pulls and swaps over axis profiles: read off a table, or asked of any oracle on grids."""

from __future__ import annotations

import numpy as np

from macem import kernel
from macem.kernel import F8, Axes, Beam, Plan, Problems, Profile, Records, TreeEnsemble, Weights
from macem.options import SearchOptions
from macem.search import MAX_QUERIES_AT_ONCE, Ask, Limits, Work

__all__ = ["batched", "on_table", "sensitivity_asked", "sensitivity_on_table"]

MAX_ROUNDS = 12  # outward rounds; inward rounds end by themselves
GRID_STEPS = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0])  # of the range, where no profile can be read
BLACK_BOX_WIDTH = 4  # states per outward round: a black box answers every move by a query


def on_table(
    work: Work,
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    options: SearchOptions,
    max_rounds: int = MAX_ROUNDS,
) -> None:
    """Refine on a table, whose axis profiles are exact; a single tree is solved exactly.

    With `max_rounds` 0 only inward, from the best that there is.
    """
    if table.tree.size == 2:
        kernel.solve_single_tree(table, axes, plan, weights, work.problems, work.best)
        return
    kernel.refine_rows(
        table,
        axes,
        plan,
        weights,
        work.problems,
        work.best,
        _beam(1, options.beam_width, plan.feature.size - 1),
        _profile(table, axes, plan),
        _moves(axes, plan),
        max_rounds,
    )


def sensitivity_on_table(problems: Problems, table: TreeEnsemble, axes: Axes, plan: Plan, weights: Weights) -> F8:
    """Per feature, the largest change in the goal's probability that moving it alone can cause, (P, d)."""
    sensitivity = np.zeros(problems.anchor.shape)
    profile, moves = _profile(table, axes, plan), _moves(axes, plan)
    kernel.sensitivity_rows(table, axes, plan, weights, problems, profile, moves, sensitivity)
    return sensitivity


def batched(work: Work, plan: Plan, weights: Weights, ask: Ask, limits: Limits) -> None:
    """Refine by asking an oracle: each round of all problems is one batch of grid moves."""
    n, d = work.problems.anchor.shape
    row = work.best.row
    beam = _beam(n, BLACK_BOX_WIDTH, d)
    room = kernel.records(kernel.MOVE, _most_grid_moves(plan))
    still = work.open
    for p in still:
        kernel.start_beam(plan, work.problems, weights, beam, p, p)
    while still.size:
        if limits.passed:
            row["exhausted"][still] = True
            return
        asked = []
        for p in still:
            for state in range(beam.slot["n_states"][p]):
                numbers = beam.numbers[p, state]
                n_moves = kernel.grid_moves(plan, weights, work.problems, p, numbers, row["cost"][p], GRID_STEPS, room)
                asked.append((p, state, room[: n_moves + 1].copy()))
        rows = np.repeat([p for p, _, _ in asked], [moves.size for _, _, moves in asked])
        numbers = np.concatenate([_moved(beam.numbers[p, state], moves) for p, state, moves in asked])
        margins, reached = np.empty(rows.size), np.empty(rows.size, bool)
        for first in range(0, rows.size, MAX_QUERIES_AT_ONCE):
            some = slice(first, first + MAX_QUERIES_AT_ONCE)
            answers = ask(numbers[some], rows[some])
            kernel.judge_rows(weights, work.problems, rows[some], answers, margins[some], reached[some])
        kernel.keep_rows(plan, weights, work.problems, work.best, rows, numbers, reached)
        at = 0
        for p, state, moves in asked:
            here = slice(at, at + moves.size - 1)
            moves["margin"][:-1], moves["reached"][:-1] = margins[here], reached[here]
            at += moves.size
            row["n_queries"][p] += moves.size
            kernel.absorb_moves(beam, p, state, row["cost"][p], moves, moves.size - 1, margins[at - 1])
        row["exhausted"][still] |= row["n_queries"][still] >= work.best.max_queries
        for p in still:
            kernel.next_states(plan, weights, work.problems, beam, p, p, work.best, MAX_ROUNDS)
        still = still[(beam.slot["n_states"][still] > 0) & ~row["exhausted"][still]]


def sensitivity_asked(problems: Problems, plan: Plan, weights: Weights, ask: Ask) -> F8:
    """`sensitivity_on_table` for any oracle, over a grid of each feature's range."""
    n, d = problems.anchor.shape
    sensitivity = np.zeros((n, d))
    room = kernel.records(kernel.MOVE, _most_grid_moves(plan))
    asked = []
    for p in range(n):
        n_moves = kernel.grid_moves(plan, weights, problems, p, problems.anchor[p], np.inf, GRID_STEPS, room)
        asked.append(room[: n_moves + 1].copy())
    if not asked:
        return sensitivity
    rows = np.repeat(np.arange(n), [moves.size for moves in asked])
    numbers = np.concatenate([_moved(problems.anchor[p], moves) for p, moves in enumerate(asked)])
    answers = np.concatenate(
        [
            ask(numbers[first : first + MAX_QUERIES_AT_ONCE], rows[first : first + MAX_QUERIES_AT_ONCE])
            for first in range(0, rows.size, MAX_QUERIES_AT_ONCE)
        ]
    )[np.arange(rows.size), problems.row["goal"][rows]]
    at = 0
    for p, moves in enumerate(asked):
        theirs = answers[at : at + moves.size]
        np.maximum.at(sensitivity[p], moves["feature"][:-1], np.abs(theirs[:-1] - theirs[-1]))
        at += moves.size
    return sensitivity


def _moved(state: F8, moves: Records) -> F8:
    """One row per move of a state, and last the state itself."""
    rows = np.repeat(state[None, :], moves.size, axis=0)
    rows[np.arange(moves.size - 1), moves["feature"][:-1]] = moves["number"][:-1]
    return rows


def _most_grid_moves(plan: Plan) -> int:
    return (plan.feature.size - 1) * max(kernel.MOST_LEVELS, 2 * GRID_STEPS.size + 4, kernel.PULLS) + 1


def _beam(n_slots: int, width: int, d: int) -> Beam:
    width -= width % len(kernel.TRADE_OFFS)
    return Beam(
        slot=kernel.records(kernel.SLOT, n_slots),
        state=kernel.records(kernel.STATE, (n_slots, width)),
        numbers=np.zeros((n_slots, width, d)),
        child=kernel.records(kernel.CHILD, (n_slots, width)),
    )


def _profile(table: TreeEnsemble, axes: Axes, plan: Plan) -> Profile:
    n_cells = axes.cut.size + 2 * plan.feature.size
    return Profile(
        step=np.zeros((n_cells, table.start.size)),
        entered=np.zeros(n_cells // 64 + 1, np.uint64),
        level=np.zeros((plan.level.size, table.start.size)),
    )


def _moves(axes: Axes, plan: Plan) -> Records:
    return kernel.records(kernel.MOVE, axes.cut.size + plan.feature.size + plan.level.size)
