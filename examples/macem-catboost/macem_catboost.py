"""CatBoost models for macem: an adapter plugin in one module.

A plugin turns a fitted model into trees of macem's common form (`macem.trees`), and says how a row of the user's table
becomes the numbers and category codes that those trees ask for. Everything else is macem's.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macem.errors import DataError, MacemWarning, ModelError, UnsupportedModelError
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle
from macem.trees import Link, Member, Tree, constant

__all__ = ["CatBoostAdapter", "CatBoostReader", "city_hash"]

LINKS = {
    "Logloss": Link.SIGMOID,
    "CrossEntropy": Link.SIGMOID,
    "MultiClass": Link.SOFTMAX,
    "MultiClassOneVsAll": Link.SIGMOID_EACH,
}
REFUSED = ("PythonUserDefined", "MultiLogloss", "MultiCrossEntropy")  # objectives of the user's own; multi-label


class CatBoostAdapter:
    """Reads ``CatBoostClassifier``: symmetric and other trees, one-hot features, statistics of single categories."""

    def oracle(self, model: Any) -> Oracle:
        """Read a trained classifier into a table; what no table holds stays a black box, with a warning.

        Raises
        ------
        ModelError
            If the model is not trained.
        UnsupportedModelError
            If it gives no probability per class.
        """
        if not hasattr(model, "predict_proba"):
            raise UnsupportedModelError(f"{type(model).__name__} is no classifier. Give a CatBoostClassifier.")
        if not model.is_fitted():
            raise ModelError(f"{type(model).__name__} is not fitted. Call its fit method before it is explained.")
        loss = _loss(model)
        if loss.startswith(REFUSED):
            raise UnsupportedModelError(
                f"The model was trained for {loss}, which gives no probability per class. "
                f"Give one trained for {', '.join(LINKS)}, or a function from a table to class probabilities."
            )
        if len(model.classes_) < 2:
            raise UnsupportedModelError("The model knows one class only. Give one that was trained on two or more.")
        live = BlackBoxOracle(model, one_vs_all=loss == "MultiClassOneVsAll")
        try:
            if loss not in LINKS:
                raise NoTableError(f"it was trained for {loss}, which is not understood")
            known, trees, biases = _read(_saved(model))
        except NoTableError as reason:
            warnings.warn(MacemWarning(f"The CatBoost model is asked as a black box: {reason}."), stacklevel=2)
            live.note = str(reason)
            return live
        member = Member(
            trees=[*trees, constant(biases)],
            n_outputs=len(biases),
            link=LINKS[loss],
            start=np.zeros(len(biases)),
            classes=tuple(range(len(model.classes_))),
        )
        n_features = len(model.feature_names_)
        trained_on_array = model.feature_names_ == [str(place) for place in range(n_features)]
        names = None if trained_on_array else tuple(model.feature_names_)
        return TreeOracle(
            members=[member],
            classes=np.asarray(model.classes_),
            live=live,
            read=CatBoostReader(n_features, names, known),
            n_features=n_features,
            single=True,  # CatBoost compares float32 with float32
            feature_names=names,
        )


class NoTableError(Exception):
    """Why a model cannot be read into a table."""


def _loss(model: Any) -> str:
    try:
        return str(model.get_all_params()["loss_function"]).partition(":")[0]
    except Exception:  # CatBoost's own kind of error, of a sum of models for instance
        return "an unknown loss"


# From the model to trees ---------------------------------------------------------------------------------------------

Nodes = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def _saved(model: Any) -> dict[str, Any]:
    """Save the model as JSON, the one form of it that is open to read."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        try:
            model.save_model(str(path), format="json")
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise NoTableError(f"CatBoost does not save it as JSON ({reason})") from error
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return saved


def _read(saved: Mapping[str, Any]) -> tuple[dict[int, list[int]], list[Tree], list[float]]:
    """Read the hashes of each categorical feature, the trees, and what is added to the sum of the trees."""
    features = saved["features_info"]
    categorical = features.get("categorical_features", [])
    statistics = [Statistic.of(ctr, saved["ctr_data"]) for ctr in features.get("ctrs", [])]
    known: list[set[int]] = [set(feature.get("values", [])) for feature in categorical]
    for statistic in statistics:
        known[statistic.index].update(statistic.counts)
    codes = [sorted(hashes) for hashes in known]
    positions = [feature["flat_feature_index"] for feature in categorical]

    # in the order in which CatBoost numbers them
    splits = [
        Split.above(feature["flat_feature_index"], border, missing=_missing_is_above(feature))
        for feature in features.get("float_features", [])
        for border in feature["borders"]
    ]
    splits += [
        Split.among(positions[index], codes[index], {value}, unseen=False)
        for index, feature in enumerate(categorical)
        for value in feature.get("values", [])
    ]
    splits += [
        Split.among(positions[one.index], codes[one.index], *one.above(border))
        for one in statistics
        for border in one.borders
    ]

    scale, biases = saved["scale_and_bias"]
    nodes = [_symmetric(tree, len(biases)) for tree in saved.get("oblivious_trees", [])]
    nodes += [_nested(tree) for tree in saved.get("trees", [])]
    trees = [_tree(splits, *parts) for parts in nodes]
    if scale != 1:
        trees = [replace(tree, value=scale * tree.value) for tree in trees]
    return dict(zip(positions, codes, strict=True)), trees, biases


@dataclass(frozen=True)
class Split:
    """A question of CatBoost's in the common form, in which a number goes left iff ``x <= threshold``."""

    feature: int
    threshold: float = 0.0
    missing_left: bool = False
    codes: NDArray[np.int64] | None = None
    yes_left: bool = False

    @classmethod
    def above(cls, feature: int, border: float, missing: bool) -> Split:
        """Ask whether a number is above a border; `missing` is the answer for one that is missing."""
        return cls(feature, threshold=float(np.float32(border)), missing_left=not missing)

    # --8<-- [start:among]
    @classmethod
    def among(cls, feature: int, known: Sequence[int], hashes: set[int], unseen: bool) -> Split:
        """Ask whether a category is one of some; `unseen` is the answer for one that the model does not know.

        In the common form a category in the set goes left, and every other right. So the unseen ones go right, and the
        set holds all that are answered otherwise.
        """
        inside = [(hashed in hashes) != unseen for hashed in known]
        return cls(feature, codes=np.flatnonzero(inside), yes_left=not unseen)

    # --8<-- [end:among]


LEAF = Split(-1)


@dataclass(frozen=True)
class Statistic:
    """A number that CatBoost computes from one category ("CTR"), such as its smoothed rate of positive labels."""

    index: int  # which categorical feature
    borders: Sequence[float]
    counts: Mapping[int, Sequence[float]]  # hash of a category -> what was counted of it in training
    ctr: Mapping[str, Any]
    denominator: float

    @classmethod
    def of(cls, ctr: Mapping[str, Any], tables: Mapping[str, Any]) -> Statistic:
        """Read one; a combination of features is no question about one column, and not read."""
        elements = ctr["elements"]
        if len(elements) != 1 or elements[0]["combination_element"] != "cat_feature_value":
            raise NoTableError("it combines features (max_ctr_complexity above 1)")
        if ctr["ctr_type"] not in {"Borders", "Buckets", "Counter"}:
            raise NoTableError(f"its statistics of type {ctr['ctr_type']} are not understood")
        table = tables[ctr["identifier"]]
        stride = table["hash_stride"]
        rows = [table["hash_map"][first : first + stride] for first in range(0, len(table["hash_map"]), stride)]
        counts = {hashed: row[1:] for row in rows if (hashed := _single(int(row[0]))) is not None}
        index = elements[0]["cat_feature_index"]
        return cls(index, ctr["borders"], counts, ctr, table["counter_denominator"])

    def above(self, border: float) -> tuple[set[int], bool]:
        """List the known categories whose number is above a border, and whether that of an unseen one is."""
        limit = np.float32(border)
        return {hashed for hashed in self.counts if self._value(self.counts[hashed]) > limit}, bool(
            self._value([0]) > limit
        )

    def _value(self, counts: Sequence[float]) -> np.float32:
        """Compute the number in float32, as CatBoost does."""
        kind, target = self.ctr["ctr_type"], self.ctr["target_border_idx"]
        part = {"Borders": counts[target + 1 :], "Buckets": counts[target : target + 1], "Counter": counts}[kind]
        total = self.denominator if kind == "Counter" else sum(counts)
        prior, weight, shift, scale = (
            np.float32(self.ctr[name]) for name in ("prior_numerator", "prior_denomerator", "shift", "scale")
        )
        return ((np.float32(sum(part)) + prior) / (np.float32(total) + weight) + shift) * scale


def _single(combined: int) -> int | None:
    """Undo CatBoost's hash of a combination of one category; None for what is no hash of one (an empty slot)."""
    hashed = combined * pow(MULTIPLIER * MULTIPLIER, -1, WORD) % WORD
    hashed -= WORD if hashed >= WORD // 2 else 0
    return hashed if -(2**31) <= hashed < 2**31 else None


def _missing_is_above(feature: Mapping[str, Any]) -> bool:
    """Where training saw missing values CatBoost takes one for infinity; elsewhere it is above nothing."""
    return bool(feature["has_nans"]) and feature["nan_value_treatment"] == "AsTrue"


def _symmetric(tree: Mapping[str, Any], n_outputs: int) -> Nodes:
    """Unfold a tree that asks one question per level; the children of node i are 2i + 1 and 2i + 2.

    Returns
    -------
    split : ndarray of int, shape (n_nodes,)
        The number of each node's split; -1 at a leaf.
    no, yes : ndarray of int, shape (n_nodes,)
        Its children.
    value : ndarray of float64, shape (n_nodes, n_outputs)
    """
    asked = [split["split_index"] for split in tree["splits"] or []]
    depth, n_leaves = len(asked), 2 ** len(asked)
    node = np.arange(2 * n_leaves - 1)
    split = np.full(node.size, -1)
    split[: n_leaves - 1] = np.repeat(np.array(asked, np.int64), 2 ** np.arange(depth))
    # the answer to the first split is the lowest bit of CatBoost's number of a leaf, and the highest of ours
    place = np.arange(n_leaves)
    leaf = sum((((place >> level) & 1) << (depth - 1 - level) for level in range(depth)), np.zeros_like(place))
    value = np.zeros((node.size, n_outputs))
    value[n_leaves - 1 :] = np.reshape(tree["leaf_values"], (n_leaves, n_outputs))[leaf]
    return split, 2 * node + 1, 2 * node + 2, value


def _nested(tree: Mapping[str, Any]) -> Nodes:
    """Number the nodes of a tree that is nested in JSON; returns what `_symmetric` does."""
    nodes = [tree]
    split, no, yes = [], [], []
    for node in nodes:  # grows while it is walked
        inner = "split" in node
        split.append(node["split"]["split_index"] if inner else -1)
        no.append(len(nodes))
        yes.append(len(nodes) + 1)
        nodes += [node["left"], node["right"]] if inner else []
    width = max(np.size(node.get("value", 0.0)) for node in nodes)
    value = np.array([np.broadcast_to(node.get("value", 0.0), width) for node in nodes], dtype=np.float64)
    return np.array(split), np.array(no), np.array(yes), value


def _tree(
    splits: Sequence[Split],
    split: NDArray[np.int64],
    no: NDArray[np.int64],
    yes: NDArray[np.int64],
    value: NDArray[np.float64],
) -> Tree:
    """Put a tree into the common form."""
    asked = [splits[number] if number >= 0 else LEAF for number in split]
    yes_left = np.array([one.yes_left for one in asked])
    return Tree(
        feature=np.array([one.feature for one in asked]),
        threshold=np.array([one.threshold for one in asked]),
        left=np.where(yes_left, yes, no),
        right=np.where(yes_left, no, yes),
        value=value,
        missing_left=np.array([one.missing_left for one in asked]),
        categories={node: one.codes for node, one in enumerate(asked) if one.codes is not None},
    )


# From the user's table to numbers and codes --------------------------------------------------------------------------


@dataclass(frozen=True)
class CatBoostReader:
    """From a table to numbers, and to the codes of categories: their places among the hashes that the model knows.

    Parameters
    ----------
    n_features : int
    names : tuple of str, or None
        The columns of a DataFrame, which may be in another order; None: any table is read by position.
    known : mapping of int to sequence of int
        The known hashes of each categorical feature, sorted.
    """

    n_features: int
    names: tuple[str, ...] | None
    known: Mapping[int, Sequence[int]]

    def __call__(self, X: Any) -> NDArray[np.float64]:
        """Read a table, shape (n, n_features).

        Raises
        ------
        DataError
            If CatBoost would not take it.
        """
        columns = self._columns(X)
        if len(columns) != self.n_features:
            raise DataError(f"The table has {len(columns)} columns. Give the {self.n_features} of the model.")
        codes = np.empty((len(X), len(columns)))
        for feature, column in enumerate(columns):
            codes[:, feature] = self._codes(feature, column) if feature in self.known else _numbers(column)
        return codes

    def _columns(self, X: Any) -> list[Any]:
        if not hasattr(X, "columns"):
            return list((X if isinstance(X, np.ndarray) else np.array(X, dtype=object)).T)
        lacking = set(self.names or ()) - set(X.columns)
        if lacking:
            raise DataError(
                f"The table has no column {min(lacking)!r}. Give the columns that the model was trained on."
            )
        frame = X if self.names is None else X[list(self.names)]
        return [frame.iloc[:, place] for place in range(frame.shape[1])]

    def _codes(self, feature: int, column: Any) -> list[int]:
        code = {hashed: place for place, hashed in enumerate(self.known[feature])}
        texts = [_text(category, feature) for category in column]
        codes = {text: code.get(_hash(text), -1) for text in set(texts)}
        return [codes[text] for text in texts]


def _numbers(column: Any) -> NDArray[np.float32]:
    """CatBoost casts each number to float32, an int64 of an array straight, one among objects by way of float64."""
    if hasattr(column, "to_numpy") and column.isna().any():
        column = column.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = np.asarray(column)
    with np.errstate(over="ignore"):
        return (numbers.astype(np.float64) if numbers.dtype == object else numbers).astype(np.float32)


def _text(category: Any, feature: int) -> str:
    """CatBoost takes a category by its text, an integer or a truth value by that of the integer."""
    if isinstance(category, str):
        return category
    if isinstance(category, bytes):
        return category.decode()
    if isinstance(category, int | np.integer | np.bool_):
        return str(int(category))
    raise DataError(
        f"Column {feature} holds the category {category!r}, and CatBoost takes texts and integers only. "
        "Turn its categories, and what is missing, into texts."
    )


def _hash(text: str) -> int:
    """CatBoost's hash of a category: the low half of the text's CityHash64, as int32."""
    low = city_hash(text.encode()) & 0xFFFFFFFF
    return low - 2**32 if low >= 2**31 else low


# CityHash64, version 1.0 (Pike and Alakuijala, Google): later versions give other numbers ----------------------------

WORD = 2**64
MULTIPLIER = 0x4906BA494954CB65  # of the hash of a combination of features, which is CatBoost's own
K0, K1, K2, K3 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F, 0xC949D7C7509E6557


def city_hash(text: bytes) -> int:
    """Hash bytes to 64 bits."""
    size = len(text)
    if size > 64:
        return _hash_long(text)
    if size > 32:
        return _hash_33_to_64(text)
    if size > 16:
        a, b = _word(text, 0) * K1, _word(text, 8)
        c, d = _word(text, -8) * K2, _word(text, -16) * K0
        return _pair(_rotate(a - b, 43) + _rotate(c, 30) + d, a + _rotate(b ^ K3, 20) - c + size)
    if size > 8:
        a, b = _word(text, 0), _word(text, -8)
        return _pair(a, _rotate(b + size, size)) ^ b
    if size >= 4:
        return _pair(size + (_word(text, 0, 4) << 3), _word(text, -4, 4))
    if size:
        y = text[0] + (text[size >> 1] << 8)
        z = size + (text[-1] << 2)
        return _mix(y * K2 ^ z * K3) * K2 % WORD
    return K2


def _hash_33_to_64(text: bytes) -> int:
    size = len(text)
    first_low, first_high = _fold(_word(text, 0) + (size + _word(text, -16)) * K0, text, 8, 16, 24)
    last_low, last_high = _fold(_word(text, 16) + _word(text, -32), text, -24, -16, -8)
    mixed = _mix((first_low + last_high) * K2 + (last_low + first_high) * K0)
    return _mix(mixed * K0 + first_high) * K2 % WORD


def _fold(a: int, text: bytes, second: int, third: int, fourth: int) -> tuple[int, int]:
    z = _word(text, fourth)
    b, c = _rotate(a + z, 52), _rotate(a, 37)
    a += _word(text, second)
    c += _rotate(a, 7)
    a += _word(text, third)
    return a + z, b + _rotate(a, 31) + c


def _hash_long(text: bytes) -> int:
    size = len(text)
    x, y, z = _word(text, 0), _word(text, -16) ^ K1, _word(text, -56) ^ K0
    v = _weak(text, size - 64, size, y)
    w = _weak(text, size - 32, size * K1, K0)
    z += _mix(v[1]) * K1
    x, y = _rotate(z + x, 39) * K1, _rotate(y, 33) * K1
    for at in range(0, (size - 1) // 64 * 64, 64):
        x = _rotate(x + y + v[0] + _word(text, at + 16), 37) * K1 % WORD ^ w[1]
        y = _rotate(y + v[1] + _word(text, at + 48), 42) * K1 % WORD ^ v[0]
        z = _rotate(z ^ w[0], 33)
        v = _weak(text, at, v[1] * K1, x + w[0])
        w = _weak(text, at + 32, z + w[1], y)
        x, z = z, x
    return _pair(_pair(v[0], w[0]) + _mix(y) * K1 + z, _pair(v[1], w[1]) + x)


def _weak(text: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_word(text, at + 8 * place) for place in range(4))
    a += w
    b = _rotate(b + a + z, 21)
    c = a
    a += x + y
    b += _rotate(a, 44)
    return (a + z) % WORD, (b + c) % WORD


def _word(text: bytes, at: int, size: int = 8) -> int:
    at = at % len(text)
    return int.from_bytes(text[at : at + size], "little")


def _rotate(value: int, by: int) -> int:
    value %= WORD
    return (value >> by | value << (64 - by)) % WORD


def _mix(value: int) -> int:
    value %= WORD
    return value ^ value >> 47


def _pair(low: int, high: int) -> int:
    multiplier = 0x9DDFEA08EB382D69
    a = _mix((low ^ high) * multiplier)
    return _mix((high ^ a) * multiplier) * multiplier % WORD
