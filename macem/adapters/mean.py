"""Any models as one: a weighted mean of their probabilities, and one table where all of them are tables."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macem.adapters import oracle_for
from macem.errors import ModelError, OptionError
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Oracle, Reader, TreeOracle

__all__ = ["WeightedMean", "WeightedMeanAdapter"]


class WeightedMean:
    """A classifier that averages others; made by `macem.ensemble`.

    Attributes
    ----------
    models : tuple of object
    weights : ndarray of float64, shape (n_models,)
        As given; probabilities are divided by their sum.
    classes_ : ndarray, shape (n_classes,)
        The labels of all models, in the order in which they first appear.
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
        labels = [label for oracle in self.oracles for label in oracle.classes.tolist()]
        if classes is not None:
            labels = [*np.asarray(classes).tolist(), *labels]
        self.classes_ = np.array(list(dict.fromkeys(labels)))
        position = {label: place for place, label in enumerate(self.classes_.tolist())}
        self.columns = [np.array([position[label] for label in oracle.classes.tolist()]) for oracle in self.oracles]

    def predict_proba(self, X: Any) -> F8:
        """Average the models' own probabilities, shape (n, n_classes); a class that a model lacks gets 0 from it."""
        total: F8 | float = 0.0
        for oracle, weight, columns in zip(self.oracles, self.weights, self.columns, strict=True):
            live = getattr(oracle, "live", oracle).predict_proba(X)
            answer = np.zeros((len(live), len(self.classes_)))
            answer[:, columns] = live
            total = total + weight * answer
        return np.asarray(total / self.weights.sum())

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels of the most probable classes, shape (n,); the first of equals."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class WeightedMeanAdapter:
    """Reads macem's own models: a mean of tables is a table."""

    def oracle(self, model: Any) -> Oracle:
        """Join the models' tables, or say in `note` why they stay apart."""
        if not isinstance(model, WeightedMean):
            return BlackBoxOracle(model, note=f"{type(model).__name__}, asked as a black box")
        obstacle = _obstacle(model.oracles)
        live = BlackBoxOracle(model, note=f"a mean of {len(model.oracles)} models, each asked in turn: {obstacle}")
        if obstacle:
            return live
        members = []
        for oracle, weight, columns in zip(model.oracles, model.weights, model.columns, strict=True):
            divisor = sum(member.weight for member in oracle.members) if oracle.total is None else oracle.total
            members += [
                replace(
                    member,
                    # the weight itself where a model is one member: the sum is then the live one to the bit
                    weight=float(weight) if member.weight == divisor else float(weight) * member.weight / divisor,
                    classes=tuple(int(columns[place]) for place in member.classes),
                )
                for member in oracle.members
            ]
        first = model.oracles[0]
        return TreeOracle(
            members,
            model.classes_,
            BlackBoxOracle(model, note=f"a mean of {len(model.oracles)} models as one table"),
            _ReadByAll(tuple(oracle.read for oracle in model.oracles)),
            first.n_features,
            first.single,
            missing_value=first.missing_value,
            total=float(model.weights.sum()),
            feature_names=first.feature_names,
        )


@dataclass(frozen=True)
class _ReadByAll:
    """Reads with the first reader what every reader accepts."""

    readers: tuple[Reader, ...]

    def __call__(self, X: Any) -> F8:
        return [read(X) for read in self.readers][0]  # noqa: RUF015  (each may refuse)


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


def _obstacle(oracles: Sequence[Any]) -> str:
    """Say why oracles cannot be one table; empty where they can."""
    for oracle in oracles:
        if type(oracle) is not TreeOracle:  # a kind of its own may do more than its members say
            return f"{getattr(oracle, 'note', '') or type(oracle).__name__}"
    first = oracles[0]
    asks_for_categories = any(oracle.ensemble.n_codes.any() for oracle in oracles)
    for oracle in oracles[1:]:
        if (oracle.n_features, oracle.feature_names) != (first.n_features, first.feature_names):
            return "they were fitted on different columns"
        if oracle.single != first.single:
            return "some compare numbers in float32 and some in float64"
        if not np.array_equal(oracle.missing_value, first.missing_value, equal_nan=True):
            return "they take different numbers for missing"
        if asks_for_categories and pickle.dumps(oracle.read) != pickle.dumps(first.read):
            return "they number the categories of a column differently"
    return ""
