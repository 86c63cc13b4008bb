"""Axis profiles and what is refined over them: against asking move by move, and plain against compiled."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macem import refine, search
from tests.test_search import Setting, setting


@pytest.fixture(scope="module", params=["fma", "ssa", "zero is missing"])
def forest(request: pytest.FixtureRequest) -> Setting:
    return setting(zero_is_missing=True) if request.param == "zero is missing" else setting(request.param)


def begun(s: Setting, max_queries: int | None = None) -> Any:
    work, _ = s.work(max_queries)
    search.begin(work, s.plan, s.weights, s.ask)
    return work


def test_moves_are_what_the_table_answers(forest: Setting, plain_kernel: ModuleType) -> None:
    s = forest
    scratch = refine.scratch_for(s.table, s.axes, s.plan)
    moves = scratch.moves
    n_all = 0
    for p in range(4):
        numbers = s.problems.anchor[p]
        n_moves, margin, reached = s.profile(plain_kernel, p, numbers, np.inf, scratch)
        n_all += n_moves
        moved = np.repeat(numbers[None], n_moves + 1, axis=0)
        moved[np.arange(n_moves), moves["feature"][:n_moves]] = moves["number"][:n_moves]
        rows = np.full(n_moves + 1, p)
        margins, verdicts, costs = np.empty(n_moves + 1), np.empty(n_moves + 1, bool), np.empty(n_moves + 1)
        plain_kernel.judge_rows(s.weights, s.problems, rows, s.ask(moved, rows), margins, verdicts)
        plain_kernel.cost_rows(s.plan, s.weights, s.problems, rows, moved, costs)
        assert_allclose(moves["margin"][:n_moves], margins[:-1], atol=1e-6)  # trees are added in another order
        assert_allclose(moves["cost"][:n_moves], costs[:-1], rtol=1e-12, atol=1e-12)
        assert (margin, reached) == (margins[-1], verdicts[-1])
        assert not scratch.step.any()
        assert not scratch.entered.any()
        assert not scratch.level.any()
    assert n_all > 20


@pytest.mark.parametrize("at_zero", [False, True])
def test_moves_from_and_to_a_zero_that_goes_another_way(plain_kernel: ModuleType, at_zero: bool) -> None:
    s = setting(zero_is_missing=True)
    scratch = refine.scratch_for(s.table, s.axes, s.plan)
    numbers = np.array([0.0, 0.0, 1.0]) if at_zero else np.array([4.0, -0.5, 1.0])
    s.problems.bound[0, :2] = [[[-3.0, 8.0], [1.0, 0.0]]] * 2
    s.problems.cell["movable"][0] = True
    n_moves, _, _ = s.profile(plain_kernel, 0, numbers, np.inf, scratch)
    moves = scratch.moves[:n_moves]
    moved = np.repeat(numbers[None], n_moves, axis=0)
    moved[np.arange(n_moves), moves["feature"]] = moves["number"]
    margins, verdicts = np.empty(n_moves), np.empty(n_moves, bool)
    rows = np.zeros(n_moves, np.int64)
    plain_kernel.judge_rows(s.weights, s.problems, rows, s.ask(moved, rows), margins, verdicts)
    assert_allclose(moves["margin"], margins, atol=1e-6)
    assert_array_equal(moves["reached"], verdicts)
    to_zero = moves[(moves["number"] == 0.0) & (moves["feature"] < 2)]
    assert to_zero.size == (0 if at_zero else 2)
    assert {-1.0, 1.0} <= set(np.sign(moves["number"][moves["feature"] == 1]))
    if not at_zero:  # where the table sends zero as it sends what is beside it, this could not fail
        beside = s.ask(np.array([[4.0, -1e-30, 1.0], [4.0, 0.0, 1.0], [4.0, 1e-30, 1.0]]), np.zeros(3, np.int64))[:, 0]
        assert beside[1] not in (beside[0], beside[2])


def test_refinement_in_both_modes(forest: Setting, kernel: ModuleType) -> None:
    s = forest
    compiled, work = begun(s), begun(s)
    refine.on_table(compiled, s.table, s.axes, s.plan, s.weights, s.options, s.scratch, refine.ON_TABLE)
    kernel.refine_rows(
        s.table,
        s.axes,
        s.plan,
        s.weights,
        s.problems,
        work.best,
        refine._beam(1, s.options.beam_width, s.plan.feature.size - 1),
        refine.scratch_for(s.table, s.axes, s.plan),
        refine.ON_TABLE,
        np.empty((0, 0)),
    )
    assert_array_equal(work.best.numbers, compiled.best.numbers)
    assert_array_equal(work.best.row["cost"], compiled.best.row["cost"])
    assert np.isfinite(work.best.row["cost"]).any()


@pytest.mark.parametrize("max_queries", [None, 15])
def test_search_in_both_modes(kernel: ModuleType, max_queries: int | None) -> None:
    s = setting(n_steps=3, n_directions=5, refine=False)
    compiled, work = begun(s, max_queries), begun(s, max_queries)
    search.compiled(compiled, s.table, s.axes, s.plan, s.weights, s.schedule)
    iterates = search._iterates(work, s.plan, s.schedule)
    kernel.search_rows(s.table, s.axes, s.plan, s.weights, s.problems, s.schedule, iterates, work.best)
    assert_array_equal(work.best.numbers, compiled.best.numbers)
    assert_array_equal(work.best.row["n_queries"], compiled.best.row["n_queries"])


def test_the_search_after_a_refinement_ends_with_its_first_find(kernel: ModuleType) -> None:
    works = []
    for refined in (True, False):
        s = setting(n_steps=12, n_directions=9, refine=refined)
        works.append(begun(s))
        iterates = search._iterates(works[-1], s.plan, s.schedule)
        kernel.search_rows(s.table, s.axes, s.plan, s.weights, s.problems, s.schedule, iterates, works[-1].best)
    first, whole = (work.best.row for work in works)
    searched = np.isfinite(first["cost"]) & ~first["done"]
    assert_array_equal(np.isfinite(first["cost"]), np.isfinite(whole["cost"]))
    assert (first["n_queries"][searched] <= whole["n_queries"][searched]).all()
    assert (first["n_queries"][searched] < whole["n_queries"][searched]).any()


def test_scores_of_rows_close_together_are_those_of_each(forest: Setting, plain_kernel: ModuleType) -> None:
    s = forest
    n = 12
    codes = s.problems.cell["own_code"][:n].copy()
    keys = np.empty(codes.shape, np.uint64)
    plain_kernel.keys_from_codes(s.table, codes, keys)
    nearby = plain_kernel.nearby_for(s.table, n, codes.shape[1])
    nearby.columns[:, :n] = keys.T
    apart = np.empty((n, s.table.start.size))
    plain_kernel.raw_scores_nearby(s.table, n, nearby)
    plain_kernel.raw_scores(s.table, codes, apart)
    assert_array_equal(nearby.raw[:, :n].T, apart)


def test_a_bound_leaves_out_dearer_moves_alone(forest: Setting, plain_kernel: ModuleType) -> None:
    s = forest
    scratch = refine.scratch_for(s.table, s.axes, s.plan)

    def listed(p: int, bound: float) -> set[tuple[Any, ...]]:
        n_moves, _, _ = s.profile(plain_kernel, p, s.problems.anchor[p], bound, scratch)
        names = ["feature", "cost", "reached"]
        return {tuple(move) for move in scratch.moves[names][:n_moves].tolist() if move[1] < bound}

    n_kept = 0
    for p in range(4):
        everything = listed(p, np.inf)
        bound = float(np.median([cost for _, cost, _ in everything]))
        near = {move for move in everything if move[1] < bound}
        n_kept += len(near)
        # cells beyond the bound are not told apart, so a bound may list a nearer number of a joined cell besides
        assert near <= listed(p, bound)
    assert n_kept > 5
