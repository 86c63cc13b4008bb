"""The paper's metrics of explanations: CCP, CFR and CFIP, with the readings that its text needs.

Features are ranked by importance, the largest first. A good contrast moves few features, so most importances are zero;
ties are broken by `Contrast.sensitivity`, what the class rests on even where it stands at base. ``ranking="literal"``
leaves them to the order of the columns, as the paper's text does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from macem.errors import OptionError, UnsupportedModelError
from macem.explainer import Explainer
from macem.results import Contrast, Explanation, Explanations, Status

__all__ = ["correct_classification", "correct_feature_importance", "correct_feature_ranking", "ranked_features"]

Ranking = Literal["sensitivity", "literal"]
KINDS = ("positive", "negative")


def correct_classification(explanations: Explanations) -> pd.Series[float]:
    """CCP: the percentage of positives in the row's class, and of negatives in another.

    Parameters
    ----------
    explanations : Explanations
        Classes are those that the user's own model gave when the contrasts were verified.

    Returns
    -------
    Series, index ("positive", "negative")
        Percent of the contrasts that were found; NaN where none was.
    """

    def score(explanation: Explanation, contrast: Contrast) -> float:
        same = contrast.prediction == explanation.prediction
        return 100.0 * (same if contrast.kind == "positive" else not same)

    return _mean_by_kind(explanations, score)


def correct_feature_ranking(
    explainer: Explainer, explanations: Explanations, ranking: Ranking = "sensitivity"
) -> pd.Series[float]:
    """CFR: rank correlation of an explanation's features with an ablation of its contrast.

    Reading: each feature alone is set to its base value in the positive, to the row's value in the negative; they are
    ranked by how far the probability of the contrast's class falls, and compared by Spearman's correlation over all
    features. A contrast whose ablation changes nothing has no ranking to compare with, and is left out.

    Parameters
    ----------
    explainer : Explainer
        Asked for the probabilities of the ablated contrasts.
    explanations : Explanations
    ranking : {"sensitivity", "literal"}
        How ties of importance are broken.

    Returns
    -------
    Series, index ("positive", "negative")
        Means of the correlations, in [-1, 1]; NaN where there is nothing to compare.
    """
    from scipy.stats import spearmanr

    def score(explanation: Explanation, contrast: Contrast) -> float:
        assert contrast.values is not None
        assert contrast.probabilities is not None
        rows = [contrast.values.copy() for _ in contrast.values]
        for at, row in enumerate(rows):
            row.iloc[at] = (explanation.base if contrast.kind == "positive" else explanation.original).iloc[at]
        table = explainer.features.check(pd.DataFrame(rows).infer_objects())
        label = list(contrast.probabilities.index).index(contrast.prediction)
        left = explainer.oracle.predict_proba(explainer.features.model_table(table))[:, label]
        if np.ptp(left) == 0.0:
            return np.nan
        places = np.empty(left.size)
        places[ranked_features(contrast, ranking)] = np.arange(left.size)
        return float(spearmanr(places, left).statistic)

    return _mean_by_kind(explanations, score)


def correct_feature_importance(
    model: Any, explainer: Explainer, explanations: Explanations, X_train: Any, ranking: Ranking = "sensitivity"
) -> pd.Series[float]:
    """CFIP: how many of the features that an ideal contrast rests on are among the explanation's first k.

    Reading: the ideal is the training row nearest to the reference (base for a positive, row for a negative) that
    fulfils the contrast's rules, unless the contrast itself is nearer. Its features are those on its path through the
    tree, or through any tree of a forest; k is their number.

    Parameters
    ----------
    model : DecisionTreeClassifier or RandomForestClassifier
        Fitted on the explainer's numbers.
    explainer : Explainer
    explanations : Explanations
    X_train : DataFrame or ndarray, shape (n, d)
        Candidates for the ideal.
    ranking : {"sensitivity", "literal"}

    Returns
    -------
    Series, index ("positive", "negative")
        Percent.

    Raises
    ------
    UnsupportedModelError
        If the model has no decision path.
    """
    if not hasattr(model, "decision_path"):
        raise UnsupportedModelError(
            f"{type(model).__qualname__} has no decision_path; CFIP is defined for trees and forests of scikit-learn."
        )
    features = explainer.features
    table = features.check(X_train)
    numbers = features.numbers(table)
    classes = np.asarray(explainer.classes)[explainer.oracle.predict_proba(features.model_table(table)).argmax(axis=1)]
    points = explainer.encoding.encode(numbers)

    def score(explanation: Explanation, contrast: Contrast) -> float:
        rows = pd.DataFrame([explanation.original, explanation.base, contrast.values]).infer_objects()
        row, base, own = explainer.encoding.encode(features.numbers(features.check(rows)))
        positive = contrast.kind == "positive"
        reference = base if positive else row
        if positive:
            fits = (classes == explanation.prediction) & (np.abs(points) <= np.abs(row) + 1e-12).all(axis=1)
        else:
            fits = (classes != explanation.prediction) & (np.abs(points) >= np.abs(row) - 1e-12).all(axis=1)
        distance = np.where(fits, np.abs(points - reference).sum(axis=1), np.inf)
        nearest = int(distance.argmin())
        if distance[nearest] < np.abs(own - reference).sum():
            ideal = features.model_table(table.iloc[[nearest]])
        else:
            ideal = features.model_table(features.check(rows.iloc[[2]]))
        path = path_features(model, ideal)
        top = ranked_features(contrast, ranking)[: len(path)]
        return 100.0 * len(path.intersection(top.tolist())) / len(path) if path else np.nan

    return _mean_by_kind(explanations, score)


def ranked_features(contrast: Contrast, ranking: Ranking = "sensitivity") -> NDArray[np.int64]:
    """Positions of the features, the most important first.

    Raises
    ------
    OptionError
        If the ranking is unknown.
    """
    if ranking not in ("sensitivity", "literal"):
        raise OptionError(f'ranking={ranking!r} is unknown; use "sensitivity" or "literal".')
    importance = np.asarray(contrast.importance, dtype=np.float64)
    ties = np.asarray(contrast.sensitivity, dtype=np.float64) if ranking == "sensitivity" else np.zeros(importance.size)
    return np.lexsort([np.arange(importance.size), -ties, -importance]).astype(np.int64)


def path_features(model: Any, row: Any) -> set[int]:
    """Positions of the features that a row's path asks for, in a tree or in any tree of a forest."""
    trees = getattr(model, "estimators_", [model])
    plain = np.asarray(row)
    found: set[int] = set()
    for tree in trees:
        nodes = tree.tree_.decision_path(plain.astype(np.float32)).indices
        asked = tree.tree_.feature[nodes]
        found.update(asked[asked >= 0].tolist())
    return found


def _found(explanations: Explanations) -> Iterator[tuple[Explanation, Contrast]]:
    for explanation in explanations:
        for contrast in explanation.contrasts:
            if contrast.status is Status.FOUND:
                yield explanation, contrast


def _mean_by_kind(explanations: Explanations, score: Callable[[Explanation, Contrast], float]) -> pd.Series[float]:
    """Mean score of the contrasts found, by kind; scores that are NaN are left out."""
    scores: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for explanation, contrast in _found(explanations):
        scores[contrast.kind].append(score(explanation, contrast))
    means = [np.nanmean(values) if not np.isnan(values).all() else np.nan for values in scores.values()]
    return pd.Series(means, index=pd.Index(KINDS), dtype=np.float64)
