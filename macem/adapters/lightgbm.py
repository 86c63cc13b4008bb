"""LightGBM: classifiers and boosters, read from the text form that LightGBM saves."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from macem.adapters.blackbox import FirstColumn
from macem.errors import DataError, MacemWarning, ModelError, UnsupportedModelError, sentence
from macem.kernel import F8, NEAR_ZERO
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle
from macem.trees import Link, Member, Tree

__all__ = ["LightGBMAdapter", "LightGBMReader", "load"]

FORMAT = "v4"  # the text form of every LightGBM since 4.0
CODES = 2.0**31  # a category code that is not below is in no set

LINKS = {
    "binary": Link.SIGMOID,
    "cross_entropy": Link.SIGMOID,
    "multiclass": Link.SOFTMAX,
    "multiclassova": Link.SIGMOID_EACH,
}


class LightGBMAdapter:
    """Reads ``LGBMClassifier`` and ``Booster`` into a table that answers as they do, to the bit.

    Linear trees and predictions that stop early are no sums of constants, and stay black boxes.
    """

    def oracle(self, model: Any) -> Oracle:
        """Read a trained classifier.

        Parameters
        ----------
        model : lightgbm.LGBMClassifier or lightgbm.Booster
            Both use their best iteration after early stopping. The classes of a Booster are 0, 1, …

        Returns
        -------
        Oracle
            A table, or a black box whose `note` says why.

        Raises
        ------
        ModelError
            If the model is not trained.
        UnsupportedModelError
            If it gives no class probabilities: a regressor, a ranker, an objective of the user's own.
        """
        booster = _booster(model)
        text, _, parameters = booster.model_to_string().partition("\nend of trees")
        head, *blocks = text.split("\nTree=")
        header, trees = _fields(head), [_fields(block) for block in blocks]
        objective, options = _objective(header, model)
        n_outputs = int(header["num_tree_per_iteration"])
        n_columns = max(2, n_outputs)
        names = tuple(booster.feature_name())
        classes, answers = np.arange(n_columns), model
        if model is booster:
            answers = _BoosterAnswers(booster, names)
        else:
            classes = np.asarray(model.classes_)
            if len(classes) == 1:
                answers = FirstColumn(model)
            elif len(classes) != n_columns:
                raise UnsupportedModelError(
                    f"{_name(model)} has {len(classes)} classes but {n_columns} probabilities. "
                    "Fit it with a num_class that is the number of its labels."
                )
        note = _why_no_table(model, header, trees, classes)
        live = BlackBoxOracle(answers, classes=classes, note=note, one_vs_all=objective == "multiclassova")
        if note:
            warnings.warn(MacemWarning(f"{_name(model)} is asked as a black box: {note}."), stacklevel=3)
            return live
        member = Member(
            trees=[_tree(fields, place % n_outputs) for place, fields in enumerate(trees)],
            n_outputs=n_outputs,
            link=LINKS[objective],
            start=np.zeros(n_outputs),
            classes=tuple(range(n_columns)),
            slope=_slope(options, booster),
            divisor=float(len(trees) // n_outputs) if "average_output" in header else 1.0,
        )
        read = LightGBMReader(
            n_features=booster.num_feature(),
            names=names,
            sets=tuple(sorted({int(tree.feature[node]) for tree in member.trees for node in tree.categories})),
            categories=booster.pandas_categorical,
            declared=_declared(parameters),
            objects="float32" if model is booster else "float64",
            by_position=model is not booster,
        )
        return TreeOracle(
            members=[member],
            classes=classes,
            live=live,
            read=read,
            n_features=read.n_features,
            single=False,
            feature_names=None if _are_made_up(names) else names,
        )


def load(path: str | PathLike[str]) -> Any:
    """Load a ``.txt`` model file as a ``lightgbm.Booster``.

    Raises
    ------
    ModelError
        If LightGBM can not read the file.
    """
    import lightgbm

    try:
        return lightgbm.Booster(model_file=fspath(path))
    except lightgbm.basic.LightGBMError as error:
        raise ModelError(
            f"{path} is no LightGBM model: {sentence(error)} Save one with booster.save_model(path)."
        ) from error


@dataclass(frozen=True)
class LightGBMReader:
    """From a table to numbers and category codes, with LightGBM's own casts.

    Parameters
    ----------
    n_features : int
    names : tuple of str
        Columns of a DataFrame that has them all are taken by name.
    sets : tuple of int
        Features that the model asks for category sets.
    categories : list of list, or None
        The categories of each pandas categorical column, in order; None: a column's own.
    declared : tuple of int
        Features that were declared categorical in training: the pandas categorical columns, unless theirs are ordered.
    objects : str
        The dtype that an array of objects is cast to.
    by_position : bool
        Whether the columns of a DataFrame of other names are taken by position, as a classifier takes them.
    """

    n_features: int
    names: tuple[str, ...]
    sets: tuple[int, ...]
    categories: list[list[Any]] | None
    declared: tuple[int, ...]
    objects: str
    by_position: bool

    @property
    def known_categories(self) -> dict[int, list[Any]]:
        """The categories of each pandas categorical column, by feature; empty where it is not known which they are."""
        stored = self.categories or []
        return dict(zip(self.declared, stored, strict=True)) if len(stored) == len(self.declared) else {}

    def __call__(self, X: Any) -> F8:
        """Read a table, shape (n, n_features).

        Raises
        ------
        DataError
            If LightGBM would not take the table.
        """
        numbers = self._frame(_in_order(X, self.names, self.by_position)) if hasattr(X, "columns") else self._array(X)
        if numbers.ndim != 2 or numbers.shape[1] != self.n_features:
            raise DataError(
                f"The table has shape {numbers.shape}. "
                f"Give the {self.n_features} columns that the model was trained with."
            )
        numbers[np.abs(numbers) <= NEAR_ZERO] = 0.0
        for feature in self.sets:
            codes = np.trunc(numbers[:, feature])
            numbers[:, feature] = np.where((codes < 0.0) | (codes >= CODES), -1.0, codes)
        return numbers

    def _array(self, X: ArrayLike) -> F8:
        """LightGBM keeps float32 and float64, and casts everything else to float32."""
        array = np.asarray(X)
        if array.dtype.kind not in "biufO":
            raise DataError(f"The table holds {array.dtype}, which LightGBM does not take. Give numbers.")
        if array.dtype == object:
            try:
                array = array.astype(self.objects)
            except (TypeError, ValueError) as error:
                raise DataError(f"The table holds something that is no number: {error}. Give numbers.") from error
        elif array.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            array = array.astype(np.float32)
        return array.astype(np.float64, order="C")

    def _frame(self, frame: Any) -> F8:
        """Of a DataFrame LightGBM keeps every number, and numbers pandas categories as it was trained."""
        dtypes = frame.dtypes.tolist()  # at once: a frame takes longer to tell them than a row to be read
        encoded = [place for place, dtype in enumerate(dtypes) if isinstance(dtype, pd.CategoricalDtype)]
        plain = [place for place in range(frame.shape[1]) if place not in encoded]
        for place in plain:
            if dtypes[place].kind not in "biuf":
                raise DataError(
                    f"Column {frame.columns[place]!r} has dtype {dtypes[place]}, which LightGBM does not take. "
                    "Give numbers or pandas categories."
                )
        categories = [None] * len(encoded) if self.categories is None else self.categories
        if len(encoded) != len(categories):
            raise DataError(
                f"The table has {len(encoded)} columns of dtype category, and the model was trained with "
                f"{len(categories)}. Give columns of the dtypes that it was trained with."
            )
        numbers = np.empty(frame.shape)
        if plain:
            numbers[:, plain] = frame.iloc[:, plain].to_numpy(dtype=np.float64, na_value=np.nan)
        for place, known in zip(encoded, categories, strict=True):
            column = frame.iloc[:, place].cat
            codes = (column if known is None else column.set_categories(known).cat).codes.to_numpy(dtype=np.float64)
            numbers[:, place] = np.where(codes < 0.0, np.nan, codes)
        return numbers


@dataclass(frozen=True)
class _BoosterAnswers:
    """A Booster as a function from a table to one probability per class."""

    booster: Any
    names: tuple[str, ...]

    def __call__(self, X: Any) -> F8:
        answer = np.asarray(self.booster.predict(_in_order(X, self.names, by_position=False)))
        return answer if answer.ndim == 2 else np.column_stack([1.0 - answer, answer])


def _booster(model: Any) -> Any:
    """Get at the Booster, or refuse the model."""
    import lightgbm

    if isinstance(model, lightgbm.Booster):
        return model
    if hasattr(model, "to_local"):
        raise UnsupportedModelError(f"{_name(model)} predicts on a cluster. Give its to_local() instead.")
    if not isinstance(model, lightgbm.LGBMClassifier):
        raise UnsupportedModelError(f"{_name(model)} is no classifier. Give an LGBMClassifier, or the Booster of one.")
    if not model.__sklearn_is_fitted__():
        raise ModelError(f"{_name(model)} is not fitted. Call its fit method before it is explained.")
    return model.booster_


def _in_order(X: Any, names: tuple[str, ...], by_position: bool) -> Any:
    """Bring the columns of a DataFrame into the model's order; LightGBM itself never looks."""
    if not hasattr(X, "columns"):
        return X
    if by_position:
        return X[list(names)] if set(names) <= set(X.columns) else X
    labels = [str(label).replace(" ", "_") for label in X.columns]  # as LightGBM does with the names that it is given
    if set(names) <= set(labels):
        return X.iloc[:, [labels.index(name) for name in names]]
    if labels == [str(place) for place in range(len(labels))]:
        return X
    raise DataError(
        f"The Booster knows the features {list(names)}, so the columns {labels} cannot be told apart from each other. "
        "Name the columns as the features, or give an array in the order of training."
    )


def _name(model: Any) -> str:
    return f"The model ({type(model).__qualname__})"


def _are_made_up(names: tuple[str, ...]) -> bool:
    """Whether LightGBM named the features itself."""
    return names == tuple(f"Column_{place}" for place in range(len(names)))


def _fields(block: str) -> dict[str, str]:
    return {name: value for name, _, value in (line.partition("=") for line in block.split("\n"))}


def _declared(parameters: str) -> tuple[int, ...]:
    """Find the features that were declared categorical among the parameters of training."""
    found = re.search(r"\[categorical_feature: ([0-9,]+)\]", parameters)
    return tuple(int(place) for place in found[1].split(",")) if found else ()


def _objective(header: dict[str, str], model: Any) -> tuple[str, dict[str, str]]:
    """Split ``binary sigmoid:1`` into its name and its options; refuse what does not give probabilities."""
    objective, *options = header.get("objective", "").split(" ")
    if not objective:
        raise UnsupportedModelError(
            f"{_name(model)} was trained with an objective function of its own, and answers with raw scores. "
            "Give a function that turns them into class probabilities."
        )
    if objective not in LINKS:
        raise UnsupportedModelError(
            f"{_name(model)} was trained for {objective!r}, which gives no class probabilities. "
            f"Give a model trained for one of {', '.join(LINKS)}."
        )
    return objective, dict(option.split(":") for option in options if ":" in option)


def _why_no_table(model: Any, header: dict[str, str], trees: list[dict[str, str]], classes: NDArray[Any]) -> str:
    """Say why the model is not read into a table; empty where it is."""
    if header["version"] != FORMAT:
        return f"its text form is {header['version']}, and only {FORMAT} is known"
    if len(classes) == 1:
        return "it knows one class only"
    if any(fields["is_linear"] == "1" for fields in trees):
        return "its leaves are linear functions (linear_tree), not constants"
    if hasattr(model, "predict_proba"):
        owner = next(base for base in type(model).__mro__ if "predict_proba" in vars(base))
        if not owner.__module__.startswith("lightgbm."):
            return f"its class {owner.__name__} has a predict_proba of its own"
        if str(model.get_params().get("pred_early_stop", False)).lower() not in {"false", "-"}:
            return "its predictions stop early (pred_early_stop)"
    asked: dict[int, set[int]] = {0: set(), 1: set()}
    for fields in trees:
        for feature, decision in zip(
            _integers(fields["split_feature"]), _integers(fields["decision_type"]), strict=True
        ):
            asked[decision & 1].add(feature)
    if asked[0] & asked[1]:
        return f"it asks feature {min(asked[0] & asked[1])} as a number in some trees and as a category in others"
    return ""


def _slope(options: dict[str, str], booster: Any) -> float:
    """Find the factor inside the sigmoid.

    The text form has six digits of it, and a trained model is one read back from its text; but not if it still holds
    its training data (keep_training_booster).
    """
    if "sigmoid" not in options:
        return 1.0
    exact = booster.params.get("sigmoid") if hasattr(booster, "train_set") else None
    return _as_lightgbm_parses(str(exact or options["sigmoid"]))


def _as_lightgbm_parses(text: str) -> float:
    """Parse a positive number with the arithmetic of LightGBM's own parser, which does not always round correctly."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = 0.0
    for digit in fraction:
        digits = float(digit) + digits * 10.0
    value = float(whole or 0) + digits / 10.0 ** len(fraction)
    scale = 10.0 ** abs(int(exponent or 0))
    return value / scale if exponent.startswith("-") else value * scale


def _integers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def _floats(text: str) -> F8:
    return np.array([float(word) for word in text.split()], dtype=np.float64)


def _tree(fields: dict[str, str], output: int) -> Tree:
    """Bring one tree into the common form: its inner nodes first, then its leaves."""
    leaves = _floats(fields["leaf_value"])
    n_inner = leaves.size - 1
    n_nodes = n_inner + leaves.size
    decision = np.array(_integers(fields["decision_type"]), dtype=np.int64)
    feature, left, right = np.full(n_nodes, -1), np.zeros(n_nodes, np.int64), np.zeros(n_nodes, np.int64)
    threshold, value = np.zeros(n_nodes), np.zeros((n_nodes, 1))
    missing_left, zero_is_missing = np.zeros(n_nodes, bool), np.zeros(n_nodes, bool)
    feature[:n_inner] = _integers(fields["split_feature"])
    threshold[:n_inner] = _beside_zero(_floats(fields["threshold"]))
    left[:n_inner] = _children(fields["left_child"], n_inner)
    right[:n_inner] = _children(fields["right_child"], n_inner)
    value[n_inner:, 0] = leaves

    categorical, default_left, missing = decision & 1 == 1, decision & 2 == 2, decision >> 2 & 3
    zero_left = threshold[:n_inner] >= 0.0
    # missing type none (0): NaN counts as zero; zero (1): zero counts as NaN; nan (2). Zero needs a flag only where
    # its default is not the way that the comparison sends it.
    missing_left[:n_inner] = np.where(missing == 0, zero_left, default_left) & ~categorical
    zero_is_missing[:n_inner] = (missing == 1) & (default_left != zero_left) & ~categorical
    return Tree(
        feature=feature,
        threshold=threshold,
        left=left,
        right=right,
        value=value,
        missing_left=missing_left,
        output=output,
        categories=_categories(fields, np.flatnonzero(categorical), threshold),
        zero_is_missing=zero_is_missing if zero_is_missing.any() else None,
    )


def _beside_zero(thresholds: F8) -> F8:
    """Move thresholds out of what is read as zero, so that the next number on either side is read there."""
    beside = np.where(thresholds < 0.0, np.nextafter(-NEAR_ZERO, -np.inf), NEAR_ZERO)
    return np.where(np.abs(thresholds) <= NEAR_ZERO, beside, thresholds)


def _children(text: str, n_inner: int) -> NDArray[np.int64]:
    """LightGBM writes leaf c as ~c."""
    child = np.array(_integers(text), dtype=np.int64)
    return np.where(child >= 0, child, n_inner + ~child)


def _categories(fields: dict[str, str], nodes: NDArray[np.int64], threshold: F8) -> dict[int, NDArray[np.int64]]:
    """Read the bit sets, of which the threshold of a categorical node is the number."""
    if not nodes.size:
        return {}
    first = _integers(fields["cat_boundaries"])
    words = np.array(_integers(fields["cat_threshold"]), dtype="<u4")
    sets = {}
    for node in nodes:
        place = int(threshold[node])
        bits = np.unpackbits(words[first[place] : first[place + 1]].view(np.uint8), bitorder="little")
        sets[int(node)] = np.flatnonzero(bits)
    return sets
