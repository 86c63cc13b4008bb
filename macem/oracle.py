"""Oracle: the one thing the search knows of a model, its batched class probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macem import kernel
from macem.errors import (
    AdapterError,
    MacemError,
    ModelChangedError,
    ModelError,
    OracleError,
    UnsupportedModelError,
    sentence,
)
from macem.kernel import F8, TreeEnsemble
from macem.lazy import lazy
from macem.trees import Member, pack

__all__ = [
    "BlackBoxOracle",
    "Cutoff",
    "Oracle",
    "Reader",
    "TreeOracle",
    "decided",
    "has_several_outputs",
    "link_exactly",
    "narrowed",
    "read_by",
]

MOST_NAMED = 10  # columns in the text of an error
SUM_TOLERANCE = 1e-4  # float32 probabilities of a hundred classes sum to one within this


@runtime_checkable
class Oracle(Protocol):
    """What an adapter returns: a classifier that can be asked for probabilities, in batches.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
        The model's own labels, in the order of its probability columns.
    ensemble : TreeEnsemble or None
        The model as a table over the user's columns, or None for a black box.
    """

    @property
    def classes(self) -> NDArray[Any]: ...

    @property
    def ensemble(self) -> TreeEnsemble | None: ...

    def predict_proba(self, X: Any) -> F8:
        """Class probabilities, shape (n, n_classes), of a table as the model itself takes it."""
        ...


class Cutoff(NamedTuple):
    """What tells two classes apart where it is not the larger probability.

    Attributes
    ----------
    label : int
        Position of the class that a row is in from the threshold on.
    threshold : float
        A probability of that class, above 0 and below 1.
    """

    label: int
    threshold: float


def decided(probabilities: F8, cutoff: Cutoff | None = None) -> NDArray[np.int64]:
    """Classes of rows of probabilities, as positions, shape (n,): the first of the largest, or by a cutoff."""
    if cutoff is None:
        return np.asarray(probabilities.argmax(axis=1), dtype=np.int64)
    return np.where(probabilities[:, cutoff.label] >= cutoff.threshold, cutoff.label, 1 - cutoff.label)


class Reader(Protocol):
    """From a table as the model takes it to the (n, d) float64 matrix of numbers and category codes of its ensemble.

    Must pickle. Numbers stand for themselves; a missing value is NaN; a category that the model does not know is -1,
    or NaN where the model treats it as missing.
    """

    def __call__(self, X: Any) -> F8: ...


@dataclass(frozen=True)
class TreeOracle:
    """A model read into a table.

    Parameters
    ----------
    members : sequence of Member
        The model in the common form, which pipelines and composites rewrite.
    classes : ndarray, shape (n_classes,)
    live : Oracle
        Answers from the user's own model; used to compare and to verify.
    read : Reader
    n_features : int
        Columns of the user's table.
    single : bool
        Numbers are rounded to float32 before they are compared.
    missing_value : float
        A number that counts as missing, beside NaN.
    total : float, optional
        Divisor of the weighted sum of the members; their sum of weights by default.
    feature_names : tuple, optional
        Names of the columns as the model knows them, in order; None where it knows none.
    """

    members: Sequence[Member]
    classes: NDArray[Any]
    live: Oracle
    read: Reader
    n_features: int
    single: bool
    missing_value: float = float("nan")
    total: float | None = None
    feature_names: tuple[Any, ...] | None = None

    @property
    def note(self) -> str:
        """What there is to say of the path that was taken."""
        return str(getattr(self.live, "note", ""))

    @lazy
    def ensemble(self) -> TreeEnsemble:
        return pack(
            self.members,
            n_features=self.n_features,
            n_classes=len(self.classes),
            single=self.single,
            missing_value=self.missing_value,
            total=self.total,
        )

    def raw_scores(self, X: Any) -> F8:
        """Sums of the trees of all members before their links, shape (n, n_outputs)."""
        return self.raw_scores_of(read_by(self, X))

    def raw_scores_of(self, codes: F8) -> F8:
        """Sums of the trees for a table that has been read."""
        codes = np.ascontiguousarray(codes, dtype=np.float64)
        raw = np.empty((codes.shape[0], self.ensemble.start.size))
        kernel.raw_scores(self.ensemble, codes, raw)
        return raw

    def predict_proba(self, X: Any) -> F8:
        """Class probabilities read off the table, as a rule to the bit as the model gives them."""
        return self.link(self.raw_scores(X))

    def link(self, raw: F8) -> F8:
        """From raw outputs to class probabilities."""
        return link_exactly(self.ensemble, raw)


def read_by(oracle: TreeOracle, X: Any) -> F8:
    """What an oracle's table reads of a table as the model takes it, shape (n, n_features).

    Raises
    ------
    AdapterError
        If the reader answers in another shape, which the kernel would not see.
    """
    read = np.ascontiguousarray(oracle.read(X), dtype=np.float64)
    if read.shape != (len(X), oracle.n_features):
        raise AdapterError(
            f"The reader {oracle.read!r} answered {len(X)} rows with shape {read.shape}, and the oracle has "
            f"n_features={oracle.n_features}; it gives a number for each row and feature."
        )
    return read


def link_exactly(table: TreeEnsemble, raw: F8, dtype: type[np.floating[Any]] = np.float64) -> F8:
    """From raw outputs to class probabilities, with the functions that the libraries use where the last bit matters.

    `dtype` is what the members' mean is taken in.
    """
    total = np.zeros((raw.shape[0], table.n_classes), dtype)
    for member, after in pairwise(table.member):
        outputs = raw[:, member["first_output"] : after["first_output"]]
        scores = outputs / member["divisor"]
        if member["single"]:
            scores = scores.astype(np.float32)  # and so is all that its link computes
        columns = table.member_class[member["first_class"] : after["first_class"]]
        answer = member["weight"] * _link(int(member["link"]), scores, float(member["slope"]))
        total[:, columns] += answer.astype(dtype)
    return np.asarray(total / dtype(table.total), dtype=np.float64)


def _link(link: int, raw: NDArray[Any], slope: float) -> NDArray[Any]:
    from scipy.special import expit, softmax

    if link == kernel.IDENTITY:
        return raw
    if link == kernel.SIGMOID:
        positive = expit(slope * raw[:, 0])
        return np.array([1.0 - positive, positive]).T
    if link == kernel.SOFTMAX:
        return _softmax(slope * raw, _exp_of_c)
    if link == kernel.SOFTMAX_NUMPY:
        return np.asarray(softmax(raw, axis=1)) if raw.dtype == np.float32 else _softmax(slope * raw, np.exp)
    if link == kernel.SIGMOID_EACH:
        return np.asarray(expit(slope * raw))
    if link == kernel.VOTE:
        return np.asarray(np.eye(raw.shape[1])[raw.argmax(axis=1)])
    if link == kernel.ADABOOST:
        if raw.shape[1] == 2:
            decision = raw[:, 1] - raw[:, 0]
            return _softmax(np.column_stack([-decision, decision]) / 2, np.exp)
        return _softmax(raw / (raw.shape[1] - 1), np.exp)
    if link == kernel.SIGMOID_SINGLE:
        positive = expit(np.maximum(raw[:, 0], np.float32(-88.7)))  # bounded as XGBoost bounds it
        return np.array([1 - positive, positive]).T
    if link == kernel.SOFTMAX_SINGLE:
        exponentials = _exp_of_c(raw - raw.max(axis=1, keepdims=True))
        return np.asarray(exponentials / reduce(np.add, exponentials.T.astype(np.float64)).astype(np.float32)[:, None])
    if link == kernel.STEP:
        return np.column_stack([raw[:, 0] <= 0, raw[:, 0] > 0]).astype(np.float32)
    raise NotImplementedError(link)


def _softmax(raw: F8, exp: Callable[[F8], F8]) -> F8:
    """Softmax whose sum runs class after class; NumPy's own would pair the terms of eight and more classes."""
    exponentials = exp(raw - raw.max(axis=1, keepdims=True))
    return np.asarray(exponentials / reduce(np.add, exponentials.T)[:, None])


def _exp_of_c(numbers: NDArray[Any]) -> NDArray[Any]:
    """The C library's exponential, as LightGBM and XGBoost ask it.

    NumPy's own is an ulp off it at times: in float32 everywhere, in float64 on processors with AVX-512 (4.6 % of normal
    numbers, NumPy 2.4). For complex numbers NumPy asks the C library.
    """
    return np.asarray(np.exp(numbers.astype(np.result_type(numbers, np.complex64))).real)


# ---------------------------------------------------------------------------------------------------------------------
# Black boxes: whatever can only be asked
# ---------------------------------------------------------------------------------------------------------------------


class BlackBoxOracle:
    """A model that can only be asked: an estimator with ``predict_proba``, or a function.

    The model gets a copy of every table, in the form it was fitted with: columns by name and in its own order where it
    knows names, a plain array where scikit-learn fitted it without. Every answer is checked.

    Parameters
    ----------
    model : object with ``predict_proba``, or callable
        Answers a table of n rows with probabilities of shape (n, n_classes), or with the probability of the second of
        two classes, shape (n,) or (n, 1).
    classes : array-like, shape (n_classes,), optional
        Labels of the probability columns. By default the model's ``classes_``; for a model that has none
        0 … n_classes - 1, counted on its first answer.
    note : str
        Why the model is a black box, for ``explainer.describe()``.
    by_probability : bool
        It is known that ``predict`` answers with the first of the largest probabilities, so it need not be asked too.
    cutoff : Cutoff, optional
        What decides in place of the largest probability; ``predict`` is asked where a probability lies beside it.
    one_vs_all : bool
        The columns are scores of one class against all others, each in [0, 1]; they need not sum to one.

    Attributes
    ----------
    answers_one_column : bool
        The model has answered with one number per row: the probability of the second of two classes, or so it is read.

    Raises
    ------
    ModelError
        If the model was not fitted, or its classes are not distinct.
    UnsupportedModelError
        If the model has several outputs, or can not be asked at all.
    """

    ensemble = None

    def __init__(
        self,
        model: Any,
        *,
        classes: ArrayLike | None = None,
        note: str = "",
        one_vs_all: bool = False,
        by_probability: bool = False,
        cutoff: Cutoff | None = None,
    ) -> None:
        self.model = model
        self.note = note
        self.one_vs_all = one_vs_all
        self.cutoff = cutoff
        self.by_probability = by_probability or not hasattr(model, "predict")
        self.answers_one_column = False
        _refuse_model(model)
        own = _attribute(model, "classes_")
        labels = own if classes is None else classes
        self._classes = None if labels is None else _distinct(labels, model)
        # labels that `predict` answers with: the model's own, whatever they are called here
        self._labels = self._classes if own is None else np.asarray(own)

    @property
    def classes(self) -> NDArray[Any]:
        """Labels of the probability columns, shape (n_classes,)."""
        if self._classes is None:
            raise ModelError(
                f"{_name(self.model)} has no classes_, so its classes are not known before its first answer. "
                "Ask it for at least one row, or name them with classes=."
            )
        return self._classes

    @property
    def knows_classes(self) -> bool:
        """Whether the model named its classes, or has answered once."""
        return self._classes is not None

    @property
    def live(self) -> BlackBoxOracle:
        """The user's own model, which is this oracle itself."""
        return self

    def predict_proba(self, X: Any) -> F8:
        """Ask the model for class probabilities.

        Parameters
        ----------
        X : table of n rows, as the model takes it
            Left as it is; the model gets a copy.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)

        Raises
        ------
        OracleError
            If the model raises, or answers with anything but probabilities.
        ModelChangedError
            If the model has other classes than before.
        """
        n_rows = _n_rows(X)
        if n_rows == 0:
            return np.empty((0, 0 if self._classes is None else len(self._classes)))
        own = _attribute(self.model, "classes_")
        if own is not None and self._labels is not None and list(own) != list(self._labels):
            was, now = self._labels.tolist(), np.asarray(own).tolist()
            raise ModelChangedError(
                f"The classes of {_name(self.model)} were {was} and are {now}. Make a new Explainer."
            )
        question = "predict_proba" if hasattr(self.model, "predict_proba") else "__call__"
        try:
            answer = self._probabilities(self._ask(question, X), X)
        except OracleError as error:
            error.asked = self, X
            raise
        if self._classes is None:
            self._classes = self._labels = np.arange(answer.shape[1])
        return answer

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Ask for classes, as positions in `classes`, shape (n,): by the model's own ``predict`` where it has one."""
        if _n_rows(X) == 0:
            return np.empty(0, np.int64)
        if not hasattr(self.model, "predict"):
            return np.asarray(self.predict_proba(X).argmax(axis=1), dtype=np.int64)
        if self._labels is None:
            self.predict_proba(X)
        answer = np.asarray(self._ask("predict", X))
        if answer.size != _n_rows(X):
            self._refuse(f"predict answered {_n_rows(X)} rows with shape {answer.shape}", "Return one label per row.")
        labels = answer.ravel().tolist()
        position = {label: place for place, label in enumerate(np.asarray(self._labels).tolist())}
        unknown = [label for label in labels if label not in position]
        if unknown:
            what = f"predict answered {unknown[0]!r}, but its classes are {list(position)}"
            self._refuse(what, "Name them with classes=.")
        return np.array([position[label] for label in labels], dtype=np.int64)

    def _ask(self, question: str, X: Any) -> Any:
        try:
            with np.errstate(over="ignore"):  # a number too large for the model's type is refused, or told apart, by it
                return getattr(self.model, question)(_as_fitted(self.model, X))
        except MacemError:
            raise
        except Exception as error:
            if type(error).__name__ == "NotFittedError":
                raise ModelError(
                    f"{_name(self.model)} is not fitted: {sentence(error)} Fit it before it is explained."
                ) from error
            told = f"{type(error).__name__}: {sentence(error)}"
            raise OracleError(
                f"{_name(self.model)} failed on a table of {_n_rows(X)} rows: {told} "
                "Check that the model answers this table when asked directly."
            ) from error

    def _probabilities(self, answer: Any, X: Any) -> F8:
        """Bring an answer to (n, n_classes), or refuse it."""
        n_rows = _n_rows(X)
        try:
            table = np.array(answer, dtype=np.float64)
        except (TypeError, ValueError):
            shown = " ".join(str(answer)[:60].split())
            self._refuse(f"the answer is no table of numbers but {type(answer).__name__}, {shown} …", _REMEDY)
        n_classes = None if self._classes is None else len(self._classes)
        one_column = table.shape in {(n_rows,), (n_rows, 1)} and n_classes in {None, 2}
        if one_column:
            self.answers_one_column = True
            second = table.reshape(n_rows)
            table = np.column_stack([1.0 - second, second])
        if table.ndim != 2 or len(table) != n_rows or n_classes not in {None, table.shape[1]}:
            expected = f"({n_rows}, {'n_classes' if n_classes is None else n_classes})"
            self._refuse(f"the answer to {n_rows} rows has shape {np.shape(answer)}, not {expected}", _REMEDY)
        inside = (table >= -SUM_TOLERANCE) & (table <= 1.0 + SUM_TOLERANCE)  # False for NaN
        if not inside.all():
            row, column = np.argwhere(~inside)[0]
            column = 1 if one_column else column  # the number as it was answered
            label = column if self._classes is None else self._classes[column]
            self._refuse(f"row {_row_label(X, row)} got {table[row, column]} for class {label}", _REMEDY)
        total = table.sum(axis=1)
        off = np.abs(total - 1.0) > SUM_TOLERANCE
        if off.any() and not self.one_vs_all:
            row = int(off.argmax())
            self._refuse(f"the probabilities of row {_row_label(X, row)} sum to {total[row]}", _REMEDY)
        return np.maximum(table, 0.0) if (table < 0.0).any() else table

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise OracleError(f"{_name(self.model)} does not answer with probabilities: {what}. {remedy}")


def narrowed(error: MacemError, row: Any) -> str:
    """The text of an error, and the values that a black box fails on, found by asking halves of the batch again.

    Parameters
    ----------
    error : MacemError
    row : table of one row
        The explained row as the model takes it; what the model was asked is told by where it differs. A model that
        fails on the row itself is asked no further.
    """
    if not isinstance(error, OracleError) or error.asked is None:
        return str(error)
    oracle, batch = error.asked
    if type(batch) is not type(row) or _names(batch) != _names(row):  # a part of a model, in columns of its own
        return str(error)
    if (len(batch) == 1 and not _differing(batch, row)) or _fails(oracle, row):
        return f"{error} It fails on the row as it stands, so no value that was tried is to blame."
    while len(batch) > 1:
        half, rows = len(batch) // 2, getattr(batch, "iloc", batch)
        batch = rows[:half] if _fails(oracle, rows[:half]) else rows[half:]
    suspects = _differing(batch, row)
    for name, _ in suspects if len(suspects) > 1 else []:
        other = _with_column(batch, row, name)
        if _fails(oracle, other):  # it takes no part in this
            batch = other
    differing = _differing(batch, row)
    if not differing or not _fails(oracle, batch):
        return f"{error} Asked again in smaller batches it answers: it fails at times, or on large batches."
    values = ", ".join(f"column {name!r} is {value!r}" for name, value in differing[:MOST_NAMED])
    more = f", {len(differing) - MOST_NAMED} more columns differ" if len(differing) > MOST_NAMED else ""
    told = f"{error} It fails where {values}{more}, and all else is as in the row."
    return f"{told} Leave such values out: numbers by ranges, categories by a background without them."


def _with_column(batch: Any, row: Any, name: Any) -> Any:
    """A batch of one row with a column as in another."""
    other = batch.copy()
    if hasattr(other, "columns"):
        other[name] = row[name].array
    else:
        other[:, name] = row[:, name]
    return other


def _fails(oracle: Oracle, X: Any) -> bool:
    try:
        oracle.predict_proba(X)
    except MacemError:
        return True
    return False


def _differing(batch: Any, row: Any) -> list[tuple[Any, Any]]:
    """Columns in which the first row of a batch is not as the row, as they are written, and what it holds there."""
    cells, own = (np.asarray(table, dtype=object)[0].tolist() for table in (batch, row))
    return [(name, cell) for name, cell, mine in zip(_names(row), cells, own, strict=True) if str(cell) != str(mine)]


def _names(table: Any) -> list[Any]:
    return list(table.columns) if hasattr(table, "columns") else list(range(table.shape[1]))


_REMEDY = (
    "Return one row per row asked and one column per class, each between 0 and 1 and summing to one, "
    "or the probability of the second of two classes alone."
)


def _name(model: Any) -> str:
    return f"The model ({getattr(model, '__qualname__', type(model).__qualname__)})"


def _attribute(model: Any, name: str) -> Any:
    """Look up a fitted attribute; meta-estimators raise all kinds of errors where they have nothing to delegate to."""
    try:
        return getattr(model, name)
    except Exception:
        return None


def _is_from_sklearn(model: Any) -> bool:
    return any(cls.__module__.partition(".")[0] == "sklearn" for cls in type(model).__mro__)


def _refuse_model(model: Any) -> None:
    if isinstance(model, type):
        raise UnsupportedModelError(f"{_name(model)} is a class. Give a fitted instance of it.")
    if not hasattr(model, "predict_proba") and not callable(model):
        raise UnsupportedModelError(
            f"{_name(model)} has no predict_proba and is not a function, as is the case for regressors and for some "
            "classifiers. Give a classifier that answers with class probabilities (CalibratedClassifierCV makes one), "
            "or a function from a table to probabilities."
        )
    if not _is_fitted(model):
        raise ModelError(f"{_name(model)} is not fitted. Call its fit method before it is explained.")
    if has_several_outputs(model):
        raise UnsupportedModelError(
            f"{_name(model)} has several outputs (multi-label or multi-output). Explain one output at a time: give a "
            "function that returns the probabilities of one output."
        )


def has_several_outputs(model: Any) -> bool:
    """Whether a classifier is multi-label or multi-output; its classes are then a list of labels per output."""
    classes = _attribute(model, "classes_")
    nested = isinstance(classes, list) and any(np.ndim(labels) > 0 for labels in classes)
    return nested or _attribute(model, "multilabel_") is True


def _is_fitted(model: Any) -> bool:
    """Apply scikit-learn's own rule, to its own kind only."""
    if not _is_from_sklearn(model) or not hasattr(model, "fit"):
        return True
    told = getattr(model, "__sklearn_is_fitted__", None)
    if told is not None:
        return bool(told())
    if _attribute(model, "classes_") is not None:  # a threshold on a fitted model, say, which needs no fit itself
        return True
    return any(name.endswith("_") and not name.startswith("__") for name in vars(model))


def _distinct(labels: ArrayLike, model: Any) -> NDArray[Any]:
    classes = np.asarray(labels)
    if classes.ndim != 1 or len(set(classes.tolist())) != classes.size or classes.size == 0:
        raise ModelError(f"{_name(model)} has classes {classes.tolist()}. Give one distinct label per class.")
    return classes


def _n_rows(X: Any) -> int:
    shape = getattr(X, "shape", None)
    return int(shape[0]) if shape else len(X)


def _row_label(X: Any, row: int) -> Any:
    index = getattr(X, "index", None)
    return row if index is None or callable(index) else index[row]


def _as_fitted(model: Any, X: Any) -> Any:
    """Copy a table into the form that the model was fitted with; a copy, since some models write into what they get."""
    names = _attribute(model, "feature_names_in_")
    if hasattr(X, "columns"):
        if names is None:
            without_names = _is_from_sklearn(model) and _attribute(model, "n_features_in_") is not None
            return _plain(X) if without_names else X.copy()
        if X.columns.tolist() == list(names):
            return X.copy()
        known = set(X.columns)
        return X[list(names)].copy() if all(name in known for name in names) else X.copy()
    if not isinstance(X, np.ndarray):
        return X
    if names is None or X.ndim != 2 or len(names) != X.shape[1]:
        return X.copy()
    import pandas as pd

    frame = pd.DataFrame(X.copy(), columns=list(names))
    return frame.infer_objects() if X.dtype == object else frame


def _plain(frame: Any) -> NDArray[Any]:
    """Turn a DataFrame into an array in C order (another changes the last bit of a dot product), missing into NaN."""
    numeric = all(dtype.kind in "biuf" for dtype in frame.dtypes)
    missing = {"dtype": np.float64, "na_value": np.nan} if numeric and frame.isna().to_numpy().any() else {}
    return np.array(frame.to_numpy(**missing), order="C")
