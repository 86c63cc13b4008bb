"""Readers of tables of numbers: as scikit-learn casts them, and for several models at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macem.errors import DataError, sentence
from macem.kernel import F8
from macem.oracle import Reader

__all__ = [
    "JointReader",
    "NumberReader",
    "check_width",
    "columns_by_name",
    "feature_names",
    "rounded",
]


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
        """Read a table, shape (n, n_features); DataError where the model would not take it."""
        numbers = self._plain(X)
        if numbers is not None:
            return numbers
        from sklearn.utils.validation import check_array

        finite = False if self.infinite else "allow-nan" if self.missing else True
        try:
            with np.errstate(over="ignore"):  # what is too large for float32 is refused as infinite
                numbers = check_array(
                    columns_by_name(X, self.names), dtype=self.dtype, ensure_all_finite=finite, ensure_min_samples=0
                )
        except (TypeError, ValueError) as error:
            cell = self._first_refused(X)
            raise DataError(
                f"The model cannot read this table: {sentence(error)} {cell}Give it numbers that it takes."
            ) from error
        check_width(numbers, self.n_features)
        return np.asarray(numbers, dtype=np.float64)

    def _plain(self, X: Any) -> F8 | None:
        """Read plain numbers as scikit-learn does, without its checks; None where these may find something."""
        if not isinstance(X, np.ndarray) and not hasattr(X, "columns"):
            return None
        table = columns_by_name(X, self.names)
        dtypes = [table.dtype] if isinstance(table, np.ndarray) else table.dtypes.tolist()
        if table.ndim != 2 or table.shape[1] != self.n_features:
            return None
        if not all(isinstance(dtype, np.dtype) and dtype.kind in "fiu" for dtype in dtypes):
            return None
        with np.errstate(over="ignore"):
            numbers = np.asarray(table, dtype=self.dtype).astype(np.float64)
        return numbers if np.isfinite(numbers).all() else None

    def _first_refused(self, X: Any) -> str:
        """Name the first cell that is too large, infinite or missing; empty where the table holds more than numbers."""
        try:
            numbers = np.asarray(columns_by_name(X, self.names), dtype=np.float64)
        except (TypeError, ValueError):
            return ""
        with np.errstate(over="ignore"):
            refused = np.isinf(numbers.astype(self.dtype)) | (np.isnan(numbers) & (not self.missing))
        cells = np.argwhere(refused)
        if not cells.size:
            return ""
        row, column = cells[0].tolist()
        return f"Column {column if self.names is None else repr(self.names[column])} holds {numbers[row, column]}. "


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


def check_width(table: Any, n_features: int) -> None:
    """Refuse a table of another width than the model's."""
    if table.shape[1] != n_features:
        raise DataError(
            f"The table has {table.shape[1]} columns, but the model was fitted on {n_features}. Give it those columns."
        )


def feature_names(model: Any) -> tuple[Any, ...] | None:
    """Names of the columns as the model knows them, or None."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(names)


@dataclass(frozen=True)
class JointReader:
    """Numbers of a table that several readers read alike.

    Attributes
    ----------
    numbers : NumberReader
    readers : tuple of (Reader, bool)
        Each part's, and whether it compares in float32.
    """

    numbers: NumberReader
    readers: tuple[tuple[Reader, bool], ...]

    def __call__(self, X: Any) -> F8:
        """Read a table; DataError where a part refuses it, or reads its numbers as others than the float64 they are."""
        numbers = self.numbers(X)
        for read, single in self.readers:
            asked, told = rounded(read(X), single), rounded(read(numbers), single)
            if not np.array_equal(asked, told, equal_nan=True):
                column = int(np.flatnonzero(~((asked == told) | (np.isnan(asked) & np.isnan(told))).all(axis=0))[0])
                raise DataError(
                    f"The members of the model do not round the numbers of column {column} alike. Give them as float64."
                )
        return numbers


def rounded(numbers: F8, single: bool) -> NDArray[Any]:
    """Round numbers as a table does before it compares them."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32) if single else numbers
