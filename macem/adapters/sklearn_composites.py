"""Composites of scikit-learn: one table where all members are tables, otherwise asked through their members' tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macem.adapters import oracle_for
from macem.adapters.composed import ComposedOracle, StandIn, answers_in_single, over_members
from macem.adapters.join import Part, join, obstacle
from macem.adapters.readers import NumberReader, feature_names
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Cutoff, Oracle, Reader, TreeOracle, link_exactly
from macem.trees import Link, Member

__all__ = ["bagging", "calibrated", "selected", "thresholded", "voting"]


# Means of members ----------------------------------------------------------------------------------------------------


def bagging(model: Any) -> Oracle:
    """Mean of members that may each see some of the columns and know some of the classes."""
    everything = np.arange(model.n_features_in_)
    parts = []
    for member, features in zip(model.estimators_, model.estimators_features_, strict=True):
        if not hasattr(member, "predict_proba"):
            return BlackBoxOracle(model, note=f"its members, of {type(member).__name__}, vote and are no trees")
        columns = None if np.array_equal(features, everything) else np.asarray(features)
        oracle = oracle_for(member)
        if hasattr(oracle, "for_table"):
            return over_members(model, "its members are pipelines")
        read = getattr(oracle, "read", None)
        if read is not None and not isinstance(read, NumberReader):
            read = _ReadArray(read, columns)
        parts.append(Part(oracle, 1.0, [int(label) for label in member.classes_], columns, read))
    return _mean(model, parts)


@dataclass(frozen=True)
class _ReadArray:
    """Reads some columns of a table as an array, since bagging hides the names of columns from its members."""

    read: Reader
    columns: NDArray[np.int64] | None

    def __call__(self, X: Any) -> F8:
        array = np.asarray(X)
        return self.read(array if self.columns is None else array[:, self.columns])


def voting(model: Any) -> Oracle:
    """Weighted mean of probabilities, or weighted shares of votes."""
    weights = model._weights_not_none
    everyone = range(len(model.classes_))
    parts = [
        Part(oracle_for(member), 1.0 if weights is None else float(weights[place]), everyone)
        for place, member in enumerate(model.estimators_)
    ]
    if model.voting == "hard":
        return _hard_voting(model, parts)
    all_single = all(answers_in_single(part.oracle) for part in parts)
    return _mean(model, parts, SingleMean if all_single and weights is None else TreeOracle)


def _mean(model: Any, parts: Sequence[Part], kind: type[TreeOracle] = TreeOracle) -> Oracle:
    reason = obstacle(parts)
    if reason:
        return over_members(model, reason)
    return _join(model, parts, BlackBoxOracle(model), kind)


def _join(model: Any, parts: Sequence[Part], live: Oracle, kind: type[TreeOracle] = TreeOracle) -> TreeOracle:
    return join(
        parts,
        classes=np.asarray(model.classes_),
        live=live,
        n_features=model.n_features_in_,
        names=feature_names(model),
        kind=kind,
    )


class SingleMean(TreeOracle):
    """A mean that NumPy takes in float32, since all members answer in float32."""

    def link(self, raw: F8) -> F8:
        """From raw outputs to class probabilities, rounded as the model's own."""
        return link_exactly(self.ensemble, raw, np.float32)


def selected(model: Any) -> Oracle:
    """One model on the columns that were selected for it."""
    inner = oracle_for(model.estimator_)
    if not isinstance(inner, TreeOracle) or not isinstance(inner.read, NumberReader):
        return BlackBoxOracle(model, note=getattr(inner, "note", "") or "its columns are selected from categories")
    part = Part(inner, 1.0, range(len(model.classes_)), np.flatnonzero(model.support_))
    return _join(model, [part], BlackBoxOracle(model, cutoff=getattr(inner.live, "cutoff", None)))


# Cutoffs -------------------------------------------------------------------------------------------------------------


def thresholded(model: Any) -> Oracle:
    """Read a model whose classes meet at a threshold of its own: the one inside, and that threshold."""
    inside = getattr(model, "estimator_", model.estimator)  # which may be fitted and frozen, and the whole never
    oracle = oracle_for(inside)
    cutoff = _cutoff(model, inside)
    if cutoff is None:
        return BlackBoxOracle(model, note="its classes follow a threshold of its own, and not on a probability")
    if isinstance(oracle, TreeOracle):
        return replace(oracle, live=BlackBoxOracle(model, cutoff=cutoff))
    note = getattr(oracle, "note", "")
    if isinstance(oracle, ComposedOracle):
        double = copy(model)
        double.estimator_ = StandIn(inside, oracle)
        return ComposedOracle(model, double, note=note, cutoff=cutoff)
    return BlackBoxOracle(model, note=note or "the model behind its threshold is a black box", cutoff=cutoff)


def _cutoff(model: Any, inside: Any) -> Cutoff | None:
    """The class and the probability at which it begins; None where another score is compared, or at an end."""
    if not hasattr(inside, "predict_proba") or model.response_method == "decision_function":
        return None
    if hasattr(model, "best_threshold_"):
        threshold, positive = model.best_threshold_, model._curve_scorer._get_pos_label()
    else:
        threshold, positive = 0.5 if model.threshold == "auto" else model.threshold, model.pos_label
    label = 1 if positive is None else int(np.flatnonzero(model.classes_ == positive)[0])
    return Cutoff(label, float(threshold)) if 0.0 < threshold < 1.0 else None


# Votes ---------------------------------------------------------------------------------------------------------------


def _hard_voting(model: Any, parts: Sequence[Part]) -> Oracle:
    live = BlackBoxOracle(VoteShares(model), note="its members vote")
    rewrites = [_to_votes(member, part) for member, part in zip(model.estimators_, parts, strict=True)]
    voters = [replace(part, rewrite=rewrite) for part, rewrite in zip(parts, rewrites, strict=True)]
    if None in rewrites or obstacle(voters):
        return live
    return _join(model, voters, live)


def _to_votes(model: Any, part: Part) -> Callable[[Member], Member] | None:
    """Find what turns a table's probabilities into the votes of the model's `predict`; None where there is no such."""
    if not isinstance(part.oracle, TreeOracle) or len(part.oracle.members) > 1 or part.oracle.members[0].single:
        return None
    if getattr(part.oracle.live, "cutoff", None) is not None:
        return None
    (member,) = part.oracle.members
    kinds = {base.__name__ for base in type(_last_step(model)).__mro__}
    boosters = kinds & {"GradientBoostingClassifier", "HistGradientBoostingClassifier"}
    if member.link in (Link.IDENTITY, Link.ADABOOST) or (member.link == Link.SOFTMAX_NUMPY and boosters):
        return _vote
    if "HistGradientBoostingClassifier" in kinds:
        return _step
    return _step_at_zero if boosters else None


def _last_step(model: Any) -> Any:
    return model.steps[-1][1] if hasattr(model, "steps") else model


def _vote(member: Member) -> Member:
    return replace(member, link=Link.VOTE)


def _step(member: Member) -> Member:
    return replace(member, link=Link.STEP)


def _step_at_zero(member: Member) -> Member:
    """Vote for the second class at a score of zero too: for the first iff the mirrored score is positive."""
    mirrored = [replace(tree, value=-tree.value) for tree in member.trees]
    return replace(member, link=Link.STEP, trees=mirrored, start=-member.start, classes=member.classes[::-1])


@dataclass(frozen=True)
class VoteShares:
    """A hard voting classifier as one that answers with each class's share of the votes."""

    model: Any

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels that the model predicts, shape (n,)."""
        return np.asarray(self.model.predict(self._as_fitted(X)))

    def predict_proba(self, X: Any) -> F8:
        """Shares of the votes, shape (n, n_classes)."""
        votes = self.model._predict(self._as_fitted(X))
        weights = self.model._weights_not_none
        shares = np.zeros((len(votes), len(self.classes_)))
        for voter in range(votes.shape[1]):
            shares[np.arange(len(votes)), votes[:, voter]] += 1.0 if weights is None else weights[voter]
        return np.asarray(shares / (votes.shape[1] if weights is None else sum(weights)))

    def _as_fitted(self, X: Any) -> Any:
        return X if feature_names(self.model) is not None or hasattr(X, "toarray") else np.asarray(X)

    def __getattr__(self, name: str) -> Any:
        if name not in ("classes_", "feature_names_in_", "n_features_in_"):
            raise AttributeError(name)
        return getattr(self.model, name)


# Calibration ---------------------------------------------------------------------------------------------------------


def calibrated(model: Any) -> Oracle:
    """Mean of calibrated classifiers; a sigmoid on top of sums of trees is a sigmoid of sums of trees."""
    folds = model.calibrated_classifiers_
    parts = [_sigmoid(model, fold) for fold in folds]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or obstacle(known):
        of = f" of {len(model.classes_)} classes" if len(model.classes_) > 2 else ""
        return over_members(model, f"its {model.method} calibration{of} is no sum of trees")
    return _join(model, known, BlackBoxOracle(model))


def _sigmoid(model: Any, fold: Any) -> Part | None:
    """Read one calibrated classifier of two classes, where sigmoid calibration sees a plain sum of trees."""
    oracle = oracle_for(fold.estimator)
    if fold.method != "sigmoid" or len(model.classes_) != 2:
        return None
    if not isinstance(oracle, TreeOracle) or len(oracle.members) > 1 or oracle.members[0].classes != (0, 1):
        return None
    (calibrator,), (member,) = fold.calibrators, oracle.members
    scores: dict[Link, tuple[float, ...]] = {Link.IDENTITY: (0.0, 1.0), Link.ADABOOST: (-1.0, 1.0)}
    if hasattr(fold.estimator, "decision_function"):
        scores[Link.SIGMOID] = (1.0,)
    if member.link not in scores or calibrator.a_ == 0.0:
        return None
    rewrite = _Calibrate(float(calibrator.a_), float(calibrator.b_), scores[member.link])
    return Part(oracle, 1.0, (0, 1), rewrite=rewrite)


@dataclass(frozen=True)
class _Calibrate:
    """Puts a sum of trees behind a calibrating sigmoid.

    Attributes
    ----------
    slope, intercept : float
        As scikit-learn's ``a_`` and ``b_``: the sigmoid is ``1 / (1 + exp(slope * score + intercept))``.
    score : tuple of float
        The factors of the member's outputs in the score that was calibrated.
    """

    slope: float
    intercept: float
    score: tuple[float, ...]

    def __call__(self, member: Member) -> Member:
        score = np.array(self.score)[:, None]
        return Member(
            trees=[replace(tree, value=tree.value @ score) for tree in member.trees],
            n_outputs=1,
            link=Link.SIGMOID,
            start=member.start @ score + member.divisor * self.intercept / self.slope,
            classes=(0, 1),
            slope=-self.slope,
            divisor=member.divisor,
        )
