"""The search step of the kernel against the paper's equations."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from macem import SearchOptions, problem, search
from macem.features import Features
from macem.search import Limits, Work
from macem.strategies.encodings import FrequencyMap, SimplexSampling
from tests import naive

N_STEPS, N_DIRECTIONS = 20, 7
GENERATOR = np.random.default_rng(5)
BACKGROUND = GENERATOR.normal(size=(50, 4)) * [1.0, 10.0, 0.1, 3.0] + [0.0, 5.0, -1.0, 2.0]
SLOPES = np.array([1.5, -0.2, 8.0, 0.5])


def smooth(X: Any) -> Any:
    """A logistic model of two classes."""
    positive = 1.0 / (1.0 + np.exp(-(np.asarray(X) - BACKGROUND.mean(axis=0)) @ SLOPES))
    return np.column_stack([1.0 - positive, positive])


def posed(n: int, options: SearchOptions) -> tuple[Any, Any, Any, Any]:
    features = Features.fit(BACKGROUND)
    plan = FrequencyMap().fit(features).plan
    rows = BACKGROUND[:n]
    predicted = smooth(rows).argmax(axis=1)
    problems = problem.pose(
        features, plan, rows, rows, predicted, ("positive", "negative"), target=None, away_from_base=True
    )
    return features, plan, problems, problem.weights_from(options)


@pytest.mark.parametrize("score", ["log", "probability"])
def test_steps_are_the_papers(kernel: ModuleType, score: Any) -> None:
    options = SearchOptions(n_steps=N_STEPS, n_directions=N_DIRECTIONS, l1_weight=0.1, score=score, margin=0.2)
    features, plan, problems, weights = posed(4, options)
    schedule = search.schedule_for(plan, options, seed=3)
    work = Work.on(problems, Limits())
    n = problems.row.size
    iterates = kernel.Iterates(np.zeros((n, 1, 4)), np.zeros((n, 1, 4)))
    kernel.start_iterates(plan, problems, iterates)
    begin = iterates.point.copy()
    active, starts = np.arange(n), np.zeros(n, np.int64)
    for step in range(3):
        numbers = np.empty((n, N_DIRECTIONS + 1, 4))
        kernel.propose_rows(plan, problems, schedule, iterates, active, starts, step, numbers)
        rows = np.repeat(active, N_DIRECTIONS + 1)
        margins, reached = np.empty(rows.size), np.empty(rows.size, bool)
        kernel.judge_rows(weights, problems, rows, smooth(numbers.reshape(-1, 4)), margins, reached)
        kernel.absorb_rows(
            plan, weights, problems, schedule, iterates, work.best, active, starts, step, numbers,
            margins.reshape(n, -1), reached.reshape(n, -1), np.zeros((n, N_DIRECTIONS + 1)),
        )  # fmt: skip
    assert_array_equal(work.best.row["n_queries"], 3 * (N_DIRECTIONS + 1))

    directions = schedule.directions / np.linalg.norm(schedule.directions, axis=2, keepdims=True)
    low, high = (features.low - features.base) / features.scale, (features.high - features.base) / features.scale
    for p in range(n):
        positive, goal = p % 2 == 0, int(problems.row["goal"][p])
        z0 = (BACKGROUND[p // 2] - features.base) / features.scale

        def loss(z: Any, goal: int = goal, positive: bool = positive) -> float:
            probabilities = smooth((features.base + features.scale * z)[None])[0]
            lead = naive.margin(probabilities, goal, positive, score == "log")
            return options.loss_weights[0] * naive.hinge(lead, options.margin)

        expected = naive.minimise(
            loss,
            lambda z, z0=z0, positive=positive: naive.project(z, z0, positive, low, high),
            begin[p, 0],
            np.zeros(4) if positive else z0,
            directions,
            beta=options.l1_weight,
            radius=options.smoothing[0],
            step_size=options.step_size,
            n_steps=N_STEPS,
            n_taken=3,
        )
        assert_allclose(iterates.point[p, 0], expected, rtol=1e-4, atol=1e-5)  # queries are float32 values
        assert not np.array_equal(expected, begin[p, 0]) or positive


def test_costs_and_margins_are_the_papers(kernel: ModuleType) -> None:
    options = SearchOptions(l1_weight=0.7, margin=0.1)
    features, plan, problems, weights = posed(5, options)
    numbers = BACKGROUND[10:20].copy()
    rows = np.arange(10)
    costs, margins, reached = np.empty(10), np.empty(10), np.empty(10, bool)
    kernel.cost_rows(plan, weights, problems, rows, numbers, costs)
    probabilities = smooth(numbers)
    kernel.judge_rows(weights, problems, rows, probabilities, margins, reached)
    for p in rows:
        offset = (numbers[p] - problems.cell["reference"][p]) / features.scale
        assert costs[p] == pytest.approx(naive.elastic_net(offset, 0.7), rel=1e-12)
        goal, keep = int(problems.row["goal"][p]), bool(problems.row["keep"][p])
        assert margins[p] == pytest.approx(naive.margin(probabilities[p], goal, keep), rel=1e-12)
        assert reached[p] == (margins[p] >= 0.1)
    assert 0 < reached.sum() < 10


@pytest.mark.parametrize(("weights", "keep", "expected"), [([0.5, 0.5], 1, True), ([0.5, 0.5], 0, False)])
def test_ties_go_to_the_first_class(kernel: ModuleType, weights: list[float], keep: int, expected: bool) -> None:
    _, _, problems, terms = posed(1, SearchOptions())
    problems.row["goal"][0], problems.row["keep"][0] = 0, keep
    margins, reached = np.empty(1), np.empty(1, bool)
    kernel.judge_rows(terms, problems, np.zeros(1, np.int64), np.array([weights]), margins, reached)
    assert margins[0] == 0.0
    assert reached[0] == expected


@pytest.mark.parametrize("score", ["log", "probability"])
@pytest.mark.parametrize("label", [0, 1])
def test_margins_are_measured_from_a_cutoff(kernel: ModuleType, label: int, score: Any) -> None:
    cutoff = 0.2
    _, _, problems, weights = posed(1, SearchOptions(score=score))
    weights = weights._replace(cutoff_class=label, cutoff=cutoff)
    rows, margins, reached = np.zeros(4, np.int64), np.empty(4), np.empty(4, bool)
    share = np.array([0.05, np.nextafter(cutoff, 0.0), cutoff, 0.9])
    probabilities = np.column_stack([share, 1.0 - share])[:, :: 1 if label == 0 else -1].copy()
    meet = naive.margin(np.array([cutoff, 1.0 - cutoff]), 0, True, score == "log")  # where an ordinary margin would be
    for goal in (0, 1):
        for keep in (False, True):
            problems.row["goal"][0], problems.row["keep"][0] = goal, keep
            kernel.judge_rows(weights, problems, rows, probabilities, margins, reached)
            toward = 1.0 if (goal == label) == keep else -1.0
            expected = [naive.margin(one, goal, keep, score == "log") - toward * meet for one in probabilities]
            assert_allclose(margins, expected, rtol=1e-12, atol=1e-15)
            assert_array_equal(np.sign(np.round(margins, 12)), toward * np.array([-1.0, 0.0, 0.0, 1.0]))
            assert_array_equal(reached, (share >= cutoff) == (toward > 0))


def test_simplex_projection_is_the_nearest(plain_kernel: ModuleType) -> None:
    levels = np.repeat(["a", "b", "c", "d"], [5, 3, 2, 1])[:, None].astype(object)
    features = Features.fit(levels)
    plan = SimplexSampling().fit(features).plan
    numbers = np.array([[2.0]])
    problems = problem.pose(
        features, plan, numbers, numbers, np.zeros(1, np.int64), ("negative",), target=None, away_from_base=False
    )
    for point in GENERATOR.normal(size=(20, 4)):
        moved, corner = point.copy(), np.array([1.0, 0.0, 0.0, 0.0])
        plain_kernel.project(plan, problems, 0, moved, np.empty(4))
        assert_allclose(moved + corner, naive.project_on_simplex(point + corner), atol=1e-12)
