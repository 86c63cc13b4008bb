"""Whole explanations through the kernel, as it runs: compiled, or plain where the JIT is off (CI measures that one)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.tree import DecisionTreeClassifier

import macem

SMALL = {"n_steps": 3, "n_directions": 4, "beam_width": 8}


def table() -> tuple[pd.DataFrame, np.ndarray]:
    """Sixty rows of a whole, a decimal, a continuous and a categorical column, and three classes."""
    random = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "whole": random.integers(0, 9, 60).astype(float),
            "decimal": random.normal(size=60).round(1),
            "continuous": random.normal(size=60),
            "category": random.integers(0, 4, 60).astype(float),
        }
    )
    score = X["whole"] / 4 + X["decimal"] + (X["category"] == 2)
    return X, np.digitize(score, [0.8, 2.0])


MODELS = {
    "tree": DecisionTreeClassifier(max_depth=4, random_state=0),
    "forest": RandomForestClassifier(4, max_depth=4, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=3, max_depth=2, random_state=0),
    "histogram": HistGradientBoostingClassifier(
        max_iter=3, min_samples_leaf=3, categorical_features=["category"], early_stopping=False
    ),
    "adaboost": AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=3, random_state=0),
    "votes": VotingClassifier(
        [("one", DecisionTreeClassifier(max_depth=2)), ("two", DecisionTreeClassifier(max_depth=3))], voting="hard"
    ),
}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((name, {}, {}) for name in MODELS),
    ("forest", {"refine": False}, {}),
    ("forest", {"away_from_base": False, "category_cost": 1.0, "change_cost": 0.1, "score": "probability"}, {}),
    ("forest", {"margin": 0.2}, {"encoding": "ssa"}),
    ("forest", {}, {"frozen": ["whole"], "directions": {"decimal": "increase"}}),
]


@pytest.mark.parametrize(("name", "options", "arguments"), CASES)
def test_what_is_found_holds(name: str, options: dict[str, Any], arguments: dict[str, Any]) -> None:
    X, y = table()
    model = MODELS[name].fit(X, y)
    settings = macem.SearchOptions(**{**SMALL, **options})
    explainer = macem.Explainer(model, X, categorical=["category"], options=settings, **arguments)
    check(model, explainer.explain(X.head(3)))


def test_a_single_tree_keeps_its_budget() -> None:
    X, y = table()
    explainer = macem.Explainer(MODELS["tree"].fit(X, y), X, categorical=["category"])
    short = explainer.explain(X.head(6), max_queries=1)
    contrasts = [contrast for one in short for contrast in one.contrasts]
    assert {contrast.n_queries for contrast in contrasts} == {1}
    assert macem.Status.OUT_OF_BUDGET in {contrast.status for contrast in contrasts}
    assert max(contrast.n_queries for one in explainer.explain(X.head(6)) for contrast in one.contrasts) > 1


def test_a_category_never_seen_stays_or_becomes_one_that_was() -> None:
    X, y = table()
    model = MODELS["tree"].fit(X, y)
    explainer = macem.Explainer(model, X, categorical=["category"], options=macem.SearchOptions(**SMALL))
    explanations = explainer.explain(X.head(6).assign(category=7.0))
    check(model, explanations)
    for explanation in explanations:
        for contrast in explanation.contrasts:
            assert not contrast.found or contrast.values["category"] in {0.0, 1.0, 2.0, 3.0, 7.0}


def test_a_function_is_asked_in_lockstep() -> None:
    X, y = table()
    model = RandomForestClassifier(3, max_depth=3, random_state=0).fit(X, y)
    explainer = macem.Explainer(
        lambda rows: model.predict_proba(rows), X, categorical=["category"], options=macem.SearchOptions(**SMALL)
    )
    check(model, explainer.explain(X.head(2)))


def check(model: Any, explanations: Any) -> None:
    """Every example found has the class that its kind asks for, by the model itself."""
    n_found = 0
    for explanation in explanations:
        assert explanation.error is None
        for contrast in explanation.contrasts:
            if contrast.found:
                n_found += 1
                label = model.predict(contrast.values.to_frame().T.astype(float))[0]
                assert (label == explanation.prediction) == (contrast.kind == "positive")
    assert n_found
