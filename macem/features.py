"""Features: what an explainer keeps of its background, and the way from tables to numbers and back.

A *number* of a numeric column is its value, NaN where it is missing. A number of a categorical column is a *level
number*, by falling frequency: 0 is the mode, -1 a level that the background never showed, NaN a missing one. No rows
are kept.
"""

from __future__ import annotations

import difflib
import hashlib
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from macem import columns, kernel
from macem.columns import Column
from macem.errors import DataError, NumbersAsCategoriesWarning, OneHotColumnsWarning, OptionError
from macem.kernel import F8, I8, Records
from macem.lazy import lazy

__all__ = ["Features", "Form"]

FEWEST_SEEN, MOST_SEEN = 30, 1000  # rows that tell one-hot columns: fewer may be so by chance, and more take long
FEW = 200  # so many cells of a column are looked up faster one by one than first grouped

_SCALES = ("range", "std", "mad")
_DIRECTIONS = {"increase": 1, "decrease": -1}


@dataclass(frozen=True, eq=False)
class Features:
    """What the background shows of each of its d columns, and what may be done with them. Made by `Features.fit`.

    Attributes
    ----------
    names : tuple
        The user's column labels; 0 … d - 1 if the background was an array.
    dtypes : tuple
        Their dtypes.
    kinds : tuple of str
        ``"continuous"``, ``"integer"``, ``"decimal"`` or ``"categorical"``.
    decimals : ndarray of int64, shape (d,)
        Decimals of the grid that holds every value: 0 for integers; -1 for continuous and categorical columns.
    base : ndarray of float64, shape (d,)
        Base values, in numbers.
    scale : ndarray of float64, shape (d,)
        Length of one unit of the working coordinate; 1 for categories and for constant columns.
    std : ndarray of float64, shape (d,)
        Standard deviations; 1 for categories and for constant columns.
    low, high : ndarray of float64, shape (d,)
        The allowed range, in numbers; 0 and n_levels - 1 for categories.
    levels : tuple of (ndarray of object or None)
        The categories by level number; None for numeric columns.
    counts : tuple of (ndarray of int64 or None)
        How often the background shows each level.
    frozen : ndarray of bool, shape (d,)
    direction : ndarray of int8, shape (d,)
        1 where a feature may only increase, -1 where it may only decrease, else 0.
    special_codes : tuple of ndarray of float64
        Numbers that mean "no information".
    fingerprint : str
        Hash of the background's names, dtypes and values, whatever its index.
    n_background : int
    was_frame : bool
        Whether the background was a DataFrame, which the model is then asked with.
    """

    names: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    kinds: tuple[str, ...]
    decimals: I8
    base: F8
    scale: F8
    std: F8
    low: F8
    high: F8
    levels: tuple[NDArray[np.object_] | None, ...]
    counts: tuple[I8 | None, ...]
    frozen: NDArray[np.bool_]
    direction: NDArray[np.int8]
    special_codes: tuple[F8, ...]
    fingerprint: str
    n_background: int
    was_frame: bool

    @classmethod
    def fit(
        cls,
        X: Any,
        *,
        categorical: Iterable[Any] | None = None,
        base: Mapping[Any, Any] | Callable[[F8], float] | None = None,
        ranges: Mapping[Any, tuple[Any, Any]] | None = None,
        frozen: Iterable[Any] | None = (),
        directions: Mapping[Any, str] | None = None,
        special_values: Mapping[Any, Any] | None = None,
        scale: Any = "range",
    ) -> Features:
        """Learn the features of a background table, column by column in one pass.

        Parameters
        ----------
        X : DataFrame, or array of shape (n, d)
        categorical : iterable of names or positions, optional
            Columns of category codes, beside those whose dtype says so (str, object, category, bool).
        base : {feature: value} or BaseRule, optional
            Base values in place of medians and modes, or a rule for all numeric columns.
        ranges : {feature: (low, high)}, optional
            Allowed ranges in place of those of the data; None leaves an end as it is.
        frozen : iterable of names, optional
            Features that may not change.
        directions : {feature: "increase" or "decrease"}, optional
        special_values : {feature or "*": codes}, optional
            Numbers that mean "no information"; "*" stands for every numeric column.
        scale : "range", "std", "mad", array of shape (d,) or {feature: unit}
            Unit of the working coordinate.

        Raises
        ------
        DataError
            If the table cannot be used as it is.
        OptionError
            If an option names an unknown feature or asks for something impossible.
        """
        table = _background(X)
        names = tuple(table.columns)
        series = [_column(table, at, name) for at, name in enumerate(names)]
        declared = set(_positions(names, () if categorical is None else categorical, "categorical"))
        is_category = [
            at in declared or columns.is_category(column, typed=isinstance(X, pd.DataFrame))
            for at, column in enumerate(series)
        ]
        if isinstance(X, pd.DataFrame):
            _warn_of_numbers([column for at, column in enumerate(series) if is_category[at] and at not in declared])
        given_base = {} if callable(base) else _by_position(names, base, "base")
        given_ranges = _by_position(names, ranges, "ranges", is_category)
        given_directions = _by_position(names, directions, "directions", is_category)
        special_codes = _special_codes(names, special_values, is_category)
        units = _units(names, scale, is_category)

        summaries = [
            _levels_summary(column, given_base.get(at))
            if is_category[at]
            else _numbers_summary(
                column,
                special_codes[at],
                base=given_base.get(at, base if callable(base) else None),
                limits=given_ranges.get(at, (None, None)),
                unit=units[at],
            )
            for at, column in enumerate(series)
        ]
        frozen_mask = np.zeros(len(names), np.bool_)
        frozen_mask[_positions(names, () if frozen is None else frozen, "frozen")] = True
        _warn_of_one_hot([column for column, is_frozen in zip(series, frozen_mask, strict=True) if not is_frozen])
        direction = np.zeros(len(names), np.int8)
        for at, word in given_directions.items():
            if not isinstance(word, str) or word not in _DIRECTIONS:
                raise OptionError(f"directions[{names[at]!r}] is {word!r}: give 'increase' or 'decrease'")
            direction[at] = _DIRECTIONS[word]

        def gathered(field: str) -> F8:
            return np.array([getattr(summary, field) for summary in summaries], np.float64)

        return cls(
            names=names,
            dtypes=tuple(column.dtype for column in series),
            kinds=tuple(summary.kind for summary in summaries),
            decimals=gathered("decimals").astype(np.int64),
            base=gathered("base"),
            scale=gathered("scale"),
            std=gathered("std"),
            low=gathered("low"),
            high=gathered("high"),
            levels=tuple(summary.levels for summary in summaries),
            counts=tuple(summary.counts for summary in summaries),
            frozen=frozen_mask,
            direction=direction,
            special_codes=special_codes,
            fingerprint=_fingerprint(table),
            n_background=len(table),
            was_frame=isinstance(X, pd.DataFrame),
        )

    def position(self, name: Any) -> int:
        """Position of a feature, given by name (or by position, where names are not integers)."""
        return _position(self.names, name, "the request")

    def check(self, X: Any) -> pd.DataFrame:
        """Bring rows into the background's columns, in its order, or refuse them.

        Parameters
        ----------
        X : DataFrame, Series, dict, list of dicts, or array of shape (n, d) or (d,)
            A Series, a dict or a 1-D array is one row. Named columns are matched by name.

        Returns
        -------
        DataFrame, shape (n, d)
            With the index of `X`. A column with a value that the background's dtype cannot hold keeps a wider one.

        Raises
        ------
        DataError
            If columns are missing, unknown or duplicated, or if a numeric cell is infinite or no number.
        """
        return self._checked(X)[0]

    def form(self, X: Any) -> Form:
        """Check rows as `check` does, to make others like them."""
        if self._are_plain and type(X) is np.ndarray and X.dtype == np.float64 and X.shape[1:] == (len(self.names),):
            rows = X.copy()  # C-contiguous, and no other thread's
            if not np.isinf(rows).any():
                # a view, which can be renamed without the next rows'
                return Form(self, rows, list(self.dtypes), range(len(rows)), self._columns.view())
        table, dtypes = self._checked(X)
        return Form(self, table, dtypes, table.index, table.columns)

    def _checked(self, X: Any) -> tuple[pd.DataFrame, list[Any]]:
        """Rows as `check` gives them, and their dtypes, which a frame takes as long to tell as to be made."""
        table, typed = self._rows(X)
        of_numbers = type(X) is np.ndarray and X.dtype.kind in "iuf"  # which pandas takes as they are
        dtypes = [X.dtype] * table.shape[1] if of_numbers else table.dtypes.tolist()
        self._refuse_strangers(table, dtypes)
        aligned = {}
        for at in self._unsettled(table, dtypes):
            column = _column(table, at, self.names[at])
            found = self._aligned(at, column, typed)
            if self.levels[at] is None:
                columns.refuse_infinite(found, columns.floats(found))
            if found is not column:
                aligned[at] = found.array
        if not aligned:
            return table, dtypes
        table = _replaced(table, aligned)
        return table, table.dtypes.tolist()

    def _refuse_strangers(self, table: pd.DataFrame, dtypes: list[Any]) -> None:
        """A dtype that is the background's own lets no category of another type in, unless it is one of objects."""
        loose = [at for at in self._level_numbers if types.is_object_dtype(dtypes[at]) or dtypes[at] != self.dtypes[at]]
        cells = table.to_numpy(object) if loose and len(table) <= FEW else None
        for at in loose:
            column = table.iloc[:, at].to_numpy(object) if cells is None else cells[:, at]
            columns.refuse_strangers(self.names[at], table.index, column, self._level_numbers[at])

    def _unsettled(self, table: pd.DataFrame, dtypes: list[Any]) -> Iterator[int]:
        """Columns of another dtype than the background's, or with a cell that is infinite."""
        for dtype, block in _blocks(dtypes).items():
            unsettled = {at for at in block if self.dtypes[at] != dtype}
            numeric = [at for at in block if at not in unsettled and self.levels[at] is None]
            plain = isinstance(dtype, np.dtype) and dtype.kind in "iuf"
            if not plain or (dtype.kind == "f" and np.isinf(_part(table, numeric).to_numpy()).any()):
                unsettled.update(numeric)
            yield from (at for at in block if at in unsettled)

    def numbers(self, table: pd.DataFrame, dtypes: Sequence[Any] | None = None) -> F8:
        """Numbers of a checked table.

        Parameters
        ----------
        table : DataFrame, shape (n, d)
        dtypes : sequence, optional
            Those of the table, where they are known.

        Returns
        -------
        ndarray of float64, shape (n, d)
        """
        numbers = np.empty(table.shape)
        cells = table.to_numpy(object) if len(table) <= FEW and self._level_numbers else None
        for dtype, block in _blocks(table.dtypes if dtypes is None else dtypes).items():
            numeric = [at for at in block if self.levels[at] is None]
            if len(numeric) > 1 and isinstance(dtype, np.dtype) and dtype.kind in "iuf":
                values = _part(table, numeric).to_numpy() if cells is None else cells[:, numeric]
                numbers[:, numeric] = values.astype(np.float64)
            else:
                for at in numeric:
                    numbers[:, at] = columns.floats(table.iloc[:, at])
            if columns.is_narrow(dtype):  # a float32 0.1 is the number 0.1, as every file shows it
                own = getattr(dtype, "numpy_dtype", dtype)
                for at in numeric:
                    written = columns.on_grid(numbers[:, at], int(self.decimals[at]))
                    numbers[:, at] = np.where(written.astype(own) == numbers[:, at], written, numbers[:, at])
        for at, level_numbers in self._level_numbers.items():
            if cells is not None:
                numbers[:, at] = self._looked_up(at, cells[:, at])
                continue
            codes, found = columns.factorized(table.iloc[:, at])
            numbers[:, at] = np.array([*(level_numbers.get(level, -1.0) for level in found), np.nan])[codes]
        return numbers

    def _looked_up(self, at: int, cells: NDArray[np.object_]) -> F8:
        """Level numbers of cells, one by one."""
        try:
            numbers = np.array([self._level_numbers[at].get(cell, -1.0) for cell in cells])
        except TypeError as error:
            raise columns.no_category(self.names[at], error) from error
        unseen = np.flatnonzero(numbers < 0.0)
        numbers[unseen[pd.isna(cells[unseen])]] = np.nan
        return numbers

    def frame(self, numbers: F8, like: pd.DataFrame, own: F8 | None = None) -> pd.DataFrame:
        """Table of numbers, in the form of another.

        Parameters
        ----------
        numbers : ndarray, shape (n, d)
        like : DataFrame, shape (n, d)
            A checked table. A cell whose number is that of `like` is taken from it as it stands.
        own : ndarray, shape (n, d), optional
            The numbers of `like`, where they are known.

        Returns
        -------
        DataFrame
            With names, index and dtypes of `like`; a wider dtype only where a value does not fit.
        """
        own = self.numbers(like) if own is None else own
        numbers = numbers + 0.0  # no negative zeros
        changed = (numbers != own) & ~(np.isnan(numbers) & np.isnan(own))
        moved = np.flatnonzero(changed.any(axis=0))
        if _are_floats(like.dtypes.tolist()) and all(self.levels[at] is None for at in moved):
            old = like.to_numpy()  # thousands of columns at once
            values = np.where(changed, numbers, old).astype(old.dtype, copy=False)
            return pd.DataFrame(values, index=like.index, columns=like.columns)
        replaced = {}
        for at in moved:
            cells, column, levels = changed[:, at], like.iloc[:, int(at)], self.levels[at]
            if levels is None:
                replaced[int(at)] = columns.with_numbers(column, cells, numbers[cells, at])
            else:
                replaced[int(at)] = columns.with_levels(column, cells, numbers[cells, at], levels)
        return _replaced(like, replaced)

    def model_table(self, table: pd.DataFrame, dtypes: Sequence[Any] | None = None) -> Any:
        """What the model is asked with: the table, or an array of the background's dtype if that was an array.

        `dtypes` are those of the table, where they are known.
        """
        if self.was_frame:
            return table
        dtype = self.dtypes[0]
        if not isinstance(dtype, np.dtype):  # text, which has no missing values
            cells = table.to_numpy(object)
            return cells if table.isna().any(axis=None) else cells.astype(str)
        dtypes = table.dtypes.tolist() if dtypes is None else dtypes
        return table.to_numpy(dtype if all(found == dtype for found in dtypes) else None)

    def silent(self, numbers: F8) -> NDArray[np.bool_]:
        """Which numbers say nothing, missing ones and special codes, shape (n, d)."""
        mask = np.isnan(numbers)
        for at in self._with_special_codes:
            mask[:, at] |= np.isin(numbers[:, at], self.special_codes[at])
        return mask

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @lazy
    def rules(self) -> Records:
        """What each feature may become, as the kernel reads it, shape (d,)."""
        fields = {"low": self.low, "high": self.high, "direction": self.direction, "frozen": self.frozen}
        return kernel.records(kernel.RULE, len(self.names), **fields)

    @lazy
    def narrow(self) -> list[tuple[int, Any]]:
        """Position and dtype of the continuous columns that hold fewer digits than a float64."""
        numeric = [at for at, levels in enumerate(self.levels) if levels is None and self.decimals[at] < 0]
        return [(at, self.dtypes[at]) for at in numeric if columns.is_narrow(self.dtypes[at])]

    @lazy
    def _are_plain(self) -> bool:
        """Whether all columns are numbers of float64, so that an array of them is its own numbers."""
        return _are_floats(list(self.dtypes)) and self.dtypes[0] == np.float64 and not self._level_numbers

    @lazy
    def _with_special_codes(self) -> list[int]:
        return [at for at, codes in enumerate(self.special_codes) if codes.size]

    @lazy
    def _columns(self) -> pd.Index[Any]:
        index: pd.Index[Any] = pd.Index(self.names)
        return index

    @lazy
    def _level_numbers(self) -> dict[int, dict[Any, float]]:
        """For each categorical column the numbers of its levels."""
        return {
            at: {level: float(number) for number, level in enumerate(levels)}
            for at, levels in enumerate(self.levels)
            if levels is not None
        }

    def _rows(self, X: Any) -> tuple[pd.DataFrame, bool]:
        """Rows in the background's columns, and whether the user chose their dtypes."""
        if isinstance(X, np.ndarray | np.void) and X.dtype.names is not None:
            X = _of_records(X)
        if isinstance(X, pd.DataFrame):
            return self._named(X), True
        if isinstance(X, pd.Series):
            return self._named(X.to_frame(0 if X.name is None else X.name).T), False
        if isinstance(X, Mapping):
            return self._from_mappings([X]), False
        if isinstance(X, Sequence) and any(isinstance(row, Mapping) for row in X):
            return self._from_mappings(X), False
        array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if array.shape == (0,):
            array = array.reshape(0, len(self.names))
        if array.ndim == 1:
            array = array.reshape(1, -1)
        if array.ndim != 2:
            raise DataError(
                f"rows are a {type(X).__name__} of {array.ndim} dimensions: give a DataFrame, a Series, a dict, "
                f"a list of dicts, or an array of shape (n, {len(self.names)})"
            )
        if array.shape[1] != len(self.names):
            raise DataError(
                f"rows have {array.shape[1]} columns, the background has {len(self.names)}: "
                "give all columns of the background, in its order"
            )
        # a view, which can be renamed without the next table
        return _untyped(array, self._columns.view()), array.dtype != object and not self.was_frame

    def _named(self, table: pd.DataFrame) -> pd.DataFrame:
        """The columns in the background's order, matched by name."""
        found = list(table.columns)
        if found == list(self.names):
            return table.iloc[:]  # a view: what a model writes into its rows does not reach the user's
        _refuse_duplicates(found)
        self._refuse_other_columns(found, "")
        return table.loc[:, list(self.names)]

    def _from_mappings(self, rows: Sequence[Any]) -> pd.DataFrame:
        """Rows that each name every column."""
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise DataError(f"row {number} is a {type(row).__name__} among dicts: give every row as a dict")
            self._refuse_other_columns(list(row), f"row {number}: ")
        return pd.DataFrame([[row[name] for name in self.names] for row in rows], columns=self.names, dtype=object)

    def _refuse_other_columns(self, found: list[Any], where: str) -> None:
        known, given = set(self.names), set(found)
        missing = [name for name in self.names if name not in given]
        extra = [name for name in found if name not in known]
        if not missing and not extra:
            return
        parts = []
        if missing:
            parts.append(f"missing {_listed(missing)}")
        if extra:
            parts.append(f"unknown {_listed(extra)}" + _near(extra[0], missing))
        raise DataError(
            f"{where}the columns are not those of the background ({'; '.join(parts)}): "
            + ("give exactly these columns" if self.was_frame else "it was an array without names, so give an array")
        )

    def _aligned(self, at: int, column: Column, typed: bool) -> Column:
        """A column in the background's dtype, or in one that also holds what the background's cannot."""
        dtype, levels = self.dtypes[at], self.levels[at]
        if column.dtype == dtype:
            return column
        if levels is not None:
            return columns.leveled(column, dtype, levels)
        if typed and types.is_numeric_dtype(column.dtype) and not types.is_bool_dtype(column.dtype):
            # by dtypes alone, so that a row comes out the same in every batch
            return column.astype(pd.concat([pd.Series(dtype=dtype), pd.Series(dtype=column.dtype)]).dtype)
        values = columns.floats(column)
        columns.refuse_infinite(column, values)
        return columns.cast(pd.Series(values, column.index, name=column.name), dtype)


@dataclass(frozen=True, eq=False)
class Form:
    """Checked rows, to build others from numbers: each with the dtypes, index and other cells of one of them.

    Made by `Features.form`.

    Attributes
    ----------
    features : Features
    rows : DataFrame or ndarray of float64, shape (n, d)
        An array of float64 is kept as it is, and no frame is made: that took a sixth of the time around the kernel and
        the model.
    dtypes : list
        Those of the columns, kept because asking a frame for them takes as long as making it.
    index, columns : sequence
        Labels of the rows and of the columns.
    """

    features: Features
    rows: pd.DataFrame | F8
    dtypes: list[Any]
    index: Any
    columns: pd.Index[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def parts(self, at_once: int) -> list[Form]:
        """The same in parts of so many rows; one that is its only part stays as it is, since slicing takes time."""
        firsts = range(0, len(self), at_once)
        return [self] if len(firsts) == 1 else [self._part(first, first + at_once) for first in firsts]

    def _part(self, first: int, end: int) -> Form:
        some = self.rows[first:end] if isinstance(self.rows, np.ndarray) else self.rows.iloc[first:end]
        return Form(self.features, some, self.dtypes, self.index[first:end], self.columns)

    @lazy
    def table(self) -> pd.DataFrame:
        """The rows as a table."""
        if isinstance(self.rows, np.ndarray):
            return pd.DataFrame(self.rows, self.index, self.columns)
        return self.rows

    @lazy
    def numbers(self) -> F8:
        """Numbers of the rows, shape (n, d)."""
        return self.rows if isinstance(self.rows, np.ndarray) else self.features.numbers(self.rows, self.dtypes)

    @lazy
    def cells(self) -> NDArray[Any]:
        """The cells of the rows, as objects where columns differ in dtype, shape (n, d)."""
        return self.rows if isinstance(self.rows, np.ndarray) else _cells(self.rows, self.dtypes)

    @lazy
    def has_background_dtypes(self) -> bool:
        """Whether the rows have the dtypes of the background, as nearly every one has."""
        return self.dtypes == list(self.features.dtypes)

    @property
    def model_table(self) -> Any:
        """What the model is asked with about the rows themselves."""
        if isinstance(self.rows, np.ndarray) and not self.features.was_frame:
            return self.rows.copy()  # an oracle may write into what it gets
        return self.features.model_table(self.table, self.dtypes)

    def frame(self, numbers: F8, like: I8) -> pd.DataFrame:
        """Table of numbers (m, d), each in the form of the row at a place `like`, (m,)."""
        if self._is_of_floats:
            return pd.DataFrame(self._filled(numbers, like), self.table.index[like], self.table.columns)
        return self.features.frame(numbers, self.table.iloc[like], self.numbers[like])

    def asked(self, numbers: F8, like: I8) -> Any:
        """What the model is asked with about numbers, as `frame` takes them."""
        if self._is_of_floats and not self.features.was_frame:
            return self._filled(numbers, like)
        return self.features.model_table(self.frame(numbers, like))

    def shown(self, numbers: F8, like: I8) -> tuple[Any, NDArray[Any]]:
        """What the model is asked with about numbers, and the same as cells."""
        if self._is_of_floats and not self.features.was_frame:
            asked = self._filled(numbers, like)
            return asked, asked.copy()  # an oracle may write into what it gets
        frame = self.frame(numbers, like)
        return self.features.model_table(frame), _cells(frame, frame.dtypes.tolist())

    @lazy
    def _is_of_floats(self) -> bool:
        return _are_floats(self.dtypes) and not self.features._level_numbers

    def _filled(self, numbers: F8, like: I8) -> NDArray[Any]:
        """Cells of numbers, each row like one of the table's."""
        # with a frame in between it takes three times as long; most of the rest is the one array of this size
        filled: NDArray[Any] = self.cells.take(like, axis=0)
        known = filled if filled.dtype == np.float64 else self.numbers.take(like, axis=0)
        # in place, and -0.0 becomes 0.0
        np.add(numbers, 0.0, out=filled, where=numbers != known, casting="same_kind")
        return filled


class _Summary(NamedTuple):
    """What one column of the background shows."""

    kind: str
    decimals: int
    base: float
    scale: float
    std: float
    low: float
    high: float
    levels: NDArray[np.object_] | None = None
    counts: I8 | None = None


def _levels_summary(column: Column, base: Any) -> _Summary:
    """Levels by frequency, and which of them is the base value."""
    levels, counts = columns.levels_of(column)
    if levels.size == 0:
        raise DataError(f"column {column.name!r} is missing in every background row: drop it, or fill it")
    number = 0
    if base is not None:
        level_numbers = {level: at for at, level in enumerate(levels)}
        number = level_numbers.get(base, -1) if isinstance(base, Hashable) else -1
        if number < 0:
            raise OptionError(
                f"base[{column.name!r}] is {base!r}, a category that the background never shows"
                f"{_near(base, levels)}: give one of {_listed(levels)}"
            )
    return _Summary("categorical", -1, float(number), 1.0, 1.0, 0.0, levels.size - 1.0, levels, counts)


def _numbers_summary(column: Column, special_codes: F8, *, base: Any, limits: Any, unit: Any) -> _Summary:
    """Grid, base value, unit and range of a numeric column, from the cells that say something."""
    name = column.name
    values = columns.floats(column)
    columns.refuse_infinite(column, values)
    silent = np.isnan(values) | np.isin(values, special_codes)
    values = values[~silent] if silent.any() else values
    if values.size == 0:
        why = "missing or a special code" if special_codes.size else "missing (NaN)"
        raise DataError(f"column {name!r} is {why} in every background row: drop it, or fill it")

    given = None if base is None or callable(base) else _number(base, f"base[{name!r}]")
    decimals = columns.decimals_of(values if given is None else np.append(values, given), column.dtype)
    if given is not None and decimals < 0:
        given = columns.as_written(given, column.dtype)
    if given is not None and decimals == 0 and given != np.floor(given):
        raise OptionError(f"base[{name!r}] is {given!r}, but the column holds integers: give a whole number")
    low, high = _range(name, limits, float(values.min()), float(values.max()), decimals, column.dtype)
    if given is None:
        middle = float(np.median(values)) if base is None else _number(base(values), f"the base rule for {name!r}")
        given = float(columns.on_grid(np.array(middle), decimals))
        if decimals < 0:  # the median of an even number of float32 is none
            given = columns.as_written(given, column.dtype)
        given = min(max(given, low), high)
    elif not low <= given <= high:
        raise OptionError(
            f"base[{name!r}] is {given!r}, outside its range {low!r} to {high!r}: "
            f"give a base value inside, or a wider range with ranges={{{name!r}: (low, high)}}"
        )

    with np.errstate(over="ignore"):  # of numbers near the largest there are
        std = float(values.std())
    if unit == "range":
        unit = float(values.max()) - float(values.min())
    elif unit == "std":
        unit = std
    elif unit == "mad":
        unit = float(np.median(np.abs(values - np.median(values))))
    scale = next(length for length in (unit, std, high - low, 1.0) if 0.0 < length < np.inf)
    kind = {-1: "continuous", 0: "integer"}.get(decimals, "decimal")
    return _Summary(kind, decimals, given, scale, std or 1.0, low, high)


def _range(name: Any, limits: Any, low: float, high: float, decimals: int, dtype: Any) -> tuple[float, float]:
    """The allowed range, given or of the data, from the first to the last value of the data's grid or dtype."""
    if not isinstance(limits, Sequence | np.ndarray) or isinstance(limits, str) or len(limits) != 2:
        raise OptionError(f"ranges[{name!r}] is {limits!r}: give a pair (low, high)")
    low = low if limits[0] is None else _number(limits[0], f"ranges[{name!r}]")
    high = high if limits[1] is None else _number(limits[1], f"ranges[{name!r}]")
    if low > high:
        raise OptionError(f"ranges[{name!r}] is {limits!r}, that is {low!r} to {high!r}: give low <= high")
    ends = np.array([low, high])
    inner = columns.on_grid(ends, decimals)
    inner = columns.on_grid(inner + np.array([inner[0] < low, -float(inner[1] > high)]) * 10.0**-decimals, decimals)
    if decimals < 0:
        inner = columns.inward(ends, dtype)
    if inner[0] > inner[1]:
        what = f"{dtype}" if decimals < 0 else f"value with {decimals} decimals"
        raise OptionError(
            f"ranges[{name!r}] is {limits!r}, which holds no {what}, as the column's are: give a wider range"
        )
    return float(inner[0]), float(inner[1])


def _number(value: Any, what: str) -> float:
    """A finite number given as an option."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise OptionError(f"{what} is {value!r}, but the column is numeric: give a number") from None
    if not np.isfinite(number):
        raise OptionError(f"{what} is {value!r}: give a finite number")
    return number


def _units(names: tuple[Any, ...], scale: Any, is_category: Sequence[bool]) -> list[Any]:
    """For each column a unit, or the name of a measure of the data."""
    if isinstance(scale, str):
        if scale not in _SCALES:
            raise OptionError(f"scale is {scale!r}{_near(scale, _SCALES)}: give 'range', 'std', 'mad' or units")
        return [scale] * len(names)
    units: list[Any] = ["range"] * len(names)
    if isinstance(scale, Mapping):
        given = _by_position(names, scale, "scale", is_category)
    else:
        listed = np.asarray(scale, dtype=object).ravel()
        if listed.size != len(names):
            raise OptionError(f"scale has {listed.size} units for {len(names)} columns: give one for each")
        given = {at: unit for at, unit in enumerate(listed) if not is_category[at]}
    for at, unit in given.items():
        units[at] = _number(unit, f"scale[{names[at]!r}]")
        if units[at] <= 0.0:
            raise OptionError(f"scale[{names[at]!r}] is {unit!r}: give a positive number")
    return units


def _special_codes(names: tuple[Any, ...], special_values: Any, is_category: Sequence[bool]) -> tuple[F8, ...]:
    """Special codes of each column; those of "*" hold for every numeric one."""
    if special_values is not None and not isinstance(special_values, Mapping):
        raise OptionError(f"special_values is {special_values!r}: give {{feature or '*': codes}}")
    given = dict(special_values or {})
    everywhere = _codes(given.pop("*"), "*") if "*" in given else np.empty(0)
    special_codes = [np.empty(0) if category else everywhere for category in is_category]
    for at, codes in _by_position(names, given, "special_values", is_category).items():
        special_codes[at] = np.union1d(everywhere, _codes(codes, names[at]))
    return tuple(special_codes)


def _codes(codes: Any, name: Any) -> F8:
    listed = codes if isinstance(codes, Iterable) and not isinstance(codes, str) else [codes]
    return np.unique(np.array([_number(code, f"special_values[{name!r}]") for code in listed], np.float64))


def _by_position(
    names: tuple[Any, ...], option: Any, what: str, is_category: Sequence[bool] | None = None
) -> dict[int, Any]:
    """An option {feature: value} by position; one that is for numbers refuses the categories given."""
    if option is None:
        return {}
    if not isinstance(option, Mapping):
        raise OptionError(f"{what} is a {type(option).__name__}: give a dict {{feature: value}}")
    given = {_position(names, name, what): value for name, value in option.items()}
    for at in given:
        if is_category is not None and is_category[at]:
            raise OptionError(
                f"{what} names {names[at]!r}, which is categorical and has no order: leave it out"
                + (f", or keep its value with frozen=[{names[at]!r}]" if what in ("ranges", "directions") else "")
            )
    return given


def _positions(names: tuple[Any, ...], option: Any, what: str) -> list[int]:
    """Positions of the features that an option lists; a lone name is a list of one."""
    listed = [option] if isinstance(option, str) or not isinstance(option, Iterable) else option
    return [_position(names, name, what) for name in listed]


def _position(names: tuple[Any, ...], name: Any, what: str) -> int:
    if name in names:
        return names.index(name)
    is_position = isinstance(name, int | np.integer) and not isinstance(name, bool) and 0 <= name < len(names)
    if is_position and not any(isinstance(known, int) for known in names):
        return int(name)
    raise OptionError(f"{what} names {name!r}, which is no feature{_near(name, names)}: give one of {_listed(names)}")


def _near(word: Any, known: Iterable[Any]) -> str:
    """A hint at similar words, if there are any."""
    written = {str(other): other for other in known}
    near = [written[other] for other in difflib.get_close_matches(str(word), written, n=3)]
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def _listed(words: Sequence[Any] | NDArray[Any], most: int = 20) -> str:
    return ", ".join(map(repr, words[:most])) + (f" and {len(words) - most} more" if len(words) > most else "")


def _background(X: Any) -> pd.DataFrame:
    """The background as a table, refused if it is none."""
    if isinstance(X, pd.DataFrame):
        table = X
    else:
        array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if array.dtype.kind in "iuf":  # pandas takes neither another byte order nor a long double
            array = array.astype(np.float64 if array.dtype.itemsize > 8 else array.dtype.newbyteorder("="), copy=False)
        if array.ndim != 2:
            raise DataError(
                f"the background is a {type(X).__name__} of {array.ndim} dimensions: "
                "give a DataFrame, or an array of shape (n, d)"
            )
        table = _untyped(array)
    if table.shape[1] == 0:
        raise DataError("the background has no columns: give the table that the model was trained on")
    if table.shape[0] == 0:
        raise DataError("the background has no rows: give at least one, since base values and ranges come from it")
    _refuse_duplicates(list(table.columns))
    return table


def _of_records(X: Any) -> pd.DataFrame:
    """A table of a structured array, or of one record."""
    try:
        return pd.DataFrame.from_records(np.ravel(X))
    except ValueError as error:  # a field of several numbers
        raise DataError(f"rows are records that are no table ({error}): give fields of one value each") from error


def _warn_of_numbers(categorical: list[Any]) -> None:
    """Say which columns are categorical by their dtype, object, although they hold numbers."""
    names = [column.name for column in categorical if column.dtype == object and columns.are_numbers(column)]
    if names:
        warnings.warn(
            f"columns {names} have dtype object and hold numbers alone: they are read as categories. If they measure "
            "something, give them a dtype of numbers (table.infer_objects(), or .astype(float)); if they are codes, "
            "name them in categorical.",
            NumbersAsCategoriesWarning,
            stacklevel=4,
        )


def _warn_of_one_hot(movable: list[Any]) -> None:
    """Say which neighbouring columns are one category in one-hot form, of which a model sees rows that cannot be."""
    n_rows = len(movable[0]) if movable else 0
    if n_rows < FEWEST_SEEN:
        return
    some = np.linspace(0, n_rows - 1, min(n_rows, MOST_SEEN)).astype(np.int64)
    group: dict[Any, I8] = {}
    total = np.zeros(some.size, np.int64)  # of the group
    for column in movable:
        cells = column.iloc[some]
        if not types.is_numeric_dtype(cells.dtype) or not cells.isin((0, 1)).all():
            group, total = {}, np.zeros(some.size, np.int64)
            continue
        group[column.name] = cells.to_numpy(np.int64)
        total = total + group[column.name]
        while total.max() > 1:
            total = total - group.pop(next(iter(group)))
        if len(group) > 2 and total.all():
            names = [columns.plain(name) for name in group]
            warnings.warn(
                f"of {len(names)} columns from {names[0]!r} to {names[-1]!r} each row of the background holds exactly "
                "one 1, as one-hot columns do: examples move them one by one, to none or two of them. Give the "
                "explainer the table before that encoding, and the model as a pipeline with its encoder.",
                OneHotColumnsWarning,
                stacklevel=4,
            )
            return


def _untyped(array: NDArray[Any], names: pd.Index[Any] | None = None) -> pd.DataFrame:
    """A table of an array; objects stay objects, and text is text in every pandas."""
    dtypes: dict[str, Any] = {"O": "object", "U": "string"}
    return pd.DataFrame(array, columns=names, dtype=dtypes.get(array.dtype.kind))


def _refuse_duplicates(names: list[Any]) -> None:
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise DataError(f"column {name!r} appears more than once: give every column its own name")
        seen.add(name)


def _column(table: pd.DataFrame, at: int, name: Any) -> Column:
    """One column of a table, by its name as a message shows it: not np.int64(0), as pandas has it."""
    column = table.iloc[:, at]
    column.name = name
    return column


def _part(table: pd.DataFrame, places: list[int]) -> pd.DataFrame:
    """Columns of a table, by position; the table itself where they are all."""
    return table if len(places) == table.shape[1] else table.iloc[:, places]


def _replaced(table: pd.DataFrame, arrays: Mapping[int, Any]) -> pd.DataFrame:
    """A table with some columns replaced, by position; the given one stays as it is."""
    if not arrays:
        return table
    if len(arrays) * 2 <= table.shape[1]:
        replaced = table.copy(deep=False)
        for at, array in arrays.items():
            replaced.isetitem(at, _typed(array, table.index))
        return replaced
    kept = {at: arrays[at] if at in arrays else table.iloc[:, at].array for at in range(table.shape[1])}
    replaced = pd.DataFrame({at: _typed(array, table.index) for at, array in kept.items()}, index=table.index)
    replaced.columns = table.columns
    return replaced


def _typed(array: Any, index: pd.Index[Any]) -> Any:
    """An array as a column that keeps its dtype: pandas makes texts of objects, if they all are."""
    return pd.Series(array, index, dtype=object) if types.is_object_dtype(array) else array


def _cells(table: pd.DataFrame, dtypes: list[Any]) -> NDArray[Any]:
    """The cells of a table, as objects where columns differ in dtype."""
    return table.to_numpy(None if _are_alike(dtypes) else object)


def _are_alike(dtypes: list[Any]) -> bool:
    return isinstance(dtypes[0], np.dtype) and dtypes.count(dtypes[0]) == len(dtypes)


def _are_floats(dtypes: list[Any]) -> bool:
    return _are_alike(dtypes) and dtypes[0].kind == "f"


def _blocks(dtypes: Iterable[Any]) -> dict[Any, list[int]]:
    """Positions of the columns of each dtype."""
    blocks: dict[Any, list[int]] = {}
    for at, dtype in enumerate(dtypes):
        blocks.setdefault(dtype, []).append(at)
    return blocks


def _fingerprint(table: pd.DataFrame) -> str:
    """A hash of names, dtypes and values."""
    digest = hashlib.blake2b(digest_size=16)
    for at, name in enumerate(table.columns):
        column = table.iloc[:, at]
        digest.update(repr((name, str(column.dtype))).encode())
        if types.is_object_dtype(column.dtype):
            codes, found = columns.factorized(column)
            digest.update(codes.tobytes())
            digest.update(repr(found.tolist()).encode())
        else:
            digest.update(pd.util.hash_pandas_object(column, index=False).to_numpy().tobytes())
    return digest.hexdigest()
