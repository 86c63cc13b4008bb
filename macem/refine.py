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
MOST_LEVELS = 32  # levels of one feature that are asked of a black box
BLACK_BOX_WIDTH = 3  # states per outward round: a black box answers every move by a query


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


def batched(
    work: Work, plan: Plan, weights: Weights, ask: Ask, limits: Limits
) -> None:
    """Refine by asking an oracle: each round of all problems is one batch of grid moves."""
    n, d = work.problems.anchor.shape
    beam = _beam(n, BLACK_BOX_WIDTH, d)
    still = work.open
    for p in still:
        kernel.start_beam(plan, work.problems, weights, beam, p, p)
    while still.size:
        if limits.passed:
            work.best.row["exhausted"][still] = True
            return
        asked = [
            (p, state, *_grid_moves(plan, work, beam, int(p), state)) for p in still for state in range(beam.slot["n_states"][p])
        ]
        if not asked:
            return
        rows = np.concatenate([np.full(feature.size + 1, p) for p, _, feature, _ in asked])
        numbers = np.concatenate([_moved(beam.numbers[p, state], *move) for p, state, *move in asked])
        margins, reached = np.empty(rows.size), np.empty(rows.size, bool)
        for first in range(0, rows.size, MAX_QUERIES_AT_ONCE):
            some = slice(first, first + MAX_QUERIES_AT_ONCE)
            kernel.judge_rows(
                weights, work.problems, rows[some], ask(numbers[some], rows[some]), margins[some], reached[some]
            )
        costs = np.empty(rows.size)
        kernel.cost_rows(plan, weights, work.problems, rows, numbers, costs)
        kernel.keep_rows(plan, weights, work.problems, work.best, rows, numbers, reached)
        at = 0
        for p, state, feature, number in asked:
            here = slice(at + 1, at + 1 + feature.size)
            moves = kernel.records(
                kernel.MOVE,
                feature.size + 1,
                feature=[*feature, -1],
                number=[*number, 0.0],
                cost=[*costs[here], 0.0],
                margin=[*margins[here], 0.0],
                reached=[*reached[here], False],
            )
            work.best.row["n_queries"][p] += feature.size + 1
            kernel.absorb_moves(beam, p, state, work.best.row["cost"][p], moves, feature.size, margins[at])
            at += feature.size + 1
        for p in still:
            if work.best.row["n_queries"][p] >= work.best.max_queries:
                work.best.row["exhausted"][p] = True
            kernel.next_states(plan, weights, work.problems, beam, p, p, work.best, MAX_ROUNDS)
        still = np.array([p for p in still if beam.slot["n_states"][p] > 0 and not work.best.row["exhausted"][p]], dtype=np.int64)


def sensitivity_asked(problems: Problems, plan: Plan, weights: Weights, ask: Ask) -> F8:
    """`sensitivity_on_table` for any oracle, over a grid of each feature's range."""
    n, d = problems.anchor.shape
    rows, features, numbers = [], [], []
    for p in range(n):
        rows.append(p)
        features.append(-1)
        numbers.append(problems.anchor[p])
        for feature in np.flatnonzero(problems.cell["movable"][p]):
            for number in _grid(plan, problems, p, int(feature), problems.anchor[p, feature]):
                moved = problems.anchor[p].copy()
                moved[feature] = number
                rows.append(p)
                features.append(int(feature))
                numbers.append(moved)
    row, feature = np.array(rows, dtype=np.int64), np.array(features)
    sensitivity = np.zeros((n, d))
    if not n:
        return sensitivity
    table = np.array(numbers)
    goal = np.concatenate(
        [
            ask(table[first : first + MAX_QUERIES_AT_ONCE], row[first : first + MAX_QUERIES_AT_ONCE])
            for first in range(0, row.size, MAX_QUERIES_AT_ONCE)
        ]
    )[np.arange(row.size), problems.row["goal"][row]]
    own = goal[feature < 0]
    moved = feature >= 0
    np.maximum.at(sensitivity, (row[moved], feature[moved]), np.abs(goal[moved] - own[row[moved]]))
    return sensitivity


def _grid_moves(plan: Plan, work: Work, beam: Beam, p: int, state: int) -> tuple[np.ndarray, F8]:
    """Moves of one state that cost less than the best: features and numbers."""
    numbers = beam.numbers[p, state]
    features, moved = [], []
    for feature in np.flatnonzero(work.problems.cell["movable"][p]):
        for number in _grid(plan, work.problems, p, int(feature), numbers[feature]):
            features.append(int(feature))
            moved.append(number)
    feature, number = np.array(features, dtype=np.int64), np.array(moved)
    return feature, number


def _grid(plan: Plan, problems: Problems, p: int, feature: int, current: float) -> list[float]:
    """Values of one feature that are worth a query, without the current one."""
    reference = problems.cell["reference"][p, feature]
    if plan.feature["kind"][feature] > kernel.GRID:
        first = plan.feature["first_level"][feature]
        levels = np.flatnonzero(problems.allowed[p, first : plan.feature["first_level"][feature + 1]])[:MOST_LEVELS]
        return [float(level) for level in levels if level != current]
    if current != reference:  # between the reference and where it stands: a pull
        steps = reference + (current - reference) * np.arange(0, 9) / 9.0
    else:
        span = GRID_STEPS * plan.feature["scale"][feature]
        steps = np.concatenate([reference + span, reference - span])
        ends = problems.bound[p, feature].ravel()
        steps = np.concatenate([steps, ends[np.isfinite(ends)]])
    settled = [kernel.settle(plan, problems, p, feature, step) for step in steps]
    return sorted({number for number in settled if number != current}, key=lambda number: abs(number - reference))


def _moved(state: F8, feature: np.ndarray, number: F8) -> F8:
    """The state itself, then one row per move."""
    rows = np.repeat(state[None, :], feature.size + 1, axis=0)
    rows[np.arange(1, feature.size + 1), feature] = number
    return rows


def _beam(n_slots: int, width: int, d: int) -> Beam:
    width -= width % len(kernel.TRADE_OFFS)
    return Beam(
        slot=kernel.records(kernel.SLOT, n_slots),
        state=kernel.records(kernel.STATE, (n_slots, width)),
        numbers=np.zeros((n_slots, width, d)),
        child=kernel.records(kernel.CHILD, (n_slots, width)),
    )


def _profile(table: TreeEnsemble, axes: Axes, plan: Plan) -> Profile:
    n_cells = axes.cut.size + 2 * plan.feature.size - 1
    return Profile(
        step=np.zeros((n_cells, table.start.size)),
        entered=np.zeros(n_cells // 64 + 1, np.uint64),
        level=np.zeros((plan.level.size, table.start.size)),
    )


def _moves(axes: Axes, plan: Plan) -> Records:
    return kernel.records(kernel.MOVE, axes.cut.size + plan.feature.size + plan.level.size)
