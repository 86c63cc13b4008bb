"""scikit-learn: trees, forests and boosters as tables; every other classifier as what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macem.errors import DataError, ModelError, UnsupportedModelError
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle
from macem.trees import Link, Member, Tree

__all__ = ["NumberReader", "SklearnAdapter"]


class SklearnAdapter:
    """Reads the classifiers of scikit-learn, and the subclasses that imbalanced-learn makes of them."""

    def oracle(self, model: Any) -> Oracle:
        """Read a fitted classifier.

        Parameters
        ----------
        model : estimator
            Any fitted scikit-learn classifier of one output.

        Returns
        -------
        Oracle
            A table where the model is made of trees, otherwise a black box whose `note` says why.

        Raises
        ------
        ModelError
            If the model is not fitted, or gives no class probabilities.
        UnsupportedModelError
            If it is no classifier of one output.
        """
        _refuse_unfitted(model)
        _refuse_other_tasks(model)
        kind = next((_KINDS[base.__name__] for base in type(model).__mro__ if base.__name__ in _KINDS), None)
        if kind is None:
            return BlackBoxOracle(model, note=f"{type(model).__name__} is not made of trees")
        return kind(model)


# Reading a table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberReader:
    """Numbers of a table, checked and rounded as scikit-learn does it before a tree is asked.

    Attributes
    ----------
    n_features : int
    names : tuple of str or None
        The columns as the model knows them; a DataFrame may have them in another order, and others beside them.
    dtype : str
        ``"float32"`` or ``"float64"``: each number is cast once, from the type it has (an int64 never passes through
        float64 on its way to float32).
    missing, infinite : bool
        Whether NaN, and infinite numbers, are accepted.
    """

    n_features: int
    names: tuple[Any, ...] | None
    dtype: str
    missing: bool
    infinite: bool = False

    def __call__(self, X: Any) -> F8:
        from sklearn.utils.validation import check_array

        finite = False if self.infinite else "allow-nan" if self.missing else True
        try:
            numbers = check_array(
                columns_by_name(X, self.names), dtype=self.dtype, ensure_all_finite=finite, ensure_min_samples=0
            )
        except ValueError as error:
            raise DataError(f"The model cannot read this table: {error} Give it numbers that the model takes.") from error
        check_width(numbers, self.n_features)
        return numbers.astype(np.float64)


def columns_by_name(X: Any, names: tuple[Any, ...] | None) -> Any:
    """Select the model's columns from a table that names them; leave any other table as it is."""
    columns = getattr(X, "columns", None)
    if names is None or columns is None or not all(isinstance(column, str) for column in columns):
        return X
    if tuple(columns) == names:
        return X
    absent = [name for name in names if name not in columns]
    if absent:
        raise DataError(f"The table lacks columns that the model was fitted on: {absent}. Add them.")
    return X[list(names)]


def check_width(numbers: NDArray[Any], n_features: int) -> None:
    """Refuse a table of another width than the model's."""
    if numbers.shape[1] != n_features:
        raise DataError(
            f"The table has {numbers.shape[1]} columns, but the model was fitted on {n_features}. Give it those columns."
        )


def feature_names(model: Any) -> tuple[Any, ...] | None:
    """Names of the columns as the model knows them, or None."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(names)


# Trees and forests ---------------------------------------------------------------------------------------------------


def _tree(model: Any) -> Oracle:
    """One decision tree: its leaves hold probabilities."""
    return _numbers_oracle(model, [_votes(model, [model], divisor=1.0)], missing=model._support_missing_values(_NO_ROWS))


def _forest(model: Any) -> Oracle:
    """A mean of trees, summed in order."""
    trees = model.estimators_
    missing = trees[0]._support_missing_values(_NO_ROWS)
    return _numbers_oracle(model, [_votes(model, trees, divisor=float(len(trees)))], missing=missing)


def _votes(model: Any, trees: Sequence[Any], divisor: float) -> Member:
    n_classes = len(model.classes_)
    return Member(
        trees=[read_tree(tree.tree_, tree.tree_.value[:, 0, :n_classes]) for tree in trees],
        n_outputs=n_classes,
        link=Link.IDENTITY,
        start=np.zeros(n_classes),
        classes=tuple(range(n_classes)),
        divisor=divisor,
    )


def read_tree(arrays: Any, value: F8, output: int = 0) -> Tree:
    """Bring the arrays of a fitted scikit-learn tree into the common form, with a value per node."""
    leaf = arrays.children_left < 0
    return Tree(
        feature=np.where(leaf, -1, arrays.feature),
        threshold=floor_to_single(arrays.threshold),
        left=arrays.children_left.astype(np.int64),
        right=arrays.children_right.astype(np.int64),
        value=np.array(value, dtype=np.float64, order="C"),
        missing_left=arrays.missing_go_to_left.astype(bool),
        output=output,
    )


def floor_to_single(thresholds: F8) -> F8:
    """Largest float32 at or below each threshold, so that ``float64(x32) <= threshold`` needs float32 only."""
    nearest = thresholds.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest > thresholds, below, nearest).astype(np.float64)


def _numbers_oracle(model: Any, members: Sequence[Member], *, missing: bool) -> TreeOracle:
    """Make the oracle of a model that casts its table to float32."""
    names = feature_names(model)
    return TreeOracle(
        members=members,
        classes=np.asarray(model.classes_),
        live=BlackBoxOracle(model),
        read=NumberReader(model.n_features_in_, names, "float32", missing),
        n_features=model.n_features_in_,
        single=True,
        feature_names=names,
    )


_NO_ROWS = np.empty((0, 0))  # asked only whether it is sparse


# Refusals ------------------------------------------------------------------------------------------------------------


def _refuse_unfitted(model: Any) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError:
        raise ModelError(f"This {type(model).__name__} is not fitted. Call its fit first.") from None


def _refuse_other_tasks(model: Any) -> None:
    from sklearn.base import is_classifier

    name = type(model).__name__
    if not is_classifier(model):
        raise UnsupportedModelError(f"{name} is not a classifier. Contrasts need classes: give a classifier.")
    if getattr(model, "n_outputs_", 1) != 1 or isinstance(getattr(model, "classes_", None), list):
        raise UnsupportedModelError(f"{name} predicts several outputs. Give one classifier for each output.")


# What reads a model, by the name of its class or the nearest base class -----------------------------------------------

_KINDS: dict[str, Callable[[Any], Oracle]] = {
    "DecisionTreeClassifier": _tree,  # and ExtraTreeClassifier
    "ForestClassifier": _forest,  # random forests, extra trees, balanced random forests
}
