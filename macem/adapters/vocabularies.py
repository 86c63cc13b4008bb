"""The reader of folded pipelines: numbers as they are, and of each category its place in a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import pandas as pd

from macem.errors import DataError
from macem.kernel import F8, I8
from macem.trees import Tree

__all__ = ["REFUSED", "JointPipelineReader", "PipelineReader"]

REFUSED = -2  # code of a value that the pipeline does not take


@dataclass(frozen=True)
class PipelineReader:
    """From the user's table to numbers and category codes.

    A category's code is its place in the vocabulary; values outside it share the code behind the last one, a missing
    value is NaN.

    Attributes
    ----------
    n_features : int
    names : tuple or None
        Names of the columns, where the pipeline knows them.
    needed : tuple of bool
        Whether the model asks for the column; a column that it does not ask for may hold anything, and may be absent.
    vocabularies : tuple of (dict of value to code) or None
        None for a column of numbers.
    unseen, missing : tuple of bool
        Whether the pipeline takes values outside the vocabulary, and missing values.
    """

    n_features: int
    names: tuple[Any, ...] | None
    needed: tuple[bool, ...]
    vocabularies: tuple[dict[Any, int] | None, ...]
    unseen: tuple[bool, ...]
    missing: tuple[bool, ...]

    def __call__(self, X: Any) -> F8:
        """Read a table, shape (n, n_features); DataError where the pipeline would not take it."""
        columns = self._columns(X)
        codes = np.empty((len(columns[0]), self.n_features))
        for position, column in enumerate(columns):
            vocabulary = self.vocabularies[position]
            if vocabulary is None:
                codes[:, position] = self._numbers(column, position)
            else:
                codes[:, position] = self._look_up(column, vocabulary, position)
        return codes

    def types(self, X: Any) -> list[Any]:
        """Types of the pipeline's columns in a table."""
        if not hasattr(X, "columns"):
            return [np.asarray(X).dtype] * self.n_features
        types: list[Any] = X.dtypes.tolist()
        if self.names is None:
            return types
        of_name = dict(zip(X.columns, types, strict=True))
        return [of_name.get(name) for name in self.names]

    def _columns(self, X: Any) -> list[Any]:
        """Take a table apart into one array for each column of the pipeline."""
        if hasattr(X, "columns"):
            arrays = _arrays(X)
            if self.names is not None:
                of_name = dict(zip(X.columns, arrays, strict=True))
                needed = [name for name, needed in zip(self.names, self.needed, strict=True) if needed]
                absent = [name for name in needed if name not in of_name]
                if absent:
                    raise DataError(f"The table lacks columns that the pipeline was fitted on: {absent}. Add them.")
                nothing = np.full(len(X), np.nan)
                return [of_name.get(name, nothing) for name in self.names]
        else:
            table = np.asarray(X)
            arrays = list(table.T) if table.ndim == 2 else []
        if len(arrays) != self.n_features:
            raise DataError(
                f"The table has {len(arrays)} columns, but the pipeline was fitted on {self.n_features}. Give it those."
            )
        return arrays

    def _numbers(self, column: Any, position: int) -> F8:
        if not self.needed[position] and getattr(column.dtype, "kind", "O") not in "fiub":
            return np.zeros(len(column))
        try:
            numbers = _as_numbers(column)
        except (TypeError, ValueError) as error:
            raise DataError(f"Column {self._name(position)} holds no numbers: {error}. Give numbers.") from error
        if not self.missing[position] and np.isnan(numbers).any():
            self._refuse(position, "a missing value")
        return numbers

    def _look_up(self, column: Any, vocabulary: dict[Any, int], position: int) -> F8:
        try:
            places, values = _distinct(column)
            codes = np.fromiter(map(vocabulary.get, values, repeat(-1)), np.float64, len(values))
        except TypeError as error:
            raise DataError(f"Column {self._name(position)} holds no categories: {error}. Give categories.") from error
        if places is not None:
            codes = np.append(codes, -1.0)[places]  # the last entry serves -1, a missing value
        elsewhere = np.flatnonzero(codes < 0.0)
        if elsewhere.size:
            cells = np.asarray(column[elsewhere], dtype=object)
            missing = pd.isna(cells)
            refused = codes[elsewhere] == REFUSED
            if refused.any() or (missing.any() and not self.missing[position]):
                self._refuse(position, "a missing value")
            if not missing.all() and not self.unseen[position]:
                self._refuse(position, f"the value {cells[~missing][0]!r}, which it was not fitted on")
            codes[elsewhere] = np.where(missing, np.nan, len(vocabulary))
        return codes

    def _refuse(self, position: int, what: str) -> None:
        raise DataError(
            f"Column {self._name(position)} holds {what}, and the pipeline does not take it. Leave such rows out, or "
            "fit the pipeline so that it does."
        )

    def _name(self, position: int) -> Any:
        return position if self.names is None else repr(self.names[position])


FEW = 200  # so many values are looked up faster one by one than first grouped


def _arrays(X: Any) -> list[Any]:
    """Columns of a DataFrame; those of a short one at once, since pandas takes its time for each."""
    plain = all(getattr(dtype, "kind", "O") in "OfiubU" and not hasattr(dtype, "numpy_dtype") for dtype in X.dtypes)
    if len(X) <= FEW and plain:
        return list(X.to_numpy(object).T)
    return [column.values for _, column in X.items()]


def _distinct(column: Any) -> tuple[I8 | None, Any]:
    """Group a long column: the place of each cell among the distinct values, and these; None and the cells if short."""
    if hasattr(column, "categories"):
        return column.codes.astype(np.int64), column.categories.tolist()
    if len(column) <= FEW or isinstance(column, np.ndarray) or not hasattr(column, "factorize"):
        return None, np.asarray(column, dtype=object).tolist()
    places, values = column.factorize()
    return places, np.asarray(values, dtype=object).tolist()


def _as_numbers(column: Any) -> F8:
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "mM":
            raise TypeError(f"it holds {column.dtype}")
        return column.astype(np.float64)
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


@dataclass(frozen=True)
class JointPipelineReader:
    """Reads for several pipelines, whose vocabularies may differ.

    Attributes
    ----------
    read : PipelineReader
        With the vocabularies of all.
    readers : tuple of PipelineReader
        Each pipeline's, which may refuse what others take.
    """

    read: PipelineReader
    readers: tuple[PipelineReader, ...]

    @classmethod
    def of(cls, readers: Sequence[PipelineReader]) -> JointPipelineReader:
        """Join readers of the same columns."""
        columns = range(readers[0].n_features)
        vocabularies: list[dict[Any, int] | None] = []
        for column in columns:
            known = [read.vocabularies[column] for read in readers if read.needed[column]]
            values = dict.fromkeys(value for vocabulary in known if vocabulary is not None for value in vocabulary)
            coded = any(vocabulary is not None for vocabulary in known)
            vocabularies.append({value: code for code, value in enumerate(values)} if coded else None)
        read = replace(
            readers[0],
            needed=tuple(any(read.needed[column] for read in readers) for column in columns),
            vocabularies=tuple(vocabularies),
            unseen=(True,) * len(columns),
            missing=(True,) * len(columns),
        )
        return cls(read, tuple(readers))

    def __call__(self, X: Any) -> F8:
        for read in self.readers:
            read(X)
        return self.read(X)

    def recode(self, reader: PipelineReader, trees: Sequence[Tree]) -> list[Tree]:
        """Let the category sets of the trees behind one of the readers hold the common codes."""
        vocabularies = zip(reader.vocabularies, self.read.vocabularies, strict=True)
        own_codes = {
            column: np.array([*(own.get(value, len(own)) for value in common), len(own)])  # the last: all unseen values
            for column, (own, common) in enumerate(vocabularies)
            if own is not None and common is not None
        }

        def recoded(tree: Tree) -> Tree:
            sets = tree.categories.items()
            common = {node: np.flatnonzero(np.isin(own_codes[int(tree.feature[node])], codes)) for node, codes in sets}
            return replace(tree, categories=common)

        return [recoded(tree) for tree in trees]
