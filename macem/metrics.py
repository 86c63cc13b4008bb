"""The paper's metrics of explanations: CCP, CFR and CFIP, with the readings that its text needs.

Features are ranked by importance, the largest first. A good contrast moves few features, so most importances are zero;
ties are broken by `Contrast.sensitivity`, what the class rests on even where it stands at base. ``ranking="literal"``
leaves them, as the paper's text does. Scores are per row and kind; the paper's figures are their means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from macem.errors import DataError, OptionError, UnsupportedModelError
from macem.explainer import Explainer
from macem.features import Features
from macem.kernel import F8, I8
from macem.results import Contrast, Explanation, Explanations, Status

__all__ = [
    "attribution_contrasts",
    "correct_classification",
    "correct_feature_importance",
    "correct_feature_ranking",
    "ideal_features",
    "ranked_features",
]

Ranking = Literal["sensitivity", "literal"]
KINDS = ("positive", "negative")
DIGITS = 12  # sums over trees differ in the digits beyond
ROUNDING = 1e-9  # of a distance in working coordinates
AT_ONCE = 200  # contrasts whose ablations are one table


def attribution_contrasts(explainer: Explainer, X: Any, attributions: Any) -> Explanations:
    """Contrasts in the place of an attribution method's, so that the metrics can judge it, as the paper does with LIME.

    The positive is the row with every feature that speaks against its class at base, the negative the row with every
    feature that speaks for its class at base.

    Parameters
    ----------
    explainer : Explainer
        Gives the base values and the model's answers.
    X : DataFrame or array, shape (n, d)
    attributions : array, shape (n, d)
        Signed, toward the class that the model predicts for each row.

    Returns
    -------
    Explanations
        Importances are the absolute attributions (reading: of all features, in both proxies), sensitivities zero.
        Whether a proxy keeps or leaves the class is not assured.

    Raises
    ------
    DataError
        If the shapes differ or an attribution is not finite.
    """
    features = explainer.features
    table = features.check(X)
    weights = np.asarray(attributions, dtype=np.float64)
    if weights.shape != table.shape or not np.isfinite(weights).all():
        raise DataError(
            f"attributions have shape {weights.shape} for rows of shape {table.shape}, "
            f"{int((~np.isfinite(weights)).sum())} of them not finite: give one finite number per row and feature"
        )
    numbers = features.numbers(table)
    standing = features.silent(numbers)
    bases = np.where(standing, numbers, features.base)
    base_table = features.frame(bases, table, numbers)
    own = _answers(explainer, table)
    predicted = explainer.decided(own)
    contrasts: dict[str, list[Contrast]] = {kind: [] for kind in KINDS}
    for kind, dropped, references in (("positive", weights < 0.0, base_table), ("negative", weights > 0.0, table)):
        examples = features.frame(np.where(dropped, bases, numbers), table, numbers)
        differs = (numbers != bases) & (~dropped if kind == "positive" else dropped) & ~standing
        answers = _answers(explainer, examples)
        for at, (answer, label) in enumerate(zip(answers, explainer.decided(answers), strict=True)):
            values, reference = examples.iloc[at], references.iloc[at]
            moved = np.flatnonzero(differs[at]).tolist()
            contrasts[kind].append(
                Contrast(
                    kind=kind,
                    status=Status.FOUND,
                    values=values,
                    changes={features.names[f]: (reference.iloc[f], values.iloc[f]) for f in moved},
                    importance=pd.Series(np.abs(weights[at]), index=table.columns),
                    sensitivity=pd.Series(0.0, index=table.columns),
                    prediction=label,
                    probabilities=pd.Series(answer, index=explainer.classes),
                    distance=None,
                    n_changed=len(moved),
                    n_queries=0,
                    lower_bound=None,
                    reference=reference,
                )
            )
    return Explanations(
        [
            Explanation(
                index=index,
                original=table.iloc[at],
                prediction=predicted[at],
                probabilities=pd.Series(own[at], index=explainer.classes),
                base=base_table.iloc[at],
                positive=contrasts["positive"][at],
                negative=contrasts["negative"][at],
            )
            for at, index in enumerate(table.index.tolist())
        ]
    )


def correct_classification(explanations: Explanations) -> pd.DataFrame:
    """CCP: 100 where a positive is in the row's class, or a negative in another, else 0.

    Reading: the class is the model's own verdict, and only contrasts that were returned count; how many were not is to
    be told beside it.

    Parameters
    ----------
    explanations : Explanations

    Returns
    -------
    DataFrame of float64, shape (n, 2), columns "positive" and "negative"
        NaN where no contrast was found. ``.mean()`` is the paper's figure.
    """

    def score(explanation: Explanation, contrast: Contrast) -> float:
        same = contrast.prediction == explanation.prediction
        return 100.0 * (same if contrast.kind == "positive" else not same)

    return _scores(explanations, score)


def correct_feature_ranking(
    explainer: Explainer,
    explanations: Explanations,
    ranking: Ranking = "sensitivity",
    k: int | pd.DataFrame | None = None,
) -> pd.DataFrame:
    """CFR: rank correlation of an explanation's first k features with an ablation of its contrast.

    Readings: each of the k features alone is set to its base value in the positive, to the row's value in the negative.
    They are ranked by how far that lowers the probability of the contrast's class. The correlation is Spearman's, in
    which equals share their mean rank. An explanation scores 0 if its k features rank equal, or if none of them has an
    effect while another feature has. Left out is what has no ranking to compare with: a contrast in which no ablation
    changes anything (a positive that is the base itself, say), and a single feature.

    Parameters
    ----------
    explainer : Explainer
        Asked for the probabilities of the ablated contrasts.
    explanations : Explanations
    ranking : {"sensitivity", "literal"}
        Equal importances are told apart by sensitivity, or stay equal.
    k : int or DataFrame of shape (n, 2), optional
        The paper's k, which is ``ideal_features(…).map(len)`` for trees and forests. All features by default.

    Returns
    -------
    DataFrame of float64, shape (n, 2), columns "positive" and "negative"
        Correlations in [-1, 1]; NaN where there is nothing to compare. ``.mean()`` is the paper's figure.
    """
    from scipy.stats import rankdata

    sizes = k if isinstance(k, pd.DataFrame) else pd.DataFrame(k, index=range(len(explanations)), columns=KINDS)
    size_of = dict(zip(explanations, sizes.to_dict("records"), strict=True))
    drop_of = _ablations(explainer, explanations)

    def score(explanation: Explanation, contrast: Contrast) -> float:
        drop = drop_of[contrast]
        size = drop.size if k is None else size_of[explanation][contrast.kind]
        if np.ptp(drop) == 0.0 or not size > 1:
            return np.nan
        top = ranked_features(contrast, ranking)[: int(size)]
        keys = np.stack(_keys(contrast, ranking)[::-1], axis=1)[top]
        order = np.unique(keys, axis=0, return_inverse=True)[1].ravel()  # equal where both keys are
        if np.ptp(order) == 0 or np.ptp(drop[top]) == 0.0:
            return 0.0
        # Spearman's: of scipy's spearmanr, which takes 1 ms, the two ranks and their correlation
        return float(np.corrcoef(rankdata(order), rankdata(drop[top]))[0, 1])

    return _scores(explanations, score)


def correct_feature_importance(
    model: Any,
    explainer: Explainer,
    explanations: Explanations,
    X_train: Any,
    ranking: Ranking = "sensitivity",
    standard: Explanations | None = None,
    ideals: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """CFIP: how many of the features that an ideal contrast rests on are among the explanation's first k.

    Readings: the ideal is the training row nearest (L1, working coordinates) to the reference, the base for a positive
    and the row for a negative, among those that keep the contrast's rules (its class, and no farther from base than
    the row, or at least as far, in every coordinate); the standard's own contrast if that is at least as near. Its
    features are the k that the most trees ask on its path, where k is the mean number of distinct features on a path,
    rounded: for a single tree, those on its path. (The union over a forest would be all features, and any explanation
    perfect.) Ties that are left go to the first column.

    Parameters
    ----------
    model : DecisionTreeClassifier or RandomForestClassifier
        Fitted on the explainer's columns, all of them numbers.
    explainer : Explainer
    explanations : Explanations
    X_train : DataFrame or ndarray, shape (n, d)
        Candidates for the ideal.
    ranking : {"sensitivity", "literal"}
    standard : Explanations, optional
        Contrasts of the same rows that replace a training row as the ideal; `explanations` by default. Methods that are
        compared need one standard.
    ideals : DataFrame of shape (n, 2), optional
        What `ideal_features` gives for the standard, where it is known.

    Returns
    -------
    DataFrame of float64, shape (n, 2), columns "positive" and "negative"
        Percent; NaN where no contrast was found or no ideal exists. ``.mean()`` is the paper's figure.

    Raises
    ------
    UnsupportedModelError
        If the model has no trees of scikit-learn.
    DataError
        If the standard is not of the same rows.
    """
    standard = explanations if standard is None else standard
    if [one.index for one in standard] != [one.index for one in explanations]:
        raise DataError(
            f"the standard explains {len(standard)} rows, not the {len(explanations)} that are judged: explain the same"
        )
    if ideals is None:
        ideals = ideal_features(model, explainer, standard, X_train)
    asked_of = dict(zip(explanations, ideals.to_dict("records"), strict=True))

    def score(explanation: Explanation, contrast: Contrast) -> float:
        asked = asked_of[explanation][contrast.kind]
        top = ranked_features(contrast, ranking)[: asked.size]
        return 100.0 * np.isin(top, asked).mean() if asked.size else np.nan

    return _scores(explanations, score)


def ideal_features(model: Any, explainer: Explainer, standard: Explanations, X_train: Any) -> pd.DataFrame:
    """The features asked on the path of each ideal contrast, as CFIP reads them; their number is the paper's k.

    Parameters
    ----------
    model : DecisionTreeClassifier or RandomForestClassifier
        Fitted on the explainer's columns, all of them numbers.
    explainer : Explainer
    standard : Explanations
        Contrasts that replace a training row as the ideal where they are at least as near.
    X_train : DataFrame or ndarray, shape (n, d)
        Candidates for the ideal.

    Returns
    -------
    DataFrame of shape (n, 2), columns "positive" and "negative"
        Arrays of positions; none where there is no ideal.

    Raises
    ------
    UnsupportedModelError
        If the model has no trees of scikit-learn.
    """
    trees = [getattr(tree, "tree_", None) for tree in getattr(model, "estimators_", [model])]
    if any(tree is None for tree in trees):
        raise UnsupportedModelError(
            f"{type(model).__qualname__} has no decision path; CFIP is defined for trees and forests of scikit-learn."
        )
    features = explainer.features
    asked = [dict.fromkeys(KINDS, np.empty(0, np.int64)) for _ in standard]
    ideals = _ideals(explainer, standard, features.check(X_train))
    if ideals:
        paths = _path_features(trees, np.array(list(ideals.values()), dtype=np.float32))
        for (at, kind), path in zip(ideals, paths, strict=True):
            asked[at][kind] = path
    return pd.DataFrame(asked, index=[one.index for one in standard], columns=pd.Index(KINDS))


def ranked_features(contrast: Contrast, ranking: Ranking = "sensitivity") -> I8:
    """Positions of the features, the most important first; ties that are left go to the first column.

    Raises
    ------
    OptionError
        If the ranking is unknown.
    """
    return np.lexsort([-key for key in _keys(contrast, ranking)]).astype(np.int64)


def _keys(contrast: Contrast, ranking: Ranking) -> list[F8]:
    """What features are ranked by, the first key last."""
    if ranking not in ("sensitivity", "literal"):
        raise OptionError(f'ranking={ranking!r} is unknown; use "sensitivity" or "literal".')
    keys = [contrast.importance] if ranking == "literal" else [contrast.sensitivity, contrast.importance]
    return [np.asarray(key, dtype=np.float64).round(DIGITS) for key in keys]


def _ablations(explainer: Explainer, explanations: Explanations) -> dict[Contrast, F8]:
    """For each contrast, per feature, how far the probability of its class falls without it, (d,)."""
    features = explainer.features
    found = [contrast for explanation in explanations for contrast in explanation.contrasts if contrast.found]
    drops: dict[Contrast, F8] = {}
    for first in range(0, len(found), AT_ONCE):
        some = found[first : first + AT_ONCE]
        table = _table(features, [contrast.values for contrast in some])
        own = features.numbers(table)
        other = features.numbers(_table(features, [contrast.reference for contrast in some]))
        moved = np.argwhere((own != other) & ~(np.isnan(own) & np.isnan(other)))
        owners = np.concatenate([moved[:, 0], np.arange(len(some))])  # last the contrasts as they are
        ablated = own[owners]
        ablated[np.arange(len(moved)), moved[:, 1]] = other[moved[:, 0], moved[:, 1]]
        labels = np.array([np.flatnonzero(explainer.classes == contrast.prediction)[0] for contrast in some])
        rows = table.iloc[owners]
        answers = _answers(explainer, features.frame(ablated, rows, own[owners]))[
            np.arange(owners.size), labels[owners]
        ]
        drop = np.zeros(own.shape)
        drop[moved[:, 0], moved[:, 1]] = np.round(answers[len(moved) :][moved[:, 0]] - answers[: len(moved)], DIGITS)
        drops |= dict(zip(some, drop, strict=True))
    return drops


def _ideals(explainer: Explainer, standard: Explanations, table: pd.DataFrame) -> dict[tuple[int, str], F8]:
    """By explanation and kind the nearest contrast known, as the model is asked: a training row, or the standard's."""
    features = explainer.features
    classes = explainer.decided(_answers(explainer, table))
    points, asked = _points(explainer, table), _asked(features, table)
    ends = _points(explainer, _table(features, [row for one in standard for row in (one.original, one.base)]))
    own = _standards(explainer, standard)
    ideals: dict[tuple[int, str], F8] = {}
    for at, explanation in enumerate(standard):
        row, base = ends[2 * at : 2 * at + 2]
        nearer = (np.abs(points) <= np.abs(row) + ROUNDING).all(axis=1)
        farther = (np.abs(points) >= np.abs(row) - ROUNDING).all(axis=1)
        for kind, reference, fits in (
            ("positive", base, nearer & (classes == explanation.prediction)),
            ("negative", row, farther & (classes != explanation.prediction)),
        ):
            distances = np.where(fits, np.abs(points - reference).sum(axis=1), np.inf)
            nearest = int(distances.argmin())
            known = own.get((at, kind))
            if known is not None and np.abs(known[0] - reference).sum() <= distances[nearest] + ROUNDING:
                ideals[at, kind] = known[1]
            elif np.isfinite(distances[nearest]):
                ideals[at, kind] = asked[nearest]
    return ideals


def _standards(explainer: Explainer, standard: Explanations) -> dict[tuple[int, str], tuple[F8, F8]]:
    """By explanation and kind the standard's contrasts that are what an ideal has to be: points, and as asked."""
    own = {
        (at, kind): contrast.values
        for at, explanation in enumerate(standard)
        for kind, contrast in zip(KINDS, (explanation.positive, explanation.negative), strict=True)
        if contrast is not None
        and contrast.found
        and (contrast.prediction == explanation.prediction) == (kind == "positive")
    }
    if not own:
        return {}
    table = _table(explainer.features, list(own.values()))
    both = zip(_points(explainer, table), _asked(explainer.features, table), strict=True)
    return dict(zip(own, both, strict=True))


def _path_features(trees: list[Any], rows: NDArray[np.float32]) -> list[I8]:
    """The k features that the most trees ask of each row, where k is the mean number that a tree asks."""
    counts = np.zeros(rows.shape, np.int64)
    for tree in trees:
        asked = np.zeros(rows.shape, bool)
        at, node = tree.decision_path(rows).nonzero()
        inner = tree.feature[node] >= 0
        asked[at[inner], tree.feature[node[inner]]] = True
        counts += asked
    order = np.argsort(-counts, axis=1, kind="stable").astype(np.int64)
    return [own[: round(total / len(trees))] for own, total in zip(order, counts.sum(axis=1).tolist(), strict=True)]


def _answers(explainer: Explainer, table: pd.DataFrame) -> F8:
    return explainer.oracle.predict_proba(explainer.features.model_table(table))


def _asked(features: Features, table: pd.DataFrame) -> F8:
    """Numbers as the model is asked with them."""
    return np.asarray(features.model_table(table), dtype=np.float64)


def _points(explainer: Explainer, table: pd.DataFrame) -> F8:
    """Working coordinates; what is missing, or a special code, stands at base."""
    features = explainer.features
    numbers = features.numbers(table)
    standing = features.silent(numbers)
    return explainer.encoding.encode(np.where(standing, features.base, numbers))


def _table(features: Features, rows: list[Any]) -> pd.DataFrame:
    """Rows of explanations as a table; dtypes that one row cannot show are put right, column by column."""
    table = pd.DataFrame(rows).infer_objects()
    return table if tuple(table.dtypes) == features.dtypes else features.check(table)


def _scores(explanations: Explanations, score: Callable[[Explanation, Contrast], float]) -> pd.DataFrame:
    """Scores of the contrasts that were found, one row per explanation and one column per kind."""
    contrasts = [[getattr(explanation, kind) for kind in KINDS] for explanation in explanations]
    scores = [
        [np.nan if one is None or not one.found else score(explanation, one) for one in both]
        for explanation, both in zip(explanations, contrasts, strict=True)
    ]
    index = pd.Index([explanation.index for explanation in explanations])
    return pd.DataFrame(scores, index=index, columns=pd.Index(KINDS), dtype=np.float64)
