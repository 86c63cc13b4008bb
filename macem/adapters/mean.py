"""Any models as one: a weighted mean of their probabilities, and one table where all of them are tables."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macem.adapters import oracle_for
from macem.adapters.composed import ComposedOracle
from macem.adapters.join import Part, join, obstacle
from macem.errors import ModelError, OptionError
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle

__all__ = ["WeightedMean", "WeightedMeanAdapter"]


class WeightedMean:
    """A classifier that averages others; made by `macem.ensemble`.

    Attributes
    ----------
    models : tuple of object
    weights : ndarray of float64, shape (n_models,)
        As given; probabilities are divided by their sum.
    classes_ : ndarray, shape (n_classes,)
        As given; by default the labels of all models, in the order in which they first appear.
    """

    def __init__(self, members: Sequence[tuple[Any, float]], *, classes: ArrayLike | None = None) -> None:
        pairs = [_pair(member) for member in members]
        if not pairs:
            raise OptionError("ensemble() got no models. Give at least one pair (model, weight).")
        self.models = tuple(model for model, _ in pairs)
        self.weights = np.array([weight for _, weight in pairs])
        if self.weights.sum() <= 0.0:
            raise OptionError(f"The weights {self.weights.tolist()} are all zero. Give one model a weight above zero.")
        self.oracles = _with_classes([oracle_for(model) for model in self.models], classes)
        self.classes_ = _union([oracle.classes for oracle in self.oracles]) if classes is None else np.asarray(classes)
        self.columns = [_places(oracle.classes, self.classes_, classes is not None) for oracle in self.oracles]
        self.asked = [getattr(oracle, "live", oracle) for oracle in self.oracles]

    def predict_proba(self, X: Any) -> F8:
        """Average the models' own probabilities, shape (n, n_classes); a class that a model lacks gets 0 from it."""
        answers = [oracle.predict_proba(X) for oracle in self.asked]
        total = np.zeros((len(answers[0]), len(self.classes_)))
        for answer, weight, columns in zip(answers, self.weights, self.columns, strict=True):
            total[:, columns] += weight * answer
        return total / sum(self.weights)  # type: ignore[no-any-return]

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels of the most probable classes, shape (n,); the first of equals."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class WeightedMeanAdapter:
    """Reads macem's own models: a mean of tables is a table."""

    def oracle(self, model: Any) -> Oracle:
        """Join the models' tables, or say in `note` why they stay apart."""
        if not isinstance(model, WeightedMean):
            return BlackBoxOracle(model, note=f"{type(model).__name__}, asked as a black box")
        parts = [Part(*part) for part in zip(model.oracles, model.weights.tolist(), model.columns, strict=True)]
        reason = _different_columns(model.oracles) or obstacle(parts)
        if reason:
            double = copy(model)
            double.asked = model.oracles
            return ComposedOracle(model, double, note=f"a mean of {len(parts)} models, each asked in turn: {reason}")
        first = model.oracles[0]
        return join(
            parts,
            classes=model.classes_,
            live=BlackBoxOracle(model, note=f"a mean of {len(parts)} models as one table"),
            n_features=first.n_features,
            names=first.feature_names,
        )


def _pair(member: Any) -> tuple[Any, float]:
    try:
        model, weight = member
        weight = float(weight)
    except (TypeError, ValueError) as error:
        raise OptionError(f"ensemble() got {member!r}. Give pairs (model, weight).") from error
    if not (np.isfinite(weight) and weight >= 0.0):
        raise OptionError(f"{type(model).__name__} has weight {weight}. Give a finite number that is not negative.")
    return model, weight


def _with_classes(oracles: list[Oracle], classes: ArrayLike | None) -> list[Any]:
    """Let functions, whose columns have no names, have those that were given or that the first named model has."""
    nameless = [isinstance(oracle, BlackBoxOracle) and not oracle.knows_classes for oracle in oracles]
    if classes is None:
        named = [oracle.classes for oracle, is_nameless in zip(oracles, nameless, strict=True) if not is_nameless]
        if not named:
            raise ModelError("No member of the ensemble names its classes. Name them with classes=, in column order.")
        classes = named[0]
    return [
        BlackBoxOracle(oracle.model, classes=classes, note=oracle.note) if is_nameless else oracle  # type: ignore[attr-defined]
        for oracle, is_nameless in zip(oracles, nameless, strict=True)
    ]


def _union(labels: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the labels of all, in the order in which they first appear."""
    first = labels[0]
    for other in labels[1:]:
        if not set(other.tolist()) & set(first.tolist()):
            raise OptionError(
                f"The models share no class: one has {first.tolist()}, another {other.tolist()}. "
                "Name the classes with classes=; models of the classes 0, 1, … are then matched by position."
            )
    union = list(dict.fromkeys(label for some in labels for label in some.tolist()))
    if len(union) == len(first):
        return first
    return np.array(union, dtype=object if first.dtype == object else None)


def _places(labels: NDArray[Any], classes: NDArray[Any], are_given: bool) -> list[int]:
    """Find the place of each label among the classes; 0, 1, … stand for the given classes in their order."""
    position = {label: place for place, label in enumerate(classes.tolist())}
    if are_given and labels.tolist() == list(range(len(classes))):
        return list(range(len(classes)))
    unknown = [label for label in labels.tolist() if label not in position]
    if unknown:
        raise OptionError(f"A model knows the class {unknown[0]!r}, but classes={classes.tolist()}. Name every class.")
    return [position[label] for label in labels.tolist()]


def _different_columns(oracles: Sequence[Any]) -> str:
    """Say so where tables are over different columns; empty where they are not, or are no tables."""
    columns = {(oracle.n_features, oracle.feature_names) for oracle in oracles if isinstance(oracle, TreeOracle)}
    return "they were fitted on different columns" if len(columns) > 1 else ""
