"""The paper's metrics on a hand-made tree, whose values are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import macem
from macem import metrics
from macem.results import Contrast, Explanations

# Class 1 iff the first of three columns exceeds 3.5. The medians, which are the base values, are 2, 1 and 1.
X = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 1, 1], [3, 1, 0], [4, 1, 1], [5, 1, 2]])
ROWS = X[[2, 6]]  # (2, 2, 2) of class 0 and (5, 1, 2) of class 1


@pytest.fixture(scope="module")
def model() -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0).fit(X, X[:, 0] > 3.5)


@pytest.fixture(scope="module")
def explainer(model) -> macem.Explainer:
    return macem.Explainer(model, X)


@pytest.fixture(scope="module")
def explanations(explainer) -> Explanations:
    """Row 0: positive (2, 1, 1), the base, and negative (4, 2, 2). Row 1: positive (4, 1, 1), and no negative."""
    return explainer.explain(ROWS)


def with_keys(contrast: Contrast, importance: list[float], sensitivity: list[float]) -> Contrast:
    return replace(contrast, importance=pd.Series(importance), sensitivity=pd.Series(sensitivity))


def test_the_contrasts_are_those_worked_out(explanations) -> None:
    assert explanations[0].positive.values.tolist() == [2, 1, 1]
    assert explanations[0].negative.values.tolist() == [4, 2, 2]
    assert explanations[1].positive.values.tolist() == [4, 1, 1]
    assert not explanations[1].negative.found  # class 0 lies nearer to the base, or below the range


def test_classification_leaves_out_what_was_not_found(explanations) -> None:
    scores = metrics.correct_classification(explanations)
    assert scores["positive"].tolist() == [100.0, 100.0]
    assert scores["negative"].tolist() == pytest.approx([100.0, np.nan], nan_ok=True)


def test_ranking_agrees_with_the_ablation(explainer, explanations) -> None:
    scores = metrics.correct_feature_ranking(explainer, explanations)
    # Nothing can be ablated of the base itself. The others rest on the first feature: ranks (3, 1.5, 1.5) in both.
    assert scores["positive"].tolist() == pytest.approx([np.nan, 1.0], nan_ok=True)
    assert scores["negative"].tolist() == pytest.approx([1.0, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("importance", "sensitivity", "by_sensitivity", "literal"),
    [
        ([1, 0, 0], [0, 0, 0], 1.0, 1.0),
        # ranks (3, 2, 1) against (3, 1.5, 1.5): the deviations are (1, 0, -1) and (1, -0.5, -0.5)
        ([1, 0, 0], [0, 2, 1], 1.5 / np.sqrt(2 * 1.5), 1.0),
        ([0, 0, 1], [0, 0, 0], -0.5, -0.5),
        ([0, 0, 0], [1, 0, 0], 1.0, 0.0),  # a ranking of equals says nothing
    ],
)
def test_ties_of_importance(explainer, explanations, importance, sensitivity, by_sensitivity, literal) -> None:
    given = replace(
        explanations[0], positive=None, negative=with_keys(explanations[0].negative, importance, sensitivity)
    )
    for ranking, expected in (("sensitivity", by_sensitivity), ("literal", literal)):
        scores = metrics.correct_feature_ranking(explainer, Explanations([given]), ranking)
        assert scores["negative"].tolist() == pytest.approx([expected])


@pytest.mark.parametrize(
    ("importance", "sensitivity", "k", "expected"),
    [
        ([0, 1, 2], [0, 0, 0], 3, -1.5 / np.sqrt(3)),  # ranks (1, 2, 3) against drops (3, 1.5, 1.5)
        ([0, 1, 2], [0, 0, 0], 2, 0.0),  # neither of the first two has an effect, the other has
        ([1, 0, 0], [0, 2, 1], 2, 1.0),
        ([1, 2, 0], [0, 0, 0], 2, -1.0),
        ([1, 0, 0], [0, 2, 1], 1, np.nan),  # one feature has no rank
        ([1, 0, 0], [0, 2, 1], np.nan, np.nan),
    ],
)
def test_ranking_of_the_first_k(explainer, explanations, importance, sensitivity, k, expected) -> None:
    given = replace(
        explanations[0], positive=None, negative=with_keys(explanations[0].negative, importance, sensitivity)
    )
    sizes = pd.DataFrame([[3, k]], columns=["positive", "negative"])
    scores = metrics.correct_feature_ranking(explainer, Explanations([given]), k=sizes)
    assert scores["negative"].tolist() == pytest.approx([expected], nan_ok=True)


def test_path_lengths_are_those_of_the_ideals(model, explainer, explanations) -> None:
    lengths = metrics.ideal_features(model, explainer, explanations, X).map(len)
    assert lengths.index.tolist() == [one.index for one in explanations]
    assert lengths["positive"].tolist() == [1, 1]  # one feature on any path of the tree
    assert lengths["negative"].tolist() == [1, 0]  # row 1 has no ideal negative
    deep = DecisionTreeClassifier(random_state=0).fit(X, 2 * (X[:, 0] > 3.5) + (X[:, 1] > 1.5))
    longer = metrics.ideal_features(deep, explainer, explanations, X).map(len)
    assert longer["positive"].tolist() == [2, 1]  # left of its root the second column is asked, too


def test_importance_of_a_tree(model, explainer, explanations) -> None:
    scores = metrics.correct_feature_importance(model, explainer, explanations, X)
    known = metrics.ideal_features(model, explainer, explanations, X)
    assert scores.equals(metrics.correct_feature_importance(model, explainer, explanations, X, ideals=known))
    # one feature on the path, and it is ranked first: 1 of 1
    assert scores["positive"].tolist() == [100.0, 100.0]
    assert scores["negative"].tolist() == pytest.approx([100.0, np.nan], nan_ok=True)
    wrong = replace(explanations[0], positive=None, negative=with_keys(explanations[0].negative, [0, 1, 0], [1, 0, 0]))
    scores = metrics.correct_feature_importance(model, explainer, Explanations([wrong]), X)
    assert scores["negative"].tolist() == [0.0]


def test_ties_of_importance_go_to_the_first_column(explanations) -> None:
    contrast = with_keys(explanations[0].positive, [0, 0, 2, 0], [0, 1, 0, 3])
    assert metrics.ranked_features(contrast).tolist() == [2, 3, 1, 0]
    assert metrics.ranked_features(contrast, "literal").tolist() == [2, 0, 1, 3]


def test_the_ideal_is_the_nearest_contrast_known(explainer, explanations) -> None:
    table = explainer.features.check(X)

    def ideal(row: int, kind: str, own: Contrast | None) -> list[float] | None:
        standard = Explanations([replace(explanations[row], **{kind: own})])
        found = metrics._ideals(explainer, standard, table).get((0, kind))
        return None if found is None else found.tolist()

    assert ideal(0, "positive", None) == [2, 1, 1]  # among the training rows of class 0, the base itself
    assert ideal(0, "negative", None) is None  # none of class 1 is as far from base as (2, 2, 2) in the second column
    assert ideal(0, "negative", explanations[0].negative) == [4, 2, 2]
    assert ideal(0, "negative", explanations[0].positive) is None  # not of another class
    assert ideal(1, "positive", None) == [4, 1, 1]
    far = replace(explanations[1].positive, values=pd.Series([5, 1, 2]))
    assert ideal(1, "positive", far) == [4, 1, 1]


def test_forests_ask_for_as_many_features_as_a_mean_path() -> None:
    table = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    trees = [  # which ask the first column, the second, the first
        DecisionTreeClassifier(random_state=0).fit(table, labels)
        for labels in ([0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1])
    ]
    asked = metrics._path_features([tree.tree_ for tree in trees], table[[3]].astype(np.float32))[0]
    assert asked.tolist() == [0]  # one feature a path, and column 0 is asked twice, column 1 once
    deep = DecisionTreeClassifier(random_state=0).fit(table, [0, 1, 2, 3])
    assert sorted(metrics._path_features([deep.tree_], table[[3]].astype(np.float32))[0].tolist()) == [1, 2]


def test_attributions_become_contrasts(model, explainer) -> None:
    proxies = metrics.attribution_contrasts(explainer, ROWS, [[-1, 2, 0], [3, 0, -1]])
    first, second = proxies
    assert (first.prediction, second.prediction) == (False, True)
    # against the class: to base for the positive; for the class: to base for the negative
    assert [c.values.tolist() for c in first.contrasts] == [[2, 2, 2], [2, 1, 2]]
    assert [c.values.tolist() for c in second.contrasts] == [[5, 1, 1], [2, 1, 2]]
    assert first.positive.changes == {1: (1, 2), 2: (1, 2)}
    assert second.negative.changes == {0: (5, 2)}
    assert second.negative.importance.tolist() == [3, 0, 1]
    scores = metrics.correct_classification(proxies)
    assert scores["positive"].tolist() == [100.0, 100.0]
    assert scores["negative"].tolist() == [0.0, 100.0]
    # (5, 1, 1) without its first feature is of class 0: drops (1, 0, 0), attributions of ranks (3, 1, 2)
    ranks = metrics.correct_feature_ranking(explainer, proxies)
    assert ranks["positive"].tolist() == pytest.approx([np.nan, 1.5 / np.sqrt(3)], nan_ok=True)


def test_methods_share_one_standard(model, explainer, explanations) -> None:
    proxies = metrics.attribution_contrasts(explainer, ROWS, [[-1, 2, 0], [3, 0, -1]])
    alone = metrics.correct_feature_importance(model, explainer, proxies, X)
    judged = metrics.correct_feature_importance(model, explainer, proxies, X, standard=explanations)
    assert alone["negative"].tolist() == pytest.approx([np.nan, 100.0], nan_ok=True)  # its own are not contrasts
    assert judged["negative"].tolist()[0] == 0.0  # the path asks column 0, the attribution names column 1
    with pytest.raises(macem.MacemError, match="standard explains 1 rows, not the 2"):
        metrics.correct_feature_importance(model, explainer, proxies, X, standard=explanations[:1])


def test_a_special_code_stands_at_base() -> None:
    table = pd.DataFrame({"a": [0, 1, 2, 3, -9], "b": [1, 1, 2, 2, 2]})
    model = DecisionTreeClassifier(random_state=0).fit(table, table["a"] > 1)
    explainer = macem.Explainer(model, table, special_values={"*": [-9]})
    proxies = metrics.attribution_contrasts(explainer, table.iloc[[4]], [[-1, -1]])
    assert proxies[0].positive.values["a"] == -9
    assert "a" not in proxies[0].positive.changes
    assert metrics._points(explainer, table.iloc[[4]])[0, 0] == 0.0


@pytest.mark.parametrize("attributions", [[[1, 2, 3]], [[1, 2, np.nan], [0, 0, 0]]])
def test_attributions_that_do_not_fit_are_refused(explainer, attributions) -> None:
    with pytest.raises(macem.MacemError, match="one finite number per row and feature"):
        metrics.attribution_contrasts(explainer, ROWS, attributions)


def test_unknown_ranking_is_refused(explanations) -> None:
    with pytest.raises(macem.MacemError, match="ranking='best'"):
        metrics.ranked_features(explanations[0].positive, "best")


def test_a_model_without_a_path_is_refused(explainer, explanations) -> None:
    with pytest.raises(macem.MacemError, match="no decision path"):
        metrics.correct_feature_importance(object(), explainer, explanations, X)


def test_a_forest_is_scored() -> None:
    forest = RandomForestClassifier(10, random_state=0).fit(X, X[:, 0] > 3.5)
    explainer = macem.Explainer(forest, X)
    explanations = explainer.explain(ROWS)
    scores = metrics.correct_feature_importance(forest, explainer, explanations, X)
    assert scores.stack().between(0, 100).all()
    assert scores["positive"].notna().all()
