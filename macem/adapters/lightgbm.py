"""LightGBM: classifiers and boosters, read from the text form that LightGBM saves."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macem.errors import DataError, MacemWarning, ModelError, UnsupportedModelError
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle
from macem.trees import Link, Member, Tree

__all__ = ["LightGBMAdapter", "LightGBMReader", "load"]

FORMAT = "v4"  # the text form of every LightGBM since 4.0
ZERO = float(np.float32(1e-35))  # LightGBM takes anything closer to zero for zero
CODES = 2.0**31  # a category code that is not below is in no set
MAX_SET_BITS = 2**31  # of all category sets together, 256 MB

LINKS = {
    "binary": Link.SIGMOID,
    "cross_entropy": Link.SIGMOID,
    "multiclass": Link.SOFTMAX,
    "multiclassova": Link.SIGMOID_EACH,
}


class LightGBMAdapter:
    """Reads ``LGBMClassifier`` and ``Booster`` into a table that answers as they do, to the bit.

    Linear trees and early-stopped predictions are no sums of constants, and stay black boxes.
    """

    def oracle(self, model: Any) -> Oracle:
        """Read a fitted model.

        Raises
        ------
        ModelError
            If the model was not fitted.
        UnsupportedModelError
            If it does not answer with class probabilities: a regressor, a ranker, an objective of the user's own.
        """
        import lightgbm

        if isinstance(model, lightgbm.Booster):
            booster = model
        elif hasattr(model, "to_local"):
            raise UnsupportedModelError(f"{_name(model)} asks a cluster. Give model.to_local() instead.")
        elif not hasattr(model, "predict_proba"):
            raise UnsupportedModelError(
                f"{_name(model)} has no class probabilities. Give an LGBMClassifier or a Booster."
            )
        elif not model.__sklearn_is_fitted__():
            raise ModelError(f"{_name(model)} is not fitted. Call its fit method before it is explained.")
        else:
            booster = model.booster_
        head, *blocks = booster.model_to_string().partition("\nend of trees")[0].split("\nTree=")
        header, trees = _fields(head), [_fields(block) for block in blocks]
        objective = _objective(header, model)
        n_outputs = int(header["num_tree_per_iteration"])
        classes = np.arange(max(2, n_outputs)) if model is booster else np.asarray(model.classes_)
        names = _names(booster)
        live: Any = _Answers(booster, names) if model is booster else model
        if len(classes) == 1:
            live, note = _FirstColumn(model), "it knows one class only"
        elif len(classes) != max(2, n_outputs):
            raise UnsupportedModelError(
                f"{_name(model)} has {len(classes)} classes but answers with {max(2, n_outputs)} probabilities. "
                "Fit it with a num_class that fits its labels."
            )
        else:
            note = _why_not(header, trees, model)
        one_vs_all = objective["name"] == "multiclassova"
        asked = BlackBoxOracle(live, classes=classes, note=note, one_vs_all=one_vs_all)
        if note:
            warnings.warn(MacemWarning(f"{_name(model)} is asked as a black box: {note}."), stacklevel=2)
            return asked
        link = LINKS[objective["name"]]
        member = Member(
            trees=[_tree(fields, place % n_outputs) for place, fields in enumerate(trees)],
            n_outputs=n_outputs,
            link=link,
            start=np.zeros(n_outputs),
            classes=tuple(range(len(classes))),
            slope=_slope(objective, booster),
            divisor=float(len(trees) // n_outputs) if "average_output" in header else 1.0,
        )
        sets = sorted({int(tree.feature[node]) for tree in member.trees for node in tree.categories})
        read = LightGBMReader(
            n_features=booster.num_feature(),
            names=names,
            sets=tuple(sets),
            categories=booster.pandas_categorical,
            objects=np.dtype(np.float32 if model is booster else np.float64),
        )
        return TreeOracle(
            members=[member],
            classes=classes,
            live=asked,
            read=read,
            n_features=read.n_features,
            single=False,
            feature_names=names,
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
        raise ModelError(f"{path} is no LightGBM model: {error} Save one with booster.save_model(path).") from error


@dataclass(frozen=True)
class LightGBMReader:
    """From a table to numbers and category codes, with LightGBM's own casts.

    Parameters
    ----------
    n_features : int
    names : tuple of str, or None
        Columns of a DataFrame that has them all are taken by name, others by position.
    sets : tuple of int
        Features that the model asks for category sets.
    categories : list of list, or None
        The categories of each pandas categorical column, in order; None: a column's own.
    objects : dtype
        What an array of objects is cast to.
    """

    n_features: int
    names: tuple[str, ...] | None
    sets: tuple[int, ...]
    categories: list[list[Any]] | None
    objects: np.dtype[Any]

    def __call__(self, X: Any) -> F8:
        """Read a table, shape (n, n_features).

        Raises
        ------
        DataError
            If LightGBM would not take the table.
        """
        numbers = self._frame(_in_order(X, self.names)) if hasattr(X, "columns") else self._array(X)
        if numbers.ndim != 2 or numbers.shape[1] != self.n_features:
            raise DataError(
                f"The table has shape {numbers.shape}. Give the {self.n_features} columns that the model was fitted with."
            )
        numbers[np.abs(numbers) <= ZERO] = 0.0
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
            array = array.astype(self.objects)
        elif array.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            array = array.astype(np.float32)
        return array.astype(np.float64, order="C")

    def _frame(self, frame: Any) -> F8:
        """Of a DataFrame LightGBM keeps every number, and numbers pandas categories as it was trained."""
        import pandas as pd

        encoded = [place for place, dtype in enumerate(frame.dtypes) if isinstance(dtype, pd.CategoricalDtype)]
        plain = [place for place in range(frame.shape[1]) if place not in encoded]
        for place in plain:
            if frame.dtypes.iloc[place].kind not in "biuf":
                raise DataError(
                    f"Column {frame.columns[place]!r} has dtype {frame.dtypes.iloc[place]}, which LightGBM does not take. "
                    "Give numbers or pandas categories."
                )
        categories = [None] * len(encoded) if self.categories is None else self.categories
        if len(encoded) != len(categories):
            raise DataError(
                f"The table has {len(encoded)} columns of dtype category, the model was trained with {len(categories)}. "
                "Give columns of the dtypes that the model was fitted with."
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
class _Answers:
    """A booster as a function from a table to the probabilities of all classes."""

    booster: Any
    names: tuple[str, ...] | None

    def __call__(self, X: Any) -> F8:
        answer = np.asarray(self.booster.predict(_in_order(X, self.names)))
        return answer if answer.ndim == 2 else np.column_stack([1.0 - answer, answer])


@dataclass(frozen=True)
class _FirstColumn:
    """A classifier of one class, which answers with a second column that belongs to none."""

    model: Any

    def __call__(self, X: Any) -> F8:
        return np.asarray(self.model.predict_proba(X))[:, :1]


def _in_order(X: Any, names: tuple[str, ...] | None) -> Any:
    """Bring the columns of a DataFrame into the model's order, where it knows them; LightGBM itself never looks."""
    if names is None or not hasattr(X, "columns") or not set(names) <= set(X.columns):
        return X
    return X[list(names)]


def _name(model: Any) -> str:
    return f"The model ({type(model).__qualname__})"


def _names(booster: Any) -> tuple[str, ...] | None:
    """Names of the features; None where LightGBM made them up."""
    names = tuple(booster.feature_name())
    return None if names == tuple(f"Column_{place}" for place in range(len(names))) else names


def _fields(block: str) -> dict[str, str]:
    return {name: value for name, _, value in (line.partition("=") for line in block.split("\n"))}


def _objective(header: dict[str, str], model: Any) -> dict[str, str]:
    """Split ``binary sigmoid:1`` into its name and its options; refuse what does not give probabilities."""
    name, *options = header.get("objective", "").split(" ")
    if not name:
        raise UnsupportedModelError(
            f"{_name(model)} was trained with an objective function of its own, and answers with raw scores. "
            "Give a function that turns them into class probabilities."
        )
    if name not in LINKS:
        raise UnsupportedModelError(
            f"{_name(model)} was trained for {name!r}, which gives no class probabilities. "
            f"Give a model trained for one of {', '.join(LINKS)}."
        )
    return {"name": name} | dict(option.split(":") for option in options if ":" in option)


def _why_not(header: dict[str, str], trees: list[dict[str, str]], model: Any) -> str:
    """Say why the model can not be read into a table; empty where it can."""
    if header.get("version") != FORMAT:
        return f"its text form is {header.get('version')}, and only {FORMAT} is known"
    if any(fields["is_linear"] == "1" for fields in trees):
        return "its leaves are linear functions (linear_tree), no constants"
    leaked = model.get_params().get("pred_early_stop", False) if hasattr(model, "get_params") else False
    if str(leaked).lower() not in {"false", "-"}:
        return "its predictions stop early (pred_early_stop)"
    asked: dict[bool, set[int]] = {False: set(), True: set()}
    n_bits = 0
    for fields in trees:
        for feature, decision in zip(
            _integers(fields["split_feature"]), _integers(fields["decision_type"]), strict=True
        ):
            asked[bool(decision & 1)].add(feature)
        n_bits += 32 * len(fields.get("cat_threshold", "").split())
    if asked[True] & asked[False]:
        return f"feature {min(asked[True] & asked[False])} is a number in some trees and a category in others"
    if n_bits > MAX_SET_BITS:
        return "its category sets would not fit into memory; number the categories from zero"
    return ""


def _slope(objective: dict[str, str], booster: Any) -> float:
    if "sigmoid" not in objective:
        return 1.0
    # The text form has six digits of it, and so has a model read back from it, which every fitted one is, but for one
    # that still holds its training data.
    live = hasattr(booster, "train_set") and booster.params.get("sigmoid")
    return _as_lightgbm_parses(str(live or objective["sigmoid"]))


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
    threshold[:n_inner] = _floats(fields["threshold"])
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
