"""The paper's metrics on a hand-made tree, whose values are worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import macem
from macem import metrics


@pytest.fixture(scope="module")
def case() -> tuple[DecisionTreeClassifier, np.ndarray, macem.Explainer, macem.results.Explanations]:
    """Class 1 iff the first of three columns exceeds 3.5; the medians are 2, 1 and 1."""
    X = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 1, 1], [3, 1, 0], [4, 1, 1], [5, 1, 2]])
    model = DecisionTreeClassifier(random_state=0).fit(X, X[:, 0] > 3.5)
    explainer = macem.Explainer(model, X)
    return model, X, explainer, explainer.explain(X[[3, 6]])


def test_classification(case) -> None:
    assert metrics.correct_classification(case[3]).tolist() == [100.0, 100.0]


def test_the_class_rests_on_the_first_feature(case) -> None:
    model, X, explainer, explanations = case
    for explanation in explanations:
        for contrast in explanation.contrasts:
            if contrast.found:
                assert metrics.ranked_features(contrast)[0] == 0
    # one feature on the path, and it is ranked first: 1 of 1
    assert metrics.correct_feature_importance(model, explainer, explanations, X)["positive"] == 100.0


def test_ranking_agrees_with_the_ablation(case) -> None:
    scores = metrics.correct_feature_ranking(case[2], case[3])
    # setting feature 0 alone back changes the class; the others change nothing: ranks (1, 2.5, 2.5) against (1, 2, 3)
    assert scores["negative"] == pytest.approx(np.sqrt(3) / 2)


def test_literal_ranking_leaves_ties_to_the_columns(case) -> None:
    positive = case[3][0].positive
    assert positive is not None
    assert metrics.ranked_features(positive, "literal").tolist() == [0, 1, 2]


def test_unknown_ranking_is_refused(case) -> None:
    contrast = case[3][0].positive
    assert contrast is not None
    with pytest.raises(macem.MacemError, match="ranking='best'"):
        metrics.ranked_features(contrast, "best")  # type: ignore[arg-type]


def test_a_model_without_a_path_is_refused(case) -> None:
    with pytest.raises(macem.MacemError, match="no decision_path"):
        metrics.correct_feature_importance(object(), case[2], case[3], case[1])
