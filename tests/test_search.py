"""Drivers of the search: the same steps on a table and by asking, within their budgets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.ensemble import RandomForestClassifier

from macem import SearchOptions, kernel, oracle_for, problem, refine, search
from macem.features import Features
from macem.search import Limits, Work
from macem.strategies.encodings import encoding_from
from macem.trees import Member, axes_of

GENERATOR = np.random.default_rng(2)
BACKGROUND = np.column_stack(
    [GENERATOR.integers(0, 20, 100), GENERATOR.normal(size=100), GENERATOR.choice(5, 100, p=[0.4, 0.3, 0.1, 0.1, 0.1])]
)
LABELS = (BACKGROUND[:, 0] / 10 + BACKGROUND[:, 1] + (BACKGROUND[:, 2] == 3) > 1.2).astype(int)


@dataclass(frozen=True)
class Setting:
    """Everything that a driver needs, on a forest that reads numbers and level codes."""

    options: SearchOptions
    encoding: Any
    plan: Any
    weights: Any
    table: Any
    axes: Any
    problems: Any

    @property
    def schedule(self) -> Any:
        return search.schedule_for(self.plan, self.options, 0, n_samples=getattr(self.encoding, "n_samples", 1))

    @property
    def scratch(self) -> Any:
        return refine.scratch_for(self.table, self.axes, self.plan)

    def work(self, max_queries: int | None = None) -> tuple[Work, Limits]:
        limits = Limits(max_queries=max_queries)
        return Work.on(self.problems, limits), limits

    def ask(self, numbers: Any, rows: Any) -> Any:
        return search.ask_table(self.table, self.axes, self.plan, self.problems, numbers, rows)

    def profile(self, kernel: Any, p: int, numbers: Any, bound: float, scratch: Any) -> tuple[int, float, bool]:
        """The axis profile of a state in `scratch.moves`: their number, and the state's own margin and verdict."""
        state = self.table, self.axes, self.plan, self.weights, self.problems, p, numbers
        n_moves = kernel.axis_moves(*state, bound, scratch)
        return n_moves, scratch.own[0]["margin"], scratch.own[0]["reached"]


def setting(encoding: str = "fma", *, zero_is_missing: bool = False, **options: Any) -> Setting:
    chosen = SearchOptions(**{"n_steps": 12, "n_directions": 9, **options})
    features = Features.fit(BACKGROUND, categorical=[2])
    oracle: Any = oracle_for(RandomForestClassifier(5, max_depth=4, random_state=0).fit(BACKGROUND, LABELS))
    if zero_is_missing:
        oracle = replace(oracle, members=[_with_zeros(member) for member in oracle.members])
    fitted: Any = encoding_from(encoding).fit(features)
    numbers = features.numbers(features.check(BACKGROUND[:6]))
    problems = problem.pose(
        features,
        fitted.plan,
        numbers,
        BACKGROUND[:6].copy(),
        oracle.predict_proba(BACKGROUND[:6]).argmax(axis=1),
        ("positive", "negative"),
        target=None,
        away_from_base=True,
    )
    levels = features.levels[2]
    assert levels is not None
    return Setting(
        chosen,
        fitted,
        fitted.plan,
        problem.weights_from(chosen),
        oracle.ensemble,
        axes_of(oracle.ensemble, fitted.plan, levels.astype(float)),
        problems,
    )


def _with_zeros(member: Member) -> Member:
    """A member that sends zero, and what is missing, another way than its comparisons at half of its nodes."""
    random = np.random.default_rng(3)
    trees = []
    for tree in member.trees:
        otherwise = (tree.feature >= 0) & (random.random(tree.feature.size) < 0.5)
        missing_left = np.where(otherwise, tree.threshold < 0.0, tree.missing_left)
        trees.append(replace(tree, zero_is_missing=otherwise, missing_left=missing_left))
    return replace(member, trees=trees)


@pytest.mark.parametrize("encoding", ["fma", "ssa"])
def test_lockstep_takes_the_steps_of_compiled_bit_for_bit(encoding: str) -> None:
    s = setting(encoding, refine=False, loss_weights=(10.0, 3.0), smoothing=(0.5, 0.1))
    together, limits = s.work()
    apart, _ = s.work()
    for work in (together, apart):
        search.begin(work, s.plan, s.weights, s.ask)
    search.lockstep(together, s.plan, s.weights, s.schedule, s.ask, limits)
    search.compiled(apart, s.table, s.axes, s.plan, s.weights, s.schedule)
    assert_array_equal(together.best.row["cost"], apart.best.row["cost"])
    assert_array_equal(together.best.numbers, apart.best.numbers)
    assert_array_equal(together.best.row["n_queries"], apart.best.row["n_queries"])
    assert np.isfinite(together.best.row["cost"]).sum() > 6


@pytest.mark.parametrize("driver", ["lockstep", "compiled"])
def test_query_budget_is_kept(driver: str) -> None:
    s = setting(refine=False)
    work, limits = s.work(max_queries=35)
    search.begin(work, s.plan, s.weights, s.ask)
    if driver == "lockstep":
        search.lockstep(work, s.plan, s.weights, s.schedule, s.ask, limits)
    else:
        search.compiled(work, s.table, s.axes, s.plan, s.weights, s.schedule)
    done = work.best.row["done"]
    assert_array_equal(work.best.row["n_queries"], np.where(done, 1, 31))  # the anchor, and three steps of ten
    assert_array_equal(work.best.row["exhausted"], ~done)


def test_deadline_ends_lockstep_before_its_first_question() -> None:
    s = setting()
    limits = Limits(deadline=-np.inf)
    work = Work.on(s.problems, limits)
    search.begin(work, s.plan, s.weights, s.ask)
    search.lockstep(work, s.plan, s.weights, s.schedule, s.ask, limits)
    assert (work.best.row["n_queries"] == 1).all()
    assert_array_equal(work.best.row["exhausted"], ~work.best.row["done"])
    assert work.open.size == 0


class TwoProblems(Limits):
    """A clock that runs out when it has been looked at twice."""

    @property
    def passed(self) -> bool:
        looks = vars(self).setdefault("looks", [])
        looks.append(None)
        return len(looks) > 2


def test_compiled_code_is_stopped_between_problems() -> None:
    s = setting()
    whole, _ = s.work()
    work, begun = s.work()[0], []
    for _ in work.in_time(TwoProblems(deadline=0.0)):
        begun.append(work.open)
        refine.on_table(work, s.table, s.axes, s.plan, s.weights, s.options, s.scratch, refine.ON_TABLE)
    assert_array_equal(begun, [[0], [1]])
    for _ in whole.in_time(Limits()):
        refine.on_table(whole, s.table, s.axes, s.plan, s.weights, s.options, s.scratch, refine.ON_TABLE)
    assert_array_equal(work.best.row["cost"][:2], whole.best.row["cost"][:2])
    assert np.isinf(work.best.row["cost"][2:]).all()
    assert work.best.row["exhausted"][2:].all()
    assert not whole.best.row["exhausted"].any()


def test_problems_that_are_done_are_not_begun() -> None:
    s = setting()
    work, _ = s.work()
    work.best.row["done"] = True
    search.begin(work, s.plan, s.weights, s.ask)
    assert np.isinf(work.best.row["cost"]).all()


def test_schedule_depends_on_the_seed_alone() -> None:
    s = setting()
    one, again = (search.schedule_for(s.plan, s.options, 4) for _ in range(2))
    assert_array_equal(one.directions, again.directions)
    assert not np.array_equal(one.directions, search.schedule_for(s.plan, s.options, 5).directions)


def test_first_profile_tells_what_the_anchor_is() -> None:
    s = setting()
    begun, _ = s.work()
    fresh, _ = s.work()
    search.begin(begun, s.plan, s.weights, s.ask)
    solved = begun.best.row["done"].copy()
    assert 0 < solved.sum() < solved.size
    for work in (begun, fresh):
        refine.on_table(work, s.table, s.axes, s.plan, s.weights, s.options, s.scratch, refine.ON_TABLE)
    for field in ("cost", "done", "proved"):
        assert_array_equal(begun.best.row[field], fresh.best.row[field])
    assert_array_equal(begun.best.numbers, fresh.best.numbers)
    assert_array_equal(begun.best.row["n_queries"] - fresh.best.row["n_queries"], np.where(solved, 0, 1))


def feasible(s: Setting, p: int, numbers: Any) -> bool:
    """Whether numbers are the anchor's where nothing may move, and else within the bounds or among the levels."""
    for feature, number in enumerate(numbers):
        levels = s.plan.feature["first_level"][feature : feature + 2]
        if not s.problems.cell["movable"][p, feature]:
            holds = number == s.problems.anchor[p, feature]
        elif levels[0] < levels[1]:
            holds = s.problems.allowed[p, levels[0] + int(number)]
        else:
            holds = any(low <= number <= high for low, high in s.problems.bound[p, feature])
        if not holds:
            return False
    return True


@pytest.mark.parametrize("encoding", ["fma", "ssa"])
def test_what_is_drawn_is_feasible_and_lies_everywhere(encoding: str) -> None:
    s = setting(encoding)
    numbers = np.empty((300, 3))
    for p in range(len(s.problems.row)):
        kernel.draw_rows(s.plan, s.problems, p, np.random.default_rng(p).random((300, 4, 2)), numbers)
        assert all(feasible(s, p, drawn) for drawn in numbers)
        moved = (numbers != s.problems.anchor[p]).any(axis=0)
        assert_array_equal(moved, s.problems.cell["movable"][p])
    assert len(np.unique(numbers, axis=0)) > 100  # of the last, a negative


def test_what_a_search_left_is_drawn_within_the_budget() -> None:
    s = setting()
    left = np.arange(s.problems.row.size) % 2 == 1
    for most in (search.MAX_DRAWS + 1, search.MAX_DRAWS, search.MAX_DRAWS - 1):
        work, limits = s.work(max_queries=most)
        work.best.row["done"][::2] = True
        search.draw(work, s.plan, s.weights, 0, s.ask, limits)
        row = work.best.row
        assert_array_equal(row["n_queries"], np.where(left, min(most, search.MAX_DRAWS), 0))
        assert_array_equal(row["exhausted"], left & (most < search.MAX_DRAWS))
        assert np.isinf(row["cost"][~left]).all()
        assert np.isfinite(row["cost"][left]).any()
    work, limits = s.work(max_queries=1)
    search.draw(work, s.plan, s.weights, 0, s.ask, limits)
    assert_array_equal(work.best.row["n_queries"], 1)
    assert_array_equal(work.found, np.flatnonzero(~left))  # the rows themselves, which are positives
    search.draw(work, s.plan, s.weights, 0, s.ask, limits)
    assert_array_equal(work.best.row["n_queries"], 1)
    work = Work.on(s.problems, Limits(deadline=-np.inf))
    search.draw(work, s.plan, s.weights, 0, s.ask, Limits(deadline=-np.inf))
    assert not work.best.row["n_queries"].any()
    assert work.best.row["exhausted"].all()


@pytest.mark.parametrize("path", ["table", "asked"])
def test_refinement_only_improves(path: str) -> None:
    s = setting()
    work, limits = s.work()
    search.begin(work, s.plan, s.weights, s.ask)
    search.lockstep(work, s.plan, s.weights, s.schedule, s.ask, limits)
    before = work.best.row["cost"].copy()
    if path == "table":
        refine.on_table(work, s.table, s.axes, s.plan, s.weights, s.options, s.scratch, refine.ON_TABLE)
    else:
        refine.batched(work, s.plan, s.weights, s.ask, limits)
    after = work.best.row["cost"]
    assert (after <= before).all()
    assert (after < before).any()
    found = np.flatnonzero(np.isfinite(after))
    margins, reached, costs = np.empty(found.size), np.empty(found.size, bool), np.empty(found.size)
    numbers = np.ascontiguousarray(work.best.numbers[found])
    kernel.judge_rows(s.weights, s.problems, found, s.ask(numbers, found), margins, reached)
    kernel.cost_rows(s.plan, s.weights, s.problems, found, numbers, costs)
    assert reached.all()
    assert_array_equal(costs, after[found])


def test_sensitivity_is_what_moving_one_feature_can_cause() -> None:
    s = setting()
    features = Features.fit(BACKGROUND, categorical=[2])
    numbers = np.ascontiguousarray(s.problems.cell["own"][::2])
    codes = np.ascontiguousarray(s.problems.cell["own_code"][::2])
    goal = s.problems.row["goal"][::2]
    free = problem.free_problems(features, s.plan, numbers, codes, goal)
    sensitivity = refine.sensitivity_on_table(free, s.table, s.axes, s.plan, s.weights, s.scratch)

    def ask(asked: Any, rows: Any) -> Any:
        return search.ask_table(s.table, s.axes, s.plan, free, asked, rows)

    for p in range(len(numbers)):
        own = ask(numbers[[p]], np.array([p]))[0, goal[p]]
        for feature in range(3):
            levels = feature == 2
            values = np.arange(5.0) if levels else np.linspace(features.low[feature], features.high[feature], 2001)
            moved = np.repeat(numbers[[p]], values.size, axis=0)
            moved[:, feature] = values if feature != 0 else np.round(values)
            change = np.abs(ask(moved, np.full(values.size, p))[:, goal[p]] - own).max()
            assert sensitivity[p, feature] == pytest.approx(change, abs=1e-12)
    asked = refine.sensitivity_asked(free, s.plan, s.weights, ask)
    assert (asked <= sensitivity + 1e-12).all()
    assert asked.max() > 0.0
