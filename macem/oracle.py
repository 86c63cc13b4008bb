"""Oracle: the one thing the search knows of a model, its batched class probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from macem import kernel
from macem.trees import Member, pack
from macem.kernel import F8, TreeEnsemble

__all__ = ["Oracle", "Reader", "TreeOracle"]


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

    @cached_property
    def ensemble(self) -> TreeEnsemble:
        return pack(
            self.members,
            n_features=self.n_features,
            n_classes=len(self.classes),
            single=self.single,
            missing_value=self.missing_value,
            total=self.total,
        )

    def predict_proba(self, X: Any) -> F8:
        """Class probabilities read off the table, to the bit as the model gives them where ADAPTERS says so."""
        codes = np.ascontiguousarray(self.read(X), dtype=np.float64)
        raw = np.empty((codes.shape[0], self.ensemble.start.size))
        kernel.raw_scores(self.ensemble, codes, raw)
        return link_exactly(self.ensemble, raw)


def link_exactly(table: TreeEnsemble, raw: F8) -> F8:
    """From raw outputs to class probabilities, with the functions that the libraries use where the last bit matters."""
    total = np.zeros((raw.shape[0], table.n_classes))
    for member, link in enumerate(table.member_link):
        outputs = raw[:, table.member_output[member] : table.member_output[member + 1]]
        scores = outputs / table.member_divisor[member]
        columns = table.member_class[table.member_class_first[member] : table.member_class_first[member + 1]]
        total[:, columns] += table.member_weight[member] * _link(int(link), scores, float(table.member_slope[member]))
    return total / table.total


def _link(link: int, raw: F8, slope: float) -> F8:
    from scipy.special import expit

    if link == kernel.IDENTITY:
        return raw
    if link == kernel.SIGMOID:
        positive = expit(slope * raw[:, 0])
        return np.column_stack([1.0 - positive, positive])
    if link == kernel.SOFTMAX:
        shifted = slope * raw
        exponentials = np.exp(shifted - shifted.max(axis=1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
    if link == kernel.SIGMOID_EACH:
        return np.asarray(1.0 / (1.0 + np.exp(-slope * raw)))
    if link == kernel.VOTE:
        return np.eye(raw.shape[1])[raw.argmax(axis=1)]
    raise NotImplementedError(link)
