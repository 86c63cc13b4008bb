"""scikit-learn: trees, forests and boosters as tables; every other classifier as what it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from macem.adapters import oracle_for
from macem.adapters import sklearn_composites as composites
from macem.adapters.blackbox import FirstColumn
from macem.adapters.composed import over_members
from macem.adapters.pipelines import pipeline_oracle
from macem.adapters.readers import NumberReader, check_width, columns_by_name, feature_names
from macem.errors import DataError, MacemWarning, ModelError, UnsupportedModelError, sentence
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Oracle, Reader, TreeOracle, has_several_outputs
from macem.trees import Link, Member, Tree, constant, rename_features

__all__ = ["SklearnAdapter"]


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
        read = next((_READERS[base.__name__] for base in type(model).__mro__ if base.__name__ in _READERS), None)
        if read is None:
            return BlackBoxOracle(model, note=f"a {type(model).__name__} is not made of trees")
        stranger = _overriding_class(model)
        if stranger:
            return not_understood(model, f"its class {stranger} answers with methods of its own")
        return read(model)


# Trees and forests ---------------------------------------------------------------------------------------------------


def _tree(model: Any) -> Oracle:
    """One decision tree: its leaves hold probabilities."""
    missing = model._support_missing_values(_NO_ROWS)
    return _numbers_oracle(model, [_votes(model, [model], divisor=1.0)], missing=missing, by_probability=True)


def _forest(model: Any) -> Oracle:
    """A mean of trees, summed in order."""
    trees = model.estimators_
    missing = trees[0]._support_missing_values(_NO_ROWS)
    member = _votes(model, trees, divisor=float(len(trees)))
    return _numbers_oracle(model, [member], missing=missing, by_probability=True)


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


def _numbers_oracle(
    model: Any,
    members: Sequence[Member],
    *,
    missing: bool,
    kind: type[TreeOracle] = TreeOracle,
    by_probability: bool = False,
) -> TreeOracle:
    """Make the oracle of a model that casts its table to float32."""
    names = feature_names(model)
    return kind(
        members=members,
        classes=np.asarray(model.classes_),
        live=BlackBoxOracle(model, by_probability=by_probability),
        read=NumberReader(model.n_features_in_, names, "float32", missing),
        n_features=model.n_features_in_,
        single=True,
        feature_names=names,
    )


_NO_ROWS = np.empty((0, 0))  # asked only whether it is sparse


# Boosters ------------------------------------------------------------------------------------------------------------

_CONSTANT_STRATEGIES = {"prior", "most_frequent", "constant", "uniform"}  # of a DummyClassifier: they ignore the row
_LOSS_SLOPES = {"HalfBinomialLoss": 1.0, "HalfMultinomialLoss": 1.0, "ExponentialLoss": 2.0}


def _gradient_boosting(model: Any) -> Oracle:
    """A sum of regression trees on top of the raw scores of `init`."""
    loss = type(model._loss).__name__
    if loss not in _LOSS_SLOPES:
        return not_understood(model, f"its loss is {loss}")
    init = model.init_
    n_outputs = model.estimators_.shape[1]
    stages = [
        read_tree(tree.tree_, model.learning_rate * tree.tree_.value[:, 0, :1], output)
        for stage in model.estimators_
        for output, tree in enumerate(stage)
    ]
    start, first = np.zeros(n_outputs), []
    if isinstance(init, str) or getattr(init, "strategy", None) in _CONSTANT_STRATEGIES:
        start = model._raw_predict_init(np.zeros((1, model.n_features_in_)))[0]
    elif type(init).__name__ in ("DecisionTreeClassifier", "ExtraTreeClassifier"):
        scores = _initial_scores(model, init.tree_.value[:, 0, :])
        first = [read_tree(init.tree_, scores[:, output, None], output) for output in range(n_outputs)]
    else:
        return BlackBoxOracle(model, note=f"the raw scores of its init, a {type(init).__name__}, are no sum of trees")
    kind = PairwiseSoftmaxOracle if n_outputs >= 8 else TreeOracle
    return _numbers_oracle(model, [_boosted([*first, *stages], start, _LOSS_SLOPES[loss])], missing=False, kind=kind)


class PairwiseSoftmaxOracle(TreeOracle):
    """A gradient booster of eight or more classes, whose softmax lets NumPy sum the classes in pairs."""

    def link(self, raw: F8) -> F8:
        """From raw outputs to class probabilities, to the bit as the model does it."""
        from sklearn.utils.extmath import softmax

        return np.asarray(softmax(raw))


def _initial_scores(model: Any, probabilities: F8) -> F8:
    """Raw scores that a gradient booster starts from where its `init` answers with these probabilities."""
    stand_in = copy(model)
    stand_in.init_ = _Answer(probabilities)
    return np.asarray(stand_in._raw_predict_init(np.zeros((len(probabilities), model.n_features_in_))))


@dataclass(frozen=True)
class _Answer:
    """A classifier that has one answer to everything."""

    probabilities: F8

    def predict_proba(self, X: Any) -> F8:
        return self.probabilities


def _boosted(trees: Sequence[Tree], start: F8, slope: float = 1.0) -> Member:
    """Put trees behind a sigmoid (one output) or a softmax (one output per class)."""
    n_outputs = len(start)
    return Member(
        trees=trees,
        n_outputs=n_outputs,
        link=Link.SIGMOID if n_outputs == 1 else Link.SOFTMAX_NUMPY,
        start=start,
        classes=(0, 1) if n_outputs == 1 else tuple(range(n_outputs)),
        slope=slope,
    )


def _hist_gradient_boosting(model: Any) -> Oracle:
    """A sum of trees over float64 numbers and category codes, on top of a baseline."""
    if len(model.classes_) == 1:
        return _one_class(model)
    names, n_features = feature_names(model), model.n_features_in_
    read: Reader = NumberReader(n_features, names, "float64", missing=True, infinite=True)
    position = np.arange(n_features)
    if model._preprocessor is not None:
        position = np.argsort(~model.is_categorical_, kind="stable")  # its trees see the categorical columns first
        codes = model._bin_mapper.bin_thresholds_[: model.is_categorical_.sum()]
        n_known = np.array([len(known) for known in codes])
        read = CategoryReader(n_features, names, model._preprocessor, position, n_known)
    trees = [
        _hist_tree(predictor, output) for iteration in model._predictors for output, predictor in enumerate(iteration)
    ]
    member = rename_features(_boosted(trees, model._baseline_prediction.ravel()), position)
    return TreeOracle(
        members=[member],
        classes=np.asarray(model.classes_),
        live=BlackBoxOracle(model),
        read=read,
        n_features=n_features,
        single=False,
        feature_names=names,
    )


def _hist_tree(predictor: Any, output: int) -> Tree:
    nodes = predictor.nodes
    leaf = nodes["is_leaf"].astype(bool)
    bits = np.unpackbits(predictor.raw_left_cat_bitsets.astype("<u4").view(np.uint8), axis=1, bitorder="little")
    return Tree(
        feature=np.where(leaf, -1, nodes["feature_idx"]),
        threshold=nodes["num_threshold"].astype(np.float64),
        left=nodes["left"].astype(np.int64),
        right=nodes["right"].astype(np.int64),
        value=nodes["value"].astype(np.float64)[:, None],
        missing_left=nodes["missing_go_to_left"].astype(bool),
        output=output,
        categories={
            int(node): np.flatnonzero(bits[nodes["bitset_idx"][node]])
            for node in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~leaf)
        },
    )


@dataclass(frozen=True)
class CategoryReader:
    """Numbers, and the codes that HistGradientBoosting's own encoder gives to categories.

    Attributes
    ----------
    n_features : int
    names : tuple of str or None
        The columns as the model knows them.
    encoder : ColumnTransformer
        The model's own; it moves the categorical columns first.
    position : ndarray of int, shape (n_features,)
        Where the encoder's columns stand in the user's table.
    n_known : ndarray of int, shape (n_categorical,)
        How many categories the model knows; every other counts as missing.
    """

    n_features: int
    names: tuple[Any, ...] | None
    encoder: Any
    position: NDArray[np.int64]
    n_known: NDArray[np.int64]

    @property
    def known_categories(self) -> dict[int, NDArray[Any]]:
        """The categories of each categorical column, by feature."""
        known = self.encoder.named_transformers_["encoder"].categories_
        return {int(feature): levels for feature, levels in zip(self.position, known, strict=False)}

    def __call__(self, X: Any) -> F8:
        table = columns_by_name(X, self.names)
        check_width(table if hasattr(table, "columns") else np.asarray(table), self.n_features)
        table = _as_fitted(table, self.names)
        codes = np.empty(table.shape)
        if not len(table):
            return codes
        try:
            encoded = np.asarray(self.encoder.transform(table), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"The model cannot read this table: {sentence(error)} Give it values that it takes."
            ) from error
        categories = encoded[:, : self.n_known.size]
        categories[~((categories >= 0) & (categories < self.n_known))] = np.nan
        codes[:, self.position] = encoded
        return codes


def _as_fitted(X: Any, names: tuple[Any, ...] | None) -> Any:
    """Make a table a DataFrame where the model was fitted on one, otherwise an array."""
    if names is None or hasattr(X, "columns"):
        return X if names is not None else np.asarray(X)

    return pd.DataFrame(X, columns=list(names)).infer_objects()


def _ada_boost(model: Any) -> Oracle:
    """Weighted votes of decision trees; of other classifiers, their weighted votes through their own oracles."""
    trees = model.estimators_
    if len(model.classes_) == 1:
        return _numbers_oracle(model, [replace(_votes(model, trees[:1], 1.0), trees=[constant([1.0])])], missing=False)
    if not all(type(tree).__name__ in ("DecisionTreeClassifier", "ExtraTreeClassifier") for tree in trees):
        return over_members(model, "its trees are not single trees")
    n_classes = len(model.classes_)
    voters = []
    for tree, weight in zip(trees, model.estimator_weights_, strict=False):  # there are zero weights to spare
        winner = tree.classes_[tree.tree_.value[:, 0, :].argmax(axis=1)]
        value = np.where(winner[:, None] == model.classes_, weight, -1 / (n_classes - 1) * weight)
        voters.append(read_tree(tree.tree_, value))
    member = Member(
        trees=voters,
        n_outputs=n_classes,
        link=Link.ADABOOST,
        start=np.zeros(n_classes),
        classes=tuple(range(n_classes)),
        divisor=float(model.estimator_weights_.sum()),
    )
    return _numbers_oracle(model, [member], missing=False)


# Models that only delegate -------------------------------------------------------------------------------------------


def _best_of_search(model: Any) -> Oracle:
    """Of a search, the estimator that it found."""
    if not hasattr(model, "best_estimator_"):
        raise ModelError(f"This {type(model).__name__} kept no best estimator. Fit it with refit=True.")
    return oracle_for(model.best_estimator_)


def _one_class(model: Any) -> Oracle:
    """A model that has seen one class, and is sure of it."""
    names, n_features = feature_names(model), model.n_features_in_
    return TreeOracle(
        members=[Member([constant([1.0])], 1, Link.IDENTITY, np.zeros(1), classes=(0,))],
        classes=np.asarray(model.classes_),
        live=BlackBoxOracle(FirstColumn(model), classes=model.classes_),
        read=NumberReader(n_features, names, "float64", missing=True, infinite=True),
        n_features=n_features,
        single=False,
        feature_names=names,
    )


# Refusals ------------------------------------------------------------------------------------------------------------


def _refuse_unfitted(model: Any) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError:
        if getattr(model, "classes_", None) is not None:  # a threshold on a fitted model, which needs no fit itself
            return
        raise ModelError(f"This {type(model).__name__} is not fitted. Call its fit method first.") from None


def _refuse_other_tasks(model: Any) -> None:
    from sklearn.base import is_classifier

    name = type(model).__name__
    if not is_classifier(model):
        raise UnsupportedModelError(f"{name} is not a classifier, and contrasts need classes. Give a classifier.")
    if has_several_outputs(model):
        raise UnsupportedModelError(f"{name} predicts several outputs. Give one classifier for each output.")


def not_understood(model: Any, reason: str) -> BlackBoxOracle:
    """Ask a model as a black box, and warn that it was meant to be a table."""
    warnings.warn(MacemWarning(f"The model is asked as a black box: {reason}."), stacklevel=4)
    return BlackBoxOracle(model, note=reason)


def _overriding_class(model: Any) -> str | None:
    """Name of a class, foreign to scikit-learn, whose methods answer instead of those that were understood."""
    for method in ("predict_proba", "predict", "decision_function"):
        if method in vars(model):
            return type(model).__name__
        owner = next((base for base in type(model).__mro__ if method in vars(base)), None)
        if owner is not None and owner.__module__.partition(".")[0] not in ("sklearn", "imblearn"):
            return owner.__name__
    return None


# What reads a model, by the name of its class or of its nearest base class -------------------------------------------

_READERS: dict[str, Callable[[Any], Oracle]] = {
    "AdaBoostClassifier": _ada_boost,
    "BaggingClassifier": composites.bagging,
    "BaseSearchCV": _best_of_search,
    "BaseThresholdClassifier": composites.thresholded,
    "CalibratedClassifierCV": composites.calibrated,
    "DecisionTreeClassifier": _tree,  # and ExtraTreeClassifier
    "ForestClassifier": _forest,  # random forests, extra trees, balanced random forests
    "FrozenEstimator": lambda model: oracle_for(model.estimator),
    "GradientBoostingClassifier": _gradient_boosting,
    "HistGradientBoostingClassifier": _hist_gradient_boosting,
    "OneVsRestClassifier": partial(over_members, reason="the probabilities of its members are normalised"),
    "Pipeline": pipeline_oracle,
    "RFE": composites.selected,  # and RFECV
    "SelfTrainingClassifier": lambda model: oracle_for(model.estimator_),
    "StackingClassifier": partial(
        over_members, reason="its final estimator sees the answers of its members, not the table"
    ),
    "VotingClassifier": composites.voting,
}
