"""Contrasts of a single tree are the exact optimum, under every rule; ensembles find wherever there is something."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from macem import Explainer, SearchOptions, Status
from tests.exact import exact_for

GENERATOR = np.random.default_rng(11)
N = 160
X = pd.DataFrame(
    {
        "count": GENERATOR.integers(0, 30, N),
        "price": np.round(GENERATOR.gamma(2.0, 3.0, N), 1),
        "weight": GENERATOR.normal(size=N),
        "code": GENERATOR.choice([1, 2, 5, 7], N, p=[0.5, 0.3, 0.15, 0.05]),
    }
)
Y = np.array(["low", "middle", "high"])[
    np.digitize(X["count"] / 10 + X["price"] / 6 + X["weight"] + (X["code"] == 5), [1.8, 3.2])
]

RULES: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "none": ({}, {}, None),
    "ordinary counterfactuals": ({}, {"away_from_base": False}, None),
    "frozen": ({"frozen": ["count", "code"]}, {}, None),
    "ranges": ({"ranges": {"count": (5, 20), "price": (None, 9.5)}}, {"away_from_base": False}, None),
    "directions": ({"directions": {"count": "increase", "weight": "decrease"}}, {"away_from_base": False}, None),
    "target": ({}, {"away_from_base": False}, "high"),
    "costs of change": ({}, {"change_cost": 0.5, "category_cost": 1.0, "l1_weight": 1.0}, None),
    "simplexes": ({"encoding": "ssa"}, {}, None),
    "simplexes and costs of change": ({"encoding": "ssa"}, {"change_cost": 0.5, "l1_weight": 1.0}, None),
    "bases": ({"base": {"count": 3, "code": 5, "price": 0.4}}, {}, None),
}


@pytest.fixture(scope="module")
def tree() -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=6, random_state=0).fit(X, Y)


@pytest.mark.parametrize("rules", RULES)
def test_contrasts_of_a_tree_are_exact(tree: DecisionTreeClassifier, rules: str) -> None:
    how, options, target = RULES[rules]
    explainer = Explainer(tree, X, categorical=["code"], options=SearchOptions(**options), **how)
    exact = exact_for(explainer, tree)
    goal = None if target is None else list(tree.classes_).index(target)
    rows = X.iloc[:25]
    n_found = 0
    explanations = explainer.explain(rows, target=target)
    for row, explanation in zip(rows.astype(object).itertuples(index=False), explanations, strict=True):
        for contrast in explanation.contrasts:
            if contrast.kind == "negative" and explanation.prediction == target:
                continue
            optimum = exact.solve(row, contrast.kind, goal)
            if optimum is None:
                assert contrast.status is Status.NONE_EXISTS
                continue
            n_found += 1
            assert contrast.status is Status.FOUND
            assert all(exact.feasible(f, row[f], value, contrast.kind) for f, value in enumerate(contrast.values))
            total = exact.total(row, tuple(contrast.values), contrast.kind)
            assert contrast.distance == pytest.approx(total, abs=1e-12)
            assert total == pytest.approx(optimum.cost, rel=1e-4, abs=1e-6)  # continuous values: one float32 step
            assert contrast.lower_bound == contrast.distance
    assert n_found > 25


def test_a_decimal_on_a_split_counts_as_scikit_learn_reads_it() -> None:
    n_on_splits = 0
    for seed in range(8):
        data = np.round(np.random.default_rng(seed).normal(size=(60, 2)), 1)
        tree = DecisionTreeClassifier(max_depth=5, random_state=0).fit(data, data[:, 0] * data[:, 1] > 0)
        explainer = Explainer(tree, data, options=SearchOptions(away_from_base=False, change_cost=0.0))
        features = explainer.features
        tenths = [
            np.arange(round(low * 10), round(high * 10) + 1) / 10
            for low, high in zip(features.low, features.high, strict=True)
        ]
        everything = np.array(list(itertools.product(*tenths)))
        predicted = tree.predict(everything)
        splits = tree.tree_.threshold[tree.tree_.feature >= 0]
        for row, explanation in zip(data[:10], explainer.explain(data[:10], kinds=["negative"]), strict=True):
            step = np.abs(everything - row) / features.scale
            costs = (explainer.options.l1_weight * step + step**2).sum(axis=1)
            nearest = costs[predicted != explanation.prediction].min()
            assert explanation.negative.distance == pytest.approx(nearest, rel=1e-9)
            assert explanation.negative.lower_bound == pytest.approx(nearest, rel=1e-9)
            moved = explanation.negative.values.to_numpy(float)
            n_on_splits += np.isin(moved.astype(np.float32), splits).any() and not np.isin(moved, splits).all()
    assert n_on_splits > 0


@pytest.mark.parametrize("rules", ["none", "ordinary counterfactuals", "costs of change"])
def test_the_beam_finds_wherever_a_contrast_exists(rules: str) -> None:
    """A forest that grew the same tree twice is searched and refined as every ensemble is."""
    how, options, _ = RULES[rules]
    twins = RandomForestClassifier(2, bootstrap=False, max_features=None, max_depth=6, random_state=0).fit(X, Y)
    first, second = twins.estimators_
    second.tree_ = first.tree_
    explainer = Explainer(twins, X, categorical=["code"], options=SearchOptions(**options), **how)
    exact = exact_for(explainer, first)
    rows = X.iloc[:25]
    for row, explanation in zip(rows.astype(object).itertuples(index=False), explainer.explain(rows), strict=True):
        for contrast in explanation.contrasts:
            optimum = exact.solve(row, contrast.kind)
            assert (contrast.status is Status.FOUND) == (optimum is not None)
            assert optimum is None or contrast.distance >= optimum.cost * (1.0 - 1e-9)


def test_a_single_question_suffices_where_the_base_keeps_the_class(tree: DecisionTreeClassifier) -> None:
    explainer = Explainer(tree, X, categorical=["code"])
    rows = X[tree.predict(X) == tree.predict(pd.DataFrame([explainer.features.base], columns=X.columns))[0]]
    assert len(rows) > 10
    for explanation in explainer.explain(rows, kinds=["positive"], max_queries=1):
        positive = explanation.positive
        assert positive is not None
        assert (positive.status, positive.n_changed, positive.n_queries) == (Status.FOUND, 0, 1)
        assert positive.lower_bound == 0.0
