"""Resets, pulls and swaps over axis profiles: read off a table, or asked of any oracle on grids."""

from __future__ import annotations

import numpy as np

from macem import kernel
from macem.kernel import F8, I8, Axes, Beam, Plan, Problems, Records, Rounds, Scratch, TreeEnsemble, Weights
from macem.options import SearchOptions
from macem.search import MAX_QUERIES_AT_ONCE, Ask, Limits, Work

__all__ = [
    "HARD",
    "ON_TABLE",
    "batched",
    "on_table",
    "scratch_for",
    "sensitivity_asked",
    "sensitivity_on_table",
    "solves",
]

# Outward rounds; inward rounds end by themselves. A patience of 4 asks a twentieth less on tables, for 0.13 % of
# distance. What had no example before search and draws is worth more: forests of 4869 columns need 14 moves and more.
ON_TABLE = Rounds(unknown=12, most=48, patience=5)
HARD = Rounds(unknown=48, most=48, patience=48)
BLACK_BOX = Rounds(unknown=12, most=12, patience=12)
GRID_STEPS = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0])  # of the range, where no profile can be read
ROUNDS_SEEN = 64  # whose states are known again; hardly any problem has as many, inward rounds included
BLACK_BOX_WIDTH = 4  # states per outward round: a black box answers every move by a query


def on_table(
    work: Work,
    table: TreeEnsemble,
    axes: Axes,
    plan: Plan,
    weights: Weights,
    options: SearchOptions,
    scratch: Scratch,
    rounds: Rounds,
) -> None:
    """Refine on a table, whose axis profiles are exact; a single tree is solved exactly (`solves`)."""
    if solves(table):
        kernel.solve_single_tree(table, axes, plan, weights, work.problems, work.best, scratch)
        return
    if weights.margin == 0.0 and (table.member["link"][:-1] == kernel.IDENTITY).all():
        # trees that add up to probabilities: in their logarithm a state's distance to the class would say little
        weights = weights._replace(log_score=0)
    kernel.refine_rows(
        table,
        axes,
        plan,
        weights,
        work.problems,
        work.best,
        _beam(1, options.beam_width, plan.feature.size - 1),
        scratch,
        rounds,
        np.empty((0, 0)),
    )


def solves(table: TreeEnsemble) -> bool:
    """Whether a table's contrasts are solved exactly: a single tree's, unless zero goes another way than its cell.

    Where zero counts as missing, the numbers of a leaf are no interval: of 720 negatives of LightGBM's trees, 199
    bounds of the solver lay above a valid example.
    """
    return bool(table.tree.size == 2 and table.special < kernel.ZERO_MISSING)


def sensitivity_on_table(
    problems: Problems, table: TreeEnsemble, axes: Axes, plan: Plan, weights: Weights, scratch: Scratch
) -> F8:
    """Per feature, the largest change in the goal's probability that moving it alone can cause, (P, d)."""
    sensitivity = np.zeros(problems.anchor.shape)
    nothing = Work.on(problems, Limits()).best
    beam = _beam(1, len(kernel.TRADE_OFFS), plan.feature.size - 1)
    weights = weights._replace(log_score=0)  # no margin counts here, and logarithms take a twentieth of the time
    kernel.refine_rows(table, axes, plan, weights, problems, nothing, beam, scratch, ON_TABLE, sensitivity)
    return sensitivity


def batched(work: Work, plan: Plan, weights: Weights, ask: Ask, limits: Limits) -> None:
    """Refine by asking an oracle: each round of all problems is one batch of grid moves."""
    n, d = work.problems.anchor.shape
    row = work.best.row
    beam = _beam(n, BLACK_BOX_WIDTH, d)
    still = work.open
    kernel.start_beams(plan, work.problems, weights, beam, still)
    while still.size:
        if limits.passed:
            row["exhausted"][still] = True
            return
        n_states = beam.slot["n_states"][still]
        owners = np.repeat(still, n_states)
        states = np.concatenate([np.arange(count) for count in n_states])
        at, bounds = beam.numbers[owners, states], row["cost"][owners]
        moves, n_moves, numbers = _grid(plan, weights, work.problems, owners, at, bounds)
        rows = np.repeat(owners, n_moves)
        margins, reached = np.empty(rows.size), np.empty(rows.size, bool)
        for first in range(0, rows.size, MAX_QUERIES_AT_ONCE):
            some = slice(first, first + MAX_QUERIES_AT_ONCE)
            answers = ask(numbers[some], rows[some])
            kernel.judge_rows(weights, work.problems, rows[some], answers, margins[some], reached[some])
        kernel.keep_rows(plan, weights, work.problems, work.best, rows, numbers, reached)
        moves["margin"], moves["reached"] = margins, reached
        np.add.at(row["n_queries"], owners, n_moves)
        kernel.absorb_moves_of_states(beam, work.best, owners, states, moves, n_moves)
        row["exhausted"][still] |= row["n_queries"][still] >= work.best.max_queries
        kernel.next_states_of_rows(plan, weights, work.problems, beam, still, work.best, BLACK_BOX)
        still = still[(beam.slot["n_states"][still] > 0) & ~row["exhausted"][still]]


def sensitivity_asked(problems: Problems, plan: Plan, weights: Weights, ask: Ask) -> F8:
    """`sensitivity_on_table` for any oracle, over a grid of each feature's range."""
    n, d = problems.anchor.shape
    sensitivity = np.zeros((n, d))
    if not n:
        return sensitivity
    owners = np.arange(n)
    moves, n_moves, numbers = _grid(plan, weights, problems, owners, problems.anchor, np.full(n, np.inf))
    rows = np.repeat(owners, n_moves)
    answers = np.concatenate(
        [
            ask(numbers[first : first + MAX_QUERIES_AT_ONCE], rows[first : first + MAX_QUERIES_AT_ONCE])
            for first in range(0, rows.size, MAX_QUERIES_AT_ONCE)
        ]
    )[np.arange(rows.size), problems.row["goal"][rows]]
    still = np.repeat(answers[np.cumsum(n_moves) - 1], n_moves)  # the last of each is the state itself
    np.maximum.at(sensitivity, (rows, moves["feature"]), np.abs(answers - still))
    return sensitivity


def _grid(plan: Plan, weights: Weights, problems: Problems, rows: I8, states: F8, bounds: F8) -> tuple[Records, I8, F8]:
    """Moves of states of the problems `rows`, how many of each, and where they lead; the last of each leads nowhere."""
    moves = np.empty(rows.size * _most_grid_moves(plan), kernel.MOVE)
    n_moves = np.empty(rows.size, np.int64)
    n = kernel.grid_moves_of_states(plan, weights, problems, rows, states, bounds, GRID_STEPS, moves, n_moves)
    moves = moves[:n]
    numbers = np.repeat(states, n_moves, axis=0)
    numbers[np.arange(n), moves["feature"]] = moves["number"]
    return moves, n_moves, numbers


def _most_grid_moves(plan: Plan) -> int:
    return (plan.feature.size - 1) * max(kernel.MOST_LEVELS, 2 * GRID_STEPS.size + 4, kernel.PULLS) + 1


def _beam(n_slots: int, width: int, d: int) -> Beam:
    return Beam(
        slot=kernel.records(kernel.SLOT, n_slots),
        state=kernel.records(kernel.STATE, (n_slots, width)),
        numbers=np.zeros((n_slots, width, d)),
        child=kernel.records(kernel.CHILD, (n_slots, width)),
        grown=np.zeros((n_slots, width, d)),
        seen=np.zeros((n_slots, ROUNDS_SEEN * width), np.uint64),
    )


def scratch_for(table: TreeEnsemble, axes: Axes, plan: Plan) -> Scratch:
    """Room for one state at a time on a table."""
    d, n_outputs = plan.feature.size - 1, table.start.size
    n_cells = axes.cut.size + 2 * plan.feature.size
    n_moves = axes.cut.size + plan.feature.size + plan.level.size
    n_words = np.cumsum(axes.feature["n_words"])
    reach = kernel.records(kernel.REACH, d, first_word=n_words[:-1] - axes.feature["n_words"][:-1])
    return Scratch(
        codes=np.zeros((1, d)),
        keys=np.zeros((1, d), np.uint64),
        first=np.zeros(kernel.LANES, np.uint64),
        group=np.zeros((1, kernel.LANES), np.uint64),
        leaf=np.zeros(table.tree.size - 1, np.uint64),
        raw=np.zeros((1, n_outputs)),
        own=kernel.records(kernel.MOVE, 1),
        outputs=np.zeros(n_outputs + 1),
        probabilities=np.zeros(table.n_classes),
        reach=reach,
        reachable=np.zeros(n_words[-1], np.uint64),
        own_levels=np.zeros(n_words[-1], np.uint64),
        fork=np.zeros((kernel.LANES, table.depth + 1), np.uint64),
        n_forks=np.zeros(kernel.LANES, np.int64),
        # a batch that waits, what begins on eight paths, and what parts from a batch, at most once a level for each
        branch=kernel.records(
            kernel.BRANCH,
            kernel.BRANCHES * (1 + table.depth) + kernel.LANES * table.depth * max(1, *axes.feature["n_words"]),
        ),
        walked=kernel.records(kernel.BRANCH, kernel.BRANCHES),
        at=np.zeros(kernel.BRANCHES, np.uint64),
        ended=np.zeros(kernel.BRANCHES, np.uint64),
        step=np.zeros((n_cells, n_outputs)),
        entered=np.zeros(n_cells // 64 + 1, np.uint64),
        level=np.zeros((plan.level.size, n_outputs)),
        change=np.zeros(n_outputs),
        numbers=np.zeros(d),
        moves=kernel.records(kernel.MOVE, n_moves),
        scores=np.zeros((n_moves, n_outputs)),
    )
