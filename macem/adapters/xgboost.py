"""XGBoost: boosters read from their JSON, answering to the bit as `predict_proba` does."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from macem.errors import DataError, MacemWarning, ModelError, UnsupportedModelError
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle
from macem.trees import Link, Member, Tree

__all__ = ["TableReader", "XGBoostAdapter", "load"]

F4 = NDArray[np.float32]

LINKS = {
    "binary:logistic": Link.SIGMOID_SINGLE,
    "reg:logistic": Link.SIGMOID_SINGLE,
    "binary:hinge": Link.STEP,
    "multi:softprob": Link.SOFTMAX_SINGLE,
    "multi:softmax": Link.SOFTMAX_NUMPY,  # predict_proba asks for margins here, and leaves the rest to SciPy
}
OLDEST, NEWEST = 2, 3  # major versions whose model format is known


class XGBoostAdapter:
    """Reads `XGBClassifier`, `XGBRFClassifier` and `Booster`."""

    def oracle(self, model: Any) -> Oracle:
        """Read a trained classifier.

        Parameters
        ----------
        model : xgboost.XGBClassifier, xgboost.XGBRFClassifier or xgboost.Booster
            A classifier is read up to its best iteration and with its ``missing``, as ``predict_proba`` answers; a
            Booster whole, as ``inplace_predict`` answers.

        Returns
        -------
        Oracle
            A table where the model is made of trees, otherwise a black box whose `note` says why.

        Raises
        ------
        ModelError
            If the model is not trained.
        UnsupportedModelError
            If it gives no class probabilities: regressors, rankers, multi-label models, custom objectives and
            ``binary:logitraw``.
        """
        import xgboost

        if isinstance(model, xgboost.Booster):
            return _read(model, model)
        if not isinstance(model, xgboost.XGBClassifier):
            _refuse(model, "is no classifier", "Give an XGBClassifier, or the Booster of one.")
        if not model.__sklearn_is_fitted__():
            raise ModelError(f"The model ({type(model).__name__}) is not fitted. Call its fit method first.")
        if callable(model.objective):
            _refuse(
                model,
                f"has a custom objective ({getattr(model.objective, '__name__', model.objective)}), which does not say "
                "how its raw scores become probabilities",
                "Give a function from a table to probabilities instead.",
            )
        return _read(model, model.get_booster())


def load(path: str | Path) -> Any:
    """Load a model file without unpickling.

    Parameters
    ----------
    path : str or Path
        A ``.json`` or ``.ubj`` file written by ``save_model``.

    Returns
    -------
    xgboost.XGBClassifier or xgboost.Booster
        The classifier where one was saved, otherwise the Booster.

    Raises
    ------
    ModelError
        If there is no such file, or XGBoost cannot read it.
    """
    import xgboost

    if not Path(path).is_file():
        raise ModelError(f"There is no model file {str(path)!r}. Check its path.")
    _refuse_old_vectors(path, xgboost.__version__)
    try:
        booster = xgboost.Booster(model_file=path)
        if json.loads(booster.attr("scikit_learn") or "{}").get("_estimator_type") != "classifier":
            return booster
        classifier = xgboost.XGBClassifier()
        classifier.load_model(path)
    except (xgboost.core.XGBoostError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")  # a stack trace follows
        raise ModelError(
            f"XGBoost {xgboost.__version__} cannot read the model file {str(path)!r}: {reason}. "
            "Save the model with its save_model method as .json or .ubj."
        ) from error
    return classifier


def _refuse_old_vectors(path: str | Path, version: str) -> None:
    """Refuse the one kind of file that makes XGBoost 3.2 and later crash: vector leaves as they were written before."""
    content = Path(path).read_bytes()
    width = re.search(rb"size_leaf_vector[^0-9]{1,20}([0-9]+)", content)  # UBJSON puts the length of the text between
    old = width is not None and int(width[1]) > 1 and b"leaf_weights" not in content
    if old and tuple(map(int, version.split(".")[:2])) >= (3, 2):
        raise ModelError(
            f"The model file {str(path)!r} holds multi-output trees in the layout before XGBoost 3.2, which XGBoost "
            f"{version} cannot load. Train the model anew, or use the version that wrote it."
        )


# Reading a model -----------------------------------------------------------------------------------------------------


class _NotUnderstoodError(Exception):
    """A mode that would have to be guessed; the reason in words."""


def _read(model: Any, booster: Any) -> Oracle:
    """Read a booster; `model` is the classifier around it, or the booster itself."""
    dump = _dump(model, booster)
    learner = dump["learner"]
    objective = learner["objective"]["name"]
    _refuse_other_tasks(model, learner)

    alone = model is booster
    names = None if booster.feature_names is None else tuple(booster.feature_names)
    linear = learner["gradient_booster"]["name"] == "gblinear"
    classes = np.arange(int(learner["learner_model_param"]["num_class"]) or 2)
    if not alone and len(model.classes_) == classes.size:  # fitted on one class, it still answers with two columns
        classes = np.asarray(model.classes_)
    asked = _BoosterProbabilities(booster, objective, names, linear) if alone else model
    if linear:
        return BlackBoxOracle(asked, classes=classes, note="gblinear is a linear model, not made of trees")
    try:
        _check_understood(model, dump)
        levels = _levels(dump)
        trees = _chosen_trees(dump, (0, 0) if alone else model._get_iteration_range(None))
        n_codes = _count_codes(trees, levels)
    except _NotUnderstoodError as reason:
        text = f"The model ({type(model).__name__}) is asked as a black box, which is slower: {reason}."
        warnings.warn(text, MacemWarning, stacklevel=4)
        return BlackBoxOracle(asked, classes=classes, note=str(reason))
    if not trees:
        raise ModelError(f"The model ({type(model).__name__}) holds no trees. Train it for at least one round.")

    read = TableReader(
        names=names,
        n_features=booster.num_features(),
        missing=float(np.float32(np.nan if alone else model.missing)),
        levels=levels,
        n_codes=n_codes,
        nameless=not alone,
    )
    if levels:
        asked = _KnownCategories(asked if alone else model.predict_proba, read)
    start = _start(dump)
    member = Member(
        trees=[_tree(chosen, start, read) for chosen in trees],
        n_outputs=start.size,
        link=LINKS[objective],
        start=start.astype(np.float64),
        classes=tuple(range(classes.size)),
        single=True,
    )
    return TreeOracle(
        members=[member],
        classes=classes,
        live=BlackBoxOracle(asked, classes=classes),
        read=read,
        n_features=read.n_features,
        single=True,
        missing_value=read.missing,
        feature_names=names,
    )


def _dump(model: Any, booster: Any) -> dict[str, Any]:
    """Return the model as XGBoost writes it to a file."""
    import xgboost

    try:
        with xgboost.config_context(verbosity=0):  # it warns of kinds of boosters that are to go
            dump: dict[str, Any] = json.loads(booster.save_raw("json"))
    except xgboost.core.XGBoostError as error:  # a Booster that never saw data has no features
        raise ModelError(f"The model ({type(model).__name__}) is not trained. Train it first.") from error
    if dump["version"][0] < OLDEST:
        raise UnsupportedModelError(
            f"XGBoost {'.'.join(map(str, dump['version']))} is too old to be read. Install XGBoost {OLDEST}.0 or later."
        )
    return dump


def _refuse(model: Any, reason: str, remedy: str) -> NoReturn:
    raise UnsupportedModelError(f"The model ({type(model).__name__}) {reason}. {remedy}")


def _refuse_other_tasks(model: Any, learner: dict[str, Any]) -> None:
    """Refuse what gives no class probabilities."""
    import xgboost

    objective = learner["objective"]["name"]
    if objective == "binary:logitraw":
        _refuse(model, "answers with raw scores (binary:logitraw), not probabilities", "Train it with binary:logistic.")
    # a regression of shares, unless a classifier says that its labels are classes
    known = set(LINKS) - {"reg:logistic"} if isinstance(model, xgboost.Booster) else set(LINKS)
    if objective not in known:
        _refuse(
            model,
            f"has the objective {objective!r}, which gives no class probabilities",
            f"Train it with one of {', '.join(sorted(known))}; for an objective of your own give a function from a "
            "table to probabilities.",
        )
    n_targets = int(learner["learner_model_param"].get("num_target", 1))
    if n_targets > 1:
        _refuse(
            model,
            f"has {n_targets} targets (multi-label)",
            "Explain one at a time: give a function that returns the probability of one label.",
        )


def _check_understood(model: Any, dump: dict[str, Any]) -> None:
    """Raise the reason why the trees, though they can be read, may not be what answers."""
    import xgboost

    learner = dump["learner"]
    version = ".".join(map(str, dump["version"]))
    if dump["version"][0] > NEWEST:
        raise _NotUnderstoodError(f"the model format of XGBoost {version} is newer than the ones that are known")
    booster = learner["gradient_booster"]["name"]
    if booster not in ("gbtree", "dart"):
        raise _NotUnderstoodError(f"the booster {booster!r} is not known")
    if isinstance(model, xgboost.Booster):
        return
    if type(model).predict_proba is not xgboost.XGBClassifier.predict_proba:
        raise _NotUnderstoodError(f"{type(model).__name__} has a predict_proba of its own")
    if model.objective != learner["objective"]["name"]:
        raise _NotUnderstoodError(
            f"its objective {model.objective!r} is not the one it was trained with, {learner['objective']['name']!r}"
        )


def _tree_model(dump: dict[str, Any]) -> dict[str, Any]:
    """Return the part with the trees: DART wraps it once more before XGBoost 3.4."""
    booster = dump["learner"]["gradient_booster"]
    model: dict[str, Any] = booster["gbtree"]["model"] if booster["name"] == "dart" else booster["model"]
    return model


def _levels(dump: dict[str, Any]) -> dict[int, dict[Any, int]]:
    """Return the code of each category that the model saw in a DataFrame, by feature."""
    levels = {}
    for feature, stored in enumerate(_tree_model(dump).get("cats", {}).get("enc", ())):
        values = stored["values"]
        if not values:
            continue
        if "offsets" in stored:
            values = _texts(values, stored["offsets"], dump["version"])
        levels[feature] = {value: code for code, value in enumerate(values)}
    return levels


def _texts(values: list[int], offsets: list[int], version: list[int]) -> list[str]:
    text = np.array(values, dtype=np.int8).tobytes()
    if tuple(version) < (3, 4) and not text.isascii():
        # it counts their places in characters and then cuts UTF-8 there, in the model and in every table asked
        raise _NotUnderstoodError(
            "XGBoost before 3.4 confuses categories with letters beyond ASCII; use other names, or train with 3.4"
        )
    try:
        return [text[first:last].decode() for first, last in pairwise(offsets)]
    except UnicodeDecodeError:
        raise _NotUnderstoodError("its categories were stored by an XGBoost before 3.4, which garbled them") from None


class _Chosen(NamedTuple):
    """A tree that takes part in the answer."""

    dump: dict[str, Any]
    output: int  # the raw output that it adds to, the first of several for a tree of vectors
    weight: np.float32 | None  # DART's
    rebased: bool  # DART before XGBoost 3.4 adds (base + leaf - base) * weight, rounded at each step


def _chosen_trees(dump: dict[str, Any], iterations: tuple[int, int]) -> list[_Chosen]:
    """Return the trees of a range of iterations; (0, 0) means all."""
    booster, model = dump["learner"]["gradient_booster"], _tree_model(dump)
    weights = booster.get("weight_drop") or model.get("weight_drop") or [None] * len(model["trees"])
    rebased = booster["name"] == "dart"
    trees = [
        _Chosen(tree, output, None if weight is None else np.float32(weight), rebased)
        for tree, output, weight in zip(model["trees"], model["tree_info"], weights, strict=True)
    ]
    first, last = iterations
    ends = model["iteration_indptr"]
    return trees[ends[first] : ends[last] if last else None]


def _count_codes(trees: Sequence[_Chosen], levels: Mapping[int, Mapping[Any, int]]) -> dict[int, int]:
    """Return, for each feature that is split by categories, how many codes are told apart."""
    n_codes: dict[int, int] = {}
    for chosen in trees:
        for node, codes in _category_splits(chosen.dump):
            feature = chosen.dump["split_indices"][node]
            n_codes[feature] = max(n_codes.get(feature, len(levels.get(feature, ()))), 1 + max(codes, default=-1))
    if n_codes:
        for chosen in trees:
            numeric = np.array(chosen.dump["left_children"]) >= 0
            numeric[chosen.dump["categories_nodes"]] = False
            mixed = set(np.array(chosen.dump["split_indices"])[numeric].tolist()).intersection(n_codes)
            if mixed:
                raise _NotUnderstoodError(f"its column {min(mixed)} is split both by number and by category")
    return n_codes


def _category_splits(tree: dict[str, Any]) -> Iterator[tuple[int, list[int]]]:
    """Yield the nodes that split by category, and the codes that go right there."""
    for node, first, size in zip(
        tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True
    ):
        yield node, tree["categories"][first : first + size]


def _start(dump: dict[str, Any]) -> F4:
    """Return the raw scores before the first tree, shape (n_outputs,).

    How they follow from base_score depends on the objective, on the version (a scalar or a vector; clipped where) and
    on the C library's logf. So the library itself is asked, with a copy of the model from which this takes the trees.
    """
    import xgboost

    learner, model = dump["learner"], _tree_model(dump)
    model.update(trees=[], tree_info=[], iteration_indptr=[0])
    model["gbtree_model_param"]["num_trees"] = "0"
    for holder in (learner["gradient_booster"], model):
        if "weight_drop" in holder:
            holder["weight_drop"] = []
    learner["learner_model_param"]["boost_from_average"] = "0"  # else a model without trees has yet to find base_score
    empty = xgboost.Booster()
    empty.load_model(bytearray(json.dumps(dump).encode()))
    row = xgboost.DMatrix(np.zeros((1, empty.num_features())))
    return empty.predict(row, output_margin=True, validate_features=False).astype(np.float32).ravel()


def _tree(chosen: _Chosen, start: F4, read: TableReader) -> Tree:
    """Bring a tree into the common form."""
    dump = chosen.dump
    left = np.array(dump["left_children"], dtype=np.int64)
    right = np.array(dump["right_children"], dtype=np.int64)
    split = np.array(dump["split_conditions"], dtype=np.float32)
    missing_left = np.array(dump["default_left"], dtype=bool)
    features = np.array(dump["split_indices"], dtype=np.int64)
    leaf = left < 0

    value = split[:, None]  # the leaf's value stands in the place of its threshold
    width = int(dump["tree_param"]["size_leaf_vector"])
    if width > 1 and "leaf_weights" in dump:
        value = np.zeros((leaf.size, width), dtype=np.float32)
        value[leaf] = np.array(dump["leaf_weights"], dtype=np.float32).reshape(-1, width)[right[leaf]]
    elif width > 1:  # before XGBoost 3.2
        value = np.array(dump["base_weights"], dtype=np.float32).reshape(-1, width)
    if chosen.weight is not None:
        base = start[chosen.output : chosen.output + value.shape[1]]
        value = (((base + value) - base) if chosen.rebased else value) * chosen.weight

    # left iff x < split, so iff x <= the float32 before it; where nothing is below, the sides change places
    with np.errstate(over="ignore"):
        threshold = np.nextafter(split, np.float32(-np.inf))
    nowhere = ~leaf & (split == -np.inf)
    threshold[nowhere] = np.inf
    left, right = np.where(nowhere, right, left), np.where(nowhere, left, right)

    categories = {
        node: read.beside_missing(np.setdiff1d(np.arange(read.n_codes[int(features[node])] + 1), codes))
        for node, codes in _category_splits(dump)  # the listed codes go right, and all others left
    }
    return Tree(
        feature=np.where(leaf, -1, features),
        threshold=threshold.astype(np.float64),
        left=left,
        right=right,
        value=value.astype(np.float64),
        missing_left=missing_left ^ nowhere,
        output=chosen.output,
        categories=categories,
    )


# Reading a table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableReader:
    """Numbers and category codes of a table, as XGBoost takes them from it.

    Attributes
    ----------
    names : tuple of str or None
        The columns as the model knows them; a DataFrame may have them in another order, and others beside them.
    n_features : int
    missing : float
        The number that counts as missing, beside NaN.
    levels : mapping of int to mapping
        Feature -> category -> the model's code, where the model was trained on a DataFrame.
    n_codes : mapping of int to int
        Feature -> how many codes its splits tell apart. The next code stands for every other number.
    nameless : bool
        Whether a DataFrame may be read by position where the model knows no names.
    """

    names: tuple[str, ...] | None
    n_features: int
    missing: float
    levels: Mapping[int, Mapping[Any, int]]
    n_codes: Mapping[int, int]
    nameless: bool

    @property
    def known_categories(self) -> dict[int, list[Any]]:
        """The categories of each pandas category column, by feature; empty where one may count as missing."""
        return {} if self.missing >= 0.0 else {feature: list(levels) for feature, levels in self.levels.items()}

    def __call__(self, X: Any) -> F8:
        X = _by_name(X, self.names, self.nameless)
        if hasattr(X, "columns"):
            self._check_width(X.shape)
            return self._frame(X)
        array = np.asarray(X)
        self._check_width(array.shape)
        numbers = _rounded(array)
        for feature in self.n_codes:
            numbers[:, feature] = self._codes(numbers[:, feature], feature)
        return numbers

    def beside_missing(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Leave out, in the numbering of the codes, the number that counts as missing."""
        return codes + (codes >= self.missing)

    def _check_width(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or shape[1] != self.n_features:
            raise DataError(
                f"The table has shape {shape}, but the model takes (n, {self.n_features}). Give it those columns."
            )

    def _frame(self, frame: Any) -> F8:
        """Read numbers at once, a row in a fifth of the time that its columns take one by one, and the rest apart."""
        plain = [
            feature
            for feature, dtype in enumerate(frame.dtypes)
            if isinstance(dtype, np.dtype)
            and dtype.kind in "biuf"
            and feature not in self.levels
            and feature not in self.n_codes
        ]
        numbers = np.empty(frame.shape)
        with np.errstate(over="ignore"):
            numbers[:, plain] = frame.iloc[:, plain].to_numpy(dtype=np.float32)
        for feature in sorted(set(range(self.n_features)).difference(plain)):
            numbers[:, feature] = self._column(frame.iloc[:, feature], feature)
        return numbers

    def _column(self, column: Any, feature: int) -> F8:
        if str(column.dtype) == "category":
            return self._recoded(column, feature)
        expected = "a pandas category" if feature in self.levels else "a number"
        if column.dtype.kind not in "biuf" or feature in self.levels:
            raise DataError(
                f"Column {column.name!r} holds {column.dtype}, but the model was trained on {expected}. Make it one."
            )
        with np.errstate(over="ignore"):
            numbers = column.to_numpy(dtype=np.float32, na_value=np.nan).astype(np.float64)
        return self._codes(numbers, feature) if feature in self.n_codes else numbers

    def _codes(self, numbers: F8, feature: int) -> F8:
        """Turn numbers into codes: cut to integers; all that no split tells apart are one."""
        n_codes = self.n_codes[feature]
        missing = np.isnan(numbers) | (numbers == self.missing)
        inside = (numbers >= 0) & (numbers < n_codes)
        codes = np.where(inside, np.trunc(np.where(inside, numbers, 0.0)), n_codes)
        return np.where(missing, np.nan, self.beside_missing(codes))

    def _recoded(self, column: Any, feature: int) -> F8:
        """Turn a pandas category column into the model's codes, whatever order its categories have."""
        known = self.levels.get(feature)
        if known is None:
            raise DataError(
                f"Column {column.name!r} is a pandas category, but the model stores no categories for it, so their "
                "codes would be a guess. Give the codes as numbers, or train on categories with XGBoost 3.1 or later."
            )
        labels = column.cat.categories.tolist()
        own = column.cat.codes.to_numpy()
        unseen = [labels[code] for code in np.unique(own[own >= 0]) if labels[code] not in known]
        if unseen:
            raise DataError(
                f"Column {column.name!r} holds the category {unseen[0]!r}, which the model never saw. "
                f"Use one of {list(known)}, or a missing value."
            )
        codes = np.array([known.get(label, -1) for label in labels] + [-1], dtype=np.float64)[own]
        # the missing number is looked for among the column's own codes, before they are translated
        return np.where((own < 0) | (own == self.missing), np.nan, self.beside_missing(codes))


def _by_name(X: Any, names: tuple[str, ...] | None, nameless: bool) -> Any:
    """Return the model's columns of a DataFrame, in the model's order; any other table as it is."""
    if not hasattr(X, "columns"):
        return X
    labels = [str(label) for label in X.columns]
    if names is None:
        if not nameless and labels != [str(place) for place in range(len(labels))]:
            raise DataError(
                f"The Booster knows no feature names, so the columns {labels} cannot be told apart from each other. "
                "Set its feature_names in the order of training, or give an array in that order."
            )
        return X
    if tuple(labels) == names:
        return X
    absent = [name for name in names if name not in labels]
    if absent:
        raise DataError(f"The table lacks columns that the model was trained on: {absent}. Add them.")
    return X.iloc[:, [labels.index(name) for name in names]]


def _rounded(array: NDArray[Any]) -> F8:
    """Round to float32 once, from whatever type the numbers have."""
    try:
        with np.errstate(over="ignore"):
            return array.astype(np.float32).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"The table holds something that is no number: {error}. Give the model numbers.") from error


# Asking the model ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BoosterProbabilities:
    """A Booster, asked for class probabilities."""

    booster: Any
    objective: str
    names: tuple[str, ...] | None
    linear: bool

    def __call__(self, X: Any) -> NDArray[np.float32]:
        X = _by_name(X, self.names, nameless=False)
        margins = self.objective == "multi:softmax"
        if self.linear:  # inplace_predict is for trees only
            import xgboost

            table = xgboost.DMatrix(X, feature_names=None if self.names is None else list(self.names))
            answer = self.booster.predict(table, output_margin=margins)
        else:
            answer = self.booster.inplace_predict(X, predict_type="margin" if margins else "value")
        if margins:
            from scipy.special import softmax

            answer = softmax(answer, axis=1)
        return answer if answer.ndim == 2 else np.column_stack([1.0 - answer, answer])


@dataclass(frozen=True)
class _KnownCategories:
    """A model that is not asked about categories it never saw, which XGBoost before 3.4 takes for its first one."""

    ask: Callable[[Any], NDArray[np.float32]]
    read: TableReader

    def __call__(self, X: Any) -> NDArray[np.float32]:
        self.read(X)
        return self.ask(_by_name(X, self.read.names, self.read.nameless))
