"""Problems: every feasible value obeys every rule, and the row's own value can always be reached."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from macem import kernel, problem
from macem.features import Features
from macem.strategies.encodings import FrequencyMap

KINDS = ("positive", "negative")


def posed(features: Features, numbers: Any, *, away: bool = True, kinds: tuple[str, ...] = KINDS) -> Any:
    """Problems of some rows, and their plan."""
    plan = FrequencyMap().fit(features).plan
    numbers = np.atleast_2d(np.asarray(numbers, dtype=np.float64))
    predicted = np.zeros(len(numbers), np.int64)
    problems = problem.pose(features, plan, numbers, numbers, predicted, kinds, target=None, away_from_base=away)
    return plan, problems


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_ends_of_intervals_are_numbers_of_a_narrow_column(dtype: str) -> None:
    X = pd.DataFrame({"x": np.random.default_rng(0).normal(size=50).astype(dtype)})
    features = Features.fit(X, ranges={"x": (-0.7001, 0.7001)})
    numbers = features.numbers(X)
    _, problems = posed(features, numbers)
    ends = problems.bound[np.isfinite(problems.bound)]
    assert_array_equal(ends.astype(dtype).astype(np.float64), ends)
    base = features.base[0]
    assert float(np.dtype(dtype).type(base)) == base
    low, high = problems.bound[1::2, 0, :, 0], problems.bound[1::2, 0, :, 1]
    near = np.where(low > base, low, high)[low <= high]
    farther = np.abs(near - base) >= np.repeat(np.abs(numbers - base), 2, axis=1)[low <= high]
    assert farther.all()


decimals_and_cells = st.integers(0, 3).flatmap(
    lambda decimals: st.tuples(
        st.just(decimals),
        st.lists(st.integers(-5000, 5000), min_size=3, max_size=12, unique=True),
        st.integers(-9000, 9000),
        st.integers(-9000, 9000),
    )
)


@settings(deadline=None, max_examples=150)
@given(decimals_and_cells, st.booleans(), st.sampled_from([None, "increase", "decrease"]))
@example((1, [0, 10, 250], 1, 0), False, None)  # a row beside the background's grid
def test_settled_numbers_obey_every_rule(drawn: Any, away: bool, direction: str | None) -> None:
    decimals, background, own, wish = drawn
    step = 10.0**decimals
    column = np.array(background) / step
    own, wish = own / step, wish / step
    features = Features.fit(column[:, None], directions={0: direction} if direction else None)
    plan, problems = posed(features, [own], away=away)
    base, low, high = features.base[0], features.low[0], features.high[0]
    for p, kind in enumerate(KINDS):
        for number in (wish, own, base, 2.0 * base - own, low, high):
            settled = kernel.settle(plan, problems, p, 0, number)
            if settled == own:
                continue
            assert low <= settled <= high
            assert settled == round(settled, int(features.decimals[0]))
            assert direction is None or (settled - own) * (1 if direction == "increase" else -1) >= 0.0
            if kind == "positive":
                assert abs(settled - base) <= abs(own - base)
            else:
                assert not away or abs(settled - base) >= abs(own - base)
        assert kernel.settle(plan, problems, p, 0, own) == own


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=3, max_size=8, unique=True),
    st.floats(-2e6, 2e6, allow_subnormal=False),
    st.booleans(),
)
def test_intervals_obey_every_rule(background: list[float], own: float, away: bool) -> None:
    features = Features.fit(np.array(background)[:, None])
    _, problems = posed(features, [own], away=away)
    base = features.base[0]
    for p, kind in enumerate(KINDS):
        reachable = False
        for low, high in problems.bound[p, 0]:
            if low > high:
                continue
            reachable |= bool(low <= own <= high)
            for end in (low, high):
                if end == own:
                    continue
                assert features.low[0] <= end <= features.high[0]
                if kind == "positive":
                    assert abs(end - base) <= abs(own - base)
                elif away:
                    assert abs(end - base) >= abs(own - base)
            if kind == "negative" and away and low < base < high:
                assert own == base
        assert reachable


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(-1, 5), st.booleans())
def test_levels_obey_the_base_rule(counts: list[int], own: int, away: bool) -> None:
    column = np.repeat([f"level {at}" for at in range(len(counts))], counts)
    features = Features.fit(pd.DataFrame({"level": column}))
    own = min(own, len(counts) - 1)
    plan, problems = posed(features, [own], away=away)
    places = np.abs(plan.level["place"])
    radius = places[own] if own >= 0 else abs(plan.feature["unseen_place"][0])
    assert_array_equal(problems.allowed[0], places <= radius)
    assert_array_equal(problems.allowed[1], (places >= radius) if away else np.ones(len(counts), bool))


def test_row_outside_the_range_keeps_its_value() -> None:
    features = Features.fit(np.array([[0.0], [2.0], [4.0]]), ranges={0: (1, 3)})
    plan, problems = posed(features, [9.0])
    for p in range(2):
        assert kernel.settle(plan, problems, p, 0, 9.0) == 9.0
    assert kernel.settle(plan, problems, 0, 0, 5.0) == 3.0


def test_anchor_is_the_feasible_number_nearest_to_the_reference() -> None:
    features = Features.fit(np.array([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]), ranges={0: (0, 1)}, base={0: 1}, frozen=[1])
    _, problems = posed(features, [0.0, 4.0])
    assert_array_equal(problems.anchor, [[1.0, 4.0], [0.0, 4.0]])
    assert_array_equal(problems.cell["movable"][:, 1], False)


@pytest.mark.parametrize("cell", [np.nan, -9.0])
def test_cell_without_information_is_held(cell: float) -> None:
    features = Features.fit(np.array([[-9.0], [1.0], [2.0], [3.0]]), special_values={0: [-9]})
    _, problems = posed(features, [cell])
    assert not problems.cell["movable"].any()
    assert_array_equal(problems.anchor, [[cell], [cell]])
    assert_array_equal(problems.cell["reference"], [[cell], [cell]])


def test_target_is_a_goal_to_keep() -> None:
    features = Features.fit(np.array([[0.0], [1.0], [2.0]]))
    plan = FrequencyMap().fit(features).plan
    numbers = np.array([[1.0]])
    problems = problem.pose(features, plan, numbers, numbers, np.array([1]), KINDS, target=2, away_from_base=True)
    assert_array_equal(problems.row["goal"], [1, 2])
    assert_array_equal(problems.row["keep"], [1, 1])


def test_select_keeps_some_problems() -> None:
    features = Features.fit(np.array([[0.0], [1.0], [2.0]]))
    _, problems = posed(features, [[0.0], [1.0]])
    some = problem.select(problems, np.array([1, 2]))
    assert_array_equal(some.anchor, problems.anchor[[1, 2]])
    assert some.bound.flags.c_contiguous
