"""Who evaluates, in what order: `compiled` on a table, `lockstep` on any oracle; both take the same steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from macem import kernel
from macem.kernel import F8, I8, Axes, Best, Iterates, Plan, Problems, Schedule, TreeEnsemble, Weights
from macem.options import SearchOptions

__all__ = ["Ask", "Limits", "Work", "ask_table", "begin", "compiled", "draw", "lockstep", "schedule_for"]

MAX_DIRECTION_BYTES = 32 << 20  # directions are shared by all rows; beyond this, steps reuse blocks of them
UNLIMITED = int(np.iinfo(np.int64).max)  # queries
MAX_QUERIES_AT_ONCE = 1 << 16  # rows of one predict_proba call
MAX_DRAWS, MAX_DRAWN_CELLS = 1000, 1 << 20  # what is asked about for a problem without an example

Ask = Callable[[F8, I8], F8]
"""Probabilities (n, k) of numbers (n, d) that were proposed for problems (n,)."""


@dataclass(frozen=True)
class Limits:
    """When to stop: queries per problem, and a moment of `time.monotonic`."""

    max_queries: int | None = None
    deadline: float = float("inf")

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.deadline


@dataclass(frozen=True)
class Work:
    """The arrays of P problems under way."""

    problems: Problems
    best: Best

    @classmethod
    def on(cls, problems: Problems, limits: Limits) -> Work:
        """Nothing done yet."""
        n, d = problems.anchor.shape
        most = UNLIMITED if limits.max_queries is None else int(limits.max_queries)
        return cls(problems, Best(np.zeros((n, d)), kernel.records(kernel.FOUND, n, cost=np.inf), most))

    @property
    def open(self) -> I8:
        """Problems that may still be worked on."""
        return np.flatnonzero(~(self.best.row["done"] | self.best.row["exhausted"]))

    @property
    def found(self) -> I8:
        """Problems that have an example."""
        return np.flatnonzero(np.isfinite(self.best.row["cost"]))

    @property
    def lost(self) -> I8:
        """Problems that are open and have none."""
        return np.setdiff1d(self.open, self.found)

    @contextmanager
    def set_aside(self, rows: I8) -> Iterator[None]:
        """Take problems for done meanwhile."""
        done = self.best.row["done"][rows]
        self.best.row["done"][rows] = True
        yield
        self.best.row["done"][rows] = done

    def in_time(self, limits: Limits) -> Iterator[None]:
        """Let compiled code, which looks at no clock, work on the open problems: all at once, or one by one in time."""
        if limits.deadline == float("inf"):
            yield
            return
        for p in self.open:
            if limits.passed:
                self.best.row["exhausted"][self.open] = True
                return
            with self.set_aside(np.setdiff1d(self.open, p)):
                yield


def schedule_for(plan: Plan, options: SearchOptions, seed: int, n_samples: int = 1) -> Schedule:
    """Draw the random numbers of a search; they depend on the seed and the number of coordinates alone."""
    n_coordinates = int(plan.feature["first"][-1])
    block_bytes = 8 * options.n_directions * max(n_coordinates, 1)
    n_blocks = max(1, min(options.n_steps, MAX_DIRECTION_BYTES // block_bytes))
    random = np.random.default_rng(seed)
    return Schedule(
        start=kernel.records(
            kernel.START, len(options.smoothing), loss_weight=options.loss_weights, smoothing=options.smoothing
        ),
        n_steps=options.n_steps,
        n_directions=options.n_directions,
        n_samples=n_samples,
        step_size=float(options.step_size),
        # a search hardly ever finds what is nearer than the refinement's (benchmarks/beam.py counts it)
        patience=0 if options.refine else options.n_steps,
        directions=random.standard_normal((n_blocks, options.n_directions, n_coordinates)),
        uniforms=random.random((n_blocks, n_samples, plan.feature.size - 1)),
    )


def ask_table(table: TreeEnsemble, axes: Axes, plan: Plan, problems: Problems, numbers: F8, rows: I8) -> F8:
    """Probabilities (n, k) of numbers (n, d) that were proposed for the problems `rows`, read off a table."""
    codes, raw = np.empty(numbers.shape), np.empty((rows.size, table.start.size))
    probabilities = np.empty((rows.size, table.n_classes))
    kernel.code_rows(plan, axes.level_code, problems, rows, numbers, codes)
    kernel.raw_scores(table, codes, raw)
    kernel.link_rows(table, raw, probabilities)
    return probabilities


def begin(work: Work, plan: Plan, weights: Weights, ask: Ask) -> None:
    """Ask for the anchors: a problem whose anchor has the wanted class is solved, unless it was done before."""
    n = work.problems.row.size
    rows = np.arange(n)
    margins, reached = np.empty(n), np.empty(n, bool)
    kernel.judge_rows(weights, work.problems, rows, ask(work.problems.anchor, rows), margins, reached)
    costs = np.empty(n)
    kernel.cost_rows(plan, weights, work.problems, rows, work.problems.anchor, costs)
    row = work.best.row
    reached &= ~row["done"]
    row["n_queries"] += 1
    row["cost"][reached] = costs[reached]
    row["done"] |= reached
    row["proved"] |= reached
    work.best.numbers[reached] = work.problems.anchor[reached]


def compiled(work: Work, table: TreeEnsemble, axes: Axes, plan: Plan, weights: Weights, schedule: Schedule) -> None:
    """Search on a table, row by row, without leaving compiled code."""
    iterates = _iterates(work, plan, schedule)
    kernel.search_rows(table, axes, plan, weights, work.problems, schedule, iterates, work.best)


def lockstep(
    work: Work,
    plan: Plan,
    weights: Weights,
    schedule: Schedule,
    ask: Ask,
    limits: Limits,
    log_density: Callable[[F8, I8], F8] | None = None,
) -> None:
    """Search by asking an oracle: each step of all rows, kinds and starts is one batch."""
    iterates = _iterates(work, plan, schedule)
    n_queries = (schedule.n_directions + 1) * schedule.n_samples
    n_starts = schedule.start.size
    at_once = max(1, MAX_QUERIES_AT_ONCE // n_queries)
    room = np.empty((min(at_once, work.open.size * n_starts), n_queries, plan.feature.size - 1))
    for step in range(schedule.n_steps):
        row = work.best.row
        short = row["n_queries"] + n_queries * n_starts > work.best.max_queries
        row["exhausted"][(short | limits.passed) & ~row["done"]] = True
        still = work.open
        if not still.size:
            return
        active = np.repeat(still, n_starts)
        starts = np.tile(np.arange(n_starts), still.size)
        for first in range(0, active.size, at_once):
            some, their = active[first : first + at_once], starts[first : first + at_once]
            numbers = room[: some.size]
            kernel.propose_rows(plan, work.problems, schedule, iterates, some, their, step, numbers)
            rows = np.repeat(some, n_queries)
            flat = numbers.reshape(rows.size, -1)
            margins, reached = np.empty(rows.size), np.empty(rows.size, bool)
            kernel.judge_rows(weights, work.problems, rows, ask(flat, rows), margins, reached)
            densities = np.zeros(rows.size) if log_density is None else log_density(flat, rows)
            kernel.absorb_rows(
                plan,
                weights,
                work.problems,
                schedule,
                iterates,
                work.best,
                some,
                their,
                step,
                numbers,
                margins.reshape(some.size, n_queries),
                reached.reshape(some.size, n_queries),
                densities.reshape(some.size, n_queries),
            )


def draw(work: Work, plan: Plan, weights: Weights, seed: int, ask: Ask, limits: Limits) -> None:
    """Ask about the rows themselves, and points drawn from all that is feasible, for the problems without an example.

    Where a model answers the same all around, as rules of several conditions do, no gradient leads on and no single
    move gains: of 280 rows of such models on 2 to 5 columns a search lost 30 that have an example, and this none.
    """
    d = plan.feature.size - 1
    n_draws = max(1, min(MAX_DRAWS, MAX_DRAWN_CELLS // d))
    row, left = work.best.row, work.lost
    if not left.size:
        return
    uniforms = np.random.default_rng((seed, n_draws)).random((n_draws, d + 1, 2))
    numbers, margins, reached = np.empty((n_draws, d)), np.empty(n_draws), np.empty(n_draws, bool)
    for p in left:
        n = min(n_draws, work.best.max_queries - row["n_queries"][p])
        if limits.passed or n < 1:
            row["exhausted"][p] = True
            continue
        rows = np.full(n, p)
        kernel.draw_rows(plan, work.problems, p, uniforms, numbers)
        numbers[0] = work.problems.cell["own"][p]  # an example at worst, for a positive
        kernel.judge_rows(weights, work.problems, rows, ask(numbers[:n], rows), margins, reached)
        kernel.keep_rows(plan, weights, work.problems, work.best, rows, numbers, reached)
        row["n_queries"][p] += n
        row["exhausted"][p] = n < n_draws


def _iterates(work: Work, plan: Plan, schedule: Schedule) -> Iterates:
    shape = (work.problems.row.size, schedule.start.size, int(plan.feature["first"][-1]))
    iterates = Iterates(centre=np.zeros(shape), point=np.zeros(shape))
    kernel.start_iterates(plan, work.problems, iterates)
    return iterates
