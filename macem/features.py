"""Features: what an explainer keeps of its background data, and the way from tables to numbers and back.

A *number* of a numeric column is its value, NaN where it is missing. A number of a categorical column is a *level
number*: 0 is the base value (the mode unless another was given), then by falling frequency; -1 a level that the
background never showed, NaN a missing one. No rows are kept.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from macem.errors import DataError, OptionError
from macem.kernel import F8, I8
from macem.strategies import base_values

__all__ = ["Features"]

MOST_DECIMALS = 10

Table = pd.DataFrame


@dataclass(frozen=True, eq=False)
class Features:
    """What the background shows of each of its d columns, and what may be done with them.

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
        Base values, in numbers; 0 for categories.
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
        base: Mapping[Any, Any] | None = None,
        ranges: Mapping[Any, tuple[Any, Any]] | None = None,
        frozen: Iterable[Any] = (),
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
        base : {feature: value}, optional
            Base values in place of medians and modes.
        ranges : {feature: (low, high)}, optional
            Allowed ranges in place of those of the data; None leaves an end as it is.
        frozen : iterable of names, optional
            Features that may not change.
        directions : {feature: "increase" or "decrease"}, optional
        special_values : {feature or "*": codes}, optional
            Numbers that mean "no information"; "*" stands for every numeric column.
        scale : "range", "std", "mad", array of shape (d,) or {feature: value}
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
        declared = set() if categorical is None else set(_positions(names, categorical, "categorical"))
        given_base = _by_position(names, base, "base")
        given_range = _by_position(names, ranges, "ranges")
        given_direction = _by_position(names, directions, "directions")
        units = _units(names, scale)

        columns = [table.iloc[:, at] for at in range(len(names))]
        is_category = [at in declared or _is_category(column, X) for at, column in enumerate(columns)]
        special_codes = _special_codes(names, special_values, is_category)
        summaries = []
        for at, column in enumerate(columns):
            if is_category[at]:
                for option, given in (("ranges", given_range), ("directions", given_direction), ("scale", units)):
                    if at in given:
                        raise OptionError(
                            f"{option} names {names[at]!r}, which is categorical: only numeric features have an order; "
                            f"remove it, or use frozen=[{names[at]!r}] to keep it as it is"
                        )
                summaries.append(_summarise_levels(column, given_base.get(at)))
            else:
                summaries.append(
                    _summarise_numbers(
                        column,
                        special_codes[at],
                        given_base.get(at),
                        given_range.get(at, (None, None)),
                        units.get(at, scale if isinstance(scale, str) else "range"),
                    )
                )

        is_frozen = np.zeros(len(names), np.bool_)
        is_frozen[_positions(names, frozen, "frozen")] = True
        direction = np.zeros(len(names), np.int8)
        for at, word in given_direction.items():
            if word not in _DIRECTIONS:
                raise OptionError(
                    f"directions[{names[at]!r}] is {word!r}: give 'increase' or 'decrease', or leave it out"
                )
            direction[at] = _DIRECTIONS[word]

        def floats(field: str) -> F8:
            return np.array([getattr(summary, field) for summary in summaries], np.float64)

        return cls(
            names=names,
            dtypes=tuple(column.dtype for column in columns),
            kinds=tuple(summary.kind for summary in summaries),
            decimals=np.array([summary.decimals for summary in summaries], np.int64),
            base=floats("base"),
            scale=floats("scale"),
            std=floats("std"),
            low=floats("low"),
            high=floats("high"),
            levels=tuple(summary.levels for summary in summaries),
            counts=tuple(summary.counts for summary in summaries),
            frozen=is_frozen,
            direction=direction,
            special_codes=special_codes,
            fingerprint=_fingerprint(table),
            n_background=len(table),
            was_frame=isinstance(X, pd.DataFrame),
        )

    def position(self, name: Any) -> int:
        """Position of a feature given by name (or by position, where names are not integers)."""
        return _position(self.names, name, "the request")

    def check(self, X: Any) -> Table:
        """Bring rows into the background's columns, in its order, or refuse them.

        Parameters
        ----------
        X : DataFrame, Series, dict, list of dicts, or array of shape (n, d) or (d,)
            A Series, a dict or a 1-D array is one row. Named columns are matched by name.

        Returns
        -------
        DataFrame, shape (n, d)
            With the index of `X`. A column that holds what the background's dtype cannot keeps a wider one.

        Raises
        ------
        DataError
            If columns are missing, unknown or duplicated, or if a numeric cell is infinite or not a number.
        """
        table, typed = self._rows(X)
        columns = {}
        for at, name in enumerate(self.names):
            column = table.iloc[:, at]
            aligned = self._aligned(at, column, typed)
            if self.levels[at] is None:
                _refuse_infinite(aligned, _floats(aligned))
            if aligned is not column:
                columns[name] = aligned.array
        if not columns:
            return table
        return _replaced(table, columns)

    def numbers(self, table: Table) -> F8:
        """Numbers of a checked table.

        Returns
        -------
        ndarray of float64, shape (n, d)
        """
        numbers = np.empty(table.shape)
        for dtype, block in _blocks(table):
            numeric = [at for at in block if self.levels[at] is None]
            if numeric and isinstance(dtype, np.dtype) and dtype != object:
                numbers[:, numeric] = table.iloc[:, numeric].to_numpy(np.float64)
            else:
                for at in numeric:
                    numbers[:, at] = _floats(table.iloc[:, at])
            if dtype in _NARROW:  # 0.1 in float32 is the number 0.1, which CSV shows
                for at in numeric:
                    rounded = base_values.on_grid(numbers[:, at], int(self.decimals[at]))
                    same = rounded.astype(dtype) == numbers[:, at]
                    numbers[same, at] = rounded[same]
        for at, lookup in self._lookups.items():
            codes, levels = pd.factorize(table.iloc[:, at])
            known = lookup.get_indexer(pd.Index(np.asarray(levels, dtype=object), dtype=object))
            numbers[:, at] = np.append(known, np.nan)[codes]
        return numbers

    def frame(self, numbers: F8, like: Table) -> Table:
        """Table of numbers, in the form of another.

        Parameters
        ----------
        numbers : ndarray, shape (n, d)
        like : DataFrame, shape (n, d)
            A checked table. A cell whose number is that of `like` is taken from it as it stands.

        Returns
        -------
        DataFrame
            Names, index and dtypes of `like`; a wider dtype only where a value does not fit.
        """
        numbers = np.asarray(numbers, np.float64)
        changed = numbers != self.numbers(like)
        changed &= ~(np.isnan(numbers) & like.isna().to_numpy())
        columns: dict[Any, Any] = {}
        for at in np.flatnonzero(changed.any(axis=0)):
            cells = changed[:, at]
            column = like.iloc[:, at]
            levels = self.levels[at]
            if levels is None:
                columns[self.names[at]] = _with_numbers(column, cells, numbers[cells, at], self.kinds[at])
            else:
                columns[self.names[at]] = _with_levels(column, cells, numbers[cells, at], levels)
        return _replaced(like, columns) if columns else like

    def model_table(self, table: Table) -> Any:
        """What the model is asked with: the table, or an array of the background's dtype if that was an array."""
        if self.was_frame:
            return table
        if all(found == kept for found, kept in zip(table.dtypes, self.dtypes, strict=True)):
            dtype = self.dtypes[0]
            if isinstance(dtype, np.dtype):
                return table.to_numpy(dtype)
            return table.to_numpy(object).astype(str)
        return table.to_numpy()

    def special(self, numbers: F8) -> NDArray[np.bool_]:
        """Which numbers are special codes, shape (n, d)."""
        mask = np.zeros(np.shape(numbers), np.bool_)
        for at, codes in enumerate(self.special_codes):
            if codes.size:
                mask[:, at] = np.isin(numbers[:, at], codes)
        return mask

    def __getstate__(self) -> dict[str, Any]:
        return {field: value for field, value in self.__dict__.items() if field != "_lookups"}

    @cached_property
    def _lookups(self) -> dict[int, pd.Index[Any]]:
        """Level numbers by level, for each categorical column."""
        return {at: pd.Index(levels, dtype=object) for at, levels in enumerate(self.levels) if levels is not None}

    def _rows(self, X: Any) -> tuple[Table, bool]:
        """Rows in the background's columns, and whether their dtypes were chosen by the user."""
        if isinstance(X, pd.Series):
            return self._named(X.to_frame().T if X.name is not None else X.to_frame(0).T), False
        if isinstance(X, pd.DataFrame):
            return self._named(X), True
        if isinstance(X, Mapping):
            X = [X]
        if isinstance(X, Sequence) and not isinstance(X, str) and any(isinstance(row, Mapping) for row in X):
            return self._from_mappings(X), False
        array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if array.ndim == 1 and array.size == 0:
            array = array.reshape(0, len(self.names))
        if array.ndim == 1:
            array = array.reshape(1, -1)
        if array.ndim != 2:
            raise DataError(
                f"rows of type {type(X).__name__} and {array.ndim} dimensions: give a DataFrame, a Series, a dict, "
                f"a list of dicts, or an array of shape (n, {len(self.names)})"
            )
        if array.shape[1] != len(self.names):
            raise DataError(
                f"rows have {array.shape[1]} columns, the background has {len(self.names)}: "
                "give the columns the model was explained with, in their order"
            )
        table = pd.DataFrame(array, columns=pd.Index(self.names))
        return table, array.dtype != object and not self.was_frame

    def _named(self, table: Table) -> Table:
        """A table's columns in the background's order, matched by name."""
        found = list(table.columns)
        if found == list(self.names):
            return table
        _refuse_duplicates(found)
        known = set(self.names)
        missing = [name for name in self.names if name not in set(found)]
        extra = [name for name in found if name not in known]
        if missing or extra:
            raise DataError(_mismatch(missing, extra, self.was_frame))
        return table.loc[:, list(self.names)]

    def _from_mappings(self, rows: Sequence[Any]) -> Table:
        """A table of dicts that each name every column."""
        known = set(self.names)
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise DataError(f"row {number} is a {type(row).__name__} among dicts: give every row as a dict")
            missing = [name for name in self.names if name not in row]
            extra = [name for name in row if name not in known]
            if missing or extra:
                raise DataError(f"row {number}: {_mismatch(missing, extra, True)}")
        return pd.DataFrame(
            {name: pd.Series([row[name] for row in rows], dtype=object) for name in self.names},
            columns=pd.Index(self.names),
        )

    def _aligned(self, at: int, column: pd.Series[Any], typed: bool) -> pd.Series[Any]:
        """A column in the background's dtype, or in one that also holds what the background's cannot."""
        dtype = self.dtypes[at]
        if column.dtype == dtype:
            return column
        if self.levels[at] is not None:
            if isinstance(dtype, pd.CategoricalDtype):
                return _categorized(column, dtype)
            return _cast(column, dtype)
        if typed and types.is_numeric_dtype(column.dtype) and not types.is_bool_dtype(column.dtype):
            return column.astype(pd.concat([pd.Series(dtype=dtype), pd.Series(dtype=column.dtype)]).dtype)
        values = _floats(column)
        _refuse_infinite(column, values)
        return _cast(pd.Series(values, column.index, name=column.name), dtype)


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


_DIRECTIONS = {"increase": 1, "decrease": -1}
_NARROW = (np.dtype(np.float16), np.dtype(np.float32))
_KINDS = {-1: "continuous", 0: "integer"}


def _summarise_levels(column: pd.Series[Any], base: Any) -> _Summary:
    """Levels and counts of a categorical column."""
    try:
        codes, found = pd.factorize(column)
    except TypeError as error:
        raise DataError(
            f"column {column.name!r} holds values that cannot be categories ({error}): give strings or numbers"
        ) from error
    if len(found) == 0:
        raise DataError(f"column {column.name!r} is missing in every background row: drop it, or fill it")
    counts = np.bincount(codes[codes >= 0], minlength=len(found)).astype(np.int64)
    levels = np.empty(len(found), object)
    levels[:] = found.tolist()
    order = base_values.by_frequency(levels, counts)
    levels, counts = levels[order], counts[order]
    if base is not None:
        chosen = pd.Index(levels, dtype=object).get_indexer(pd.Index([base], dtype=object))[0]
        if chosen < 0:
            raise OptionError(
                f"base[{column.name!r}] is {base!r}, which the background never shows"
                f"{_near(base, levels.tolist())}: give one of its {len(levels)} categories"
            )
        first = np.concatenate([[chosen], np.delete(np.arange(len(levels)), chosen)])
        levels, counts = levels[first], counts[first]
    return _Summary("categorical", -1, 0.0, 1.0, 1.0, 0.0, len(levels) - 1.0, levels, counts)


def _summarise_numbers(
    column: pd.Series[Any], special_codes: F8, base: Any, limits: tuple[Any, Any], unit: Any
) -> _Summary:
    """Grid, base, unit and range of a numeric column."""
    name = column.name
    values = _floats(column)
    _refuse_infinite(column, values)
    values = base_values.informative(values, special_codes)
    if values.size == 0:
        what = "missing or a special code" if special_codes.size else "missing (NaN)"
        raise DataError(f"column {name!r} is {what} in every background row: drop it, or fill it")

    if base is not None:
        base = _number(base, f"base[{name!r}]")
    decimals = _decimals(values if base is None else np.append(values, base), column.dtype)
    if base is not None and types.is_integer_dtype(column.dtype) and base != np.floor(base):
        raise OptionError(
            f"base[{name!r}] is {base!r}, but the column holds integers: give a whole number, or a float column"
        )
    low, high = float(values.min()), float(values.max())
    std = float(values.std())
    if unit == "range":
        scale = high - low
    elif unit == "std":
        scale = std
    elif unit == "mad":
        scale = float(np.median(np.abs(values - np.median(values))))
    else:
        scale = unit

    low, high = _range(name, limits, low, high, decimals)
    if base is None:
        base = min(max(base_values.median(values, decimals), low), high)
    elif not low <= base <= high:
        raise OptionError(
            f"base[{name!r}] is {base!r}, outside its range {low!r} to {high!r}: "
            f"give a base value inside, or a wider range by ranges={{{name!r}: (low, high)}}"
        )
    scale = next(length for length in (scale, std, high - low, 1.0) if length > 0.0)
    return _Summary(_KINDS.get(decimals, "decimal"), decimals, base, scale, std or 1.0, low, high)


def _decimals(values: F8, dtype: Any) -> int:
    """Smallest number of decimals that writes every value exactly in its own dtype, or -1."""
    own = dtype if dtype in _NARROW else np.dtype(np.float64)
    limit = 2.0 ** (np.finfo(own).nmant + 1)
    largest = float(np.abs(values).max())
    for decimals in range(MOST_DECIMALS + 1):
        if largest * 10.0**decimals >= limit:
            break
        if all(
            np.array_equal(base_values.on_grid(part, decimals).astype(own), part.astype(own))
            for part in (values[:100], values)  # most grids fail on the first few values
        ):
            return decimals
    return -1


def _range(name: Any, limits: Any, low: float, high: float, decimals: int) -> tuple[float, float]:
    """The allowed range, given or of the data, on the data's grid."""
    try:
        given_low, given_high = limits
    except (TypeError, ValueError):
        raise OptionError(f"ranges[{name!r}] is {limits!r}: give a pair (low, high)") from None
    low = low if given_low is None else _number(given_low, f"ranges[{name!r}]")
    high = high if given_high is None else _number(given_high, f"ranges[{name!r}]")
    if low > high:
        raise OptionError(f"ranges[{name!r}] is {limits!r}, that is {low!r} to {high!r}: give low <= high")
    inner_low, inner_high = (float(base_values.on_grid(np.float64(end), decimals)) for end in (low, high))
    if decimals >= 0:
        step = 10.0**-decimals
        if inner_low < low:
            inner_low = float(base_values.on_grid(np.float64(inner_low + step), decimals))
        if inner_high > high:
            inner_high = float(base_values.on_grid(np.float64(inner_high - step), decimals))
    if inner_low > inner_high:
        raise OptionError(
            f"ranges[{name!r}] is {limits!r}, which holds none of the column's values (they have {decimals} decimals): "
            "give a wider range"
        )
    return inner_low, inner_high


def _number(value: Any, what: str) -> float:
    """A finite number given as an option."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise OptionError(f"{what} is {value!r}: the column is numeric, give a number") from None
    if not np.isfinite(number):
        raise OptionError(f"{what} is {value!r}: give a finite number")
    return number


def _units(names: tuple[Any, ...], scale: Any) -> dict[int, float]:
    """Units that were given by value."""
    if isinstance(scale, str):
        if scale not in ("range", "std", "mad"):
            raise OptionError(
                f"scale is {scale!r}{_near(scale, ['range', 'std', 'mad'])}: "
                "give 'range', 'std', 'mad', {feature: unit} or one unit for each column"
            )
        return {}
    if isinstance(scale, Mapping):
        units = _by_position(names, scale, "scale")
    else:
        given = np.asarray(scale, dtype=object).ravel()
        if given.size != len(names):
            raise OptionError(f"scale has {given.size} units for {len(names)} columns: give one for each")
        units = dict(enumerate(given))
    checked = {at: _number(unit, f"scale[{names[at]!r}]") for at, unit in units.items()}
    for at, unit in checked.items():
        if unit <= 0.0:
            raise OptionError(f"scale[{names[at]!r}] is {unit!r}: give a positive number")
    return checked


def _special_codes(names: tuple[Any, ...], special_values: Any, is_category: Sequence[bool]) -> tuple[F8, ...]:
    """Special codes of each column; those of "*" hold for every numeric one."""
    given = dict(special_values or {})
    everywhere = _codes(given.pop("*"), "*") if "*" in given and "*" not in names else np.empty(0)
    codes = [np.empty(0) if category else everywhere for category in is_category]
    for at, values in _by_position(names, given, "special_values").items():
        if is_category[at]:
            raise OptionError(
                f"special_values names {names[at]!r}, which is categorical: special codes are numbers; "
                "make them missing values instead, or leave them as categories"
            )
        codes[at] = np.union1d(everywhere, _codes(values, names[at]))
    return tuple(codes)


def _codes(values: Any, name: Any) -> F8:
    given = values if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    return np.unique([_number(value, f"special_values[{name!r}]") for value in given]).astype(np.float64)


def _by_position(names: tuple[Any, ...], option: Any, what: str) -> dict[int, Any]:
    """An option {feature: value} by position of the feature."""
    if option is None:
        return {}
    if not isinstance(option, Mapping):
        raise OptionError(f"{what} is a {type(option).__name__}: give a dict {{feature: value}}")
    return {_position(names, name, what): value for name, value in option.items()}


def _positions(names: tuple[Any, ...], option: Any, what: str) -> list[int]:
    """Positions of the features that an option lists; a lone name is a list of one."""
    listed = option if isinstance(option, Iterable) and not isinstance(option, (str, tuple)) else None
    if listed is None:
        listed = option if isinstance(option, tuple) and option not in names else [option]
    return [_position(names, name, what) for name in listed]


def _position(names: tuple[Any, ...], name: Any, what: str) -> int:
    if isinstance(name, np.generic):
        name = name.item()
    if name in names:
        return names.index(name)
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(names):
        if not any(isinstance(known, int) for known in names):
            return name
    shown = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
    raise OptionError(f"{what} names {name!r}, which is no feature{_near(name, names)}: give one of {shown}")


def _near(word: Any, known: Sequence[Any]) -> str:
    """A hint at similar words, if there are any."""
    near = difflib.get_close_matches(str(word), [str(other) for other in known], n=3)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def _mismatch(missing: Sequence[Any], extra: Sequence[Any], was_frame: bool) -> str:
    parts = []
    if missing:
        parts.append("missing " + ", ".join(map(repr, missing[:10])) + (", …" if len(missing) > 10 else ""))
    if extra:
        hints = [f"{name!r}{_near(name, missing)}" for name in extra[:10]]
        parts.append("unknown " + ", ".join(hints) + (", …" if len(extra) > 10 else ""))
    remedy = "give exactly the background's columns" if was_frame else "the background was an array, give an array"
    return f"columns do not match those of the background ({'; '.join(parts)}): {remedy}"


def _background(X: Any) -> Table:
    """The background as a table, refused if it is none."""
    if isinstance(X, pd.DataFrame):
        table = X
    else:
        array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=None if hasattr(X, "__array__") else object)
        if array.ndim != 2:
            raise DataError(
                f"the background is a {type(X).__name__} of {array.ndim} dimensions: "
                "give a DataFrame or an array of shape (n, d)"
            )
        table = pd.DataFrame(array)
    if table.shape[1] == 0:
        raise DataError("the background has no columns: give the table that the model was trained on")
    if table.shape[0] == 0:
        raise DataError("the background has no rows: base values and ranges come from it, give at least one")
    _refuse_duplicates(list(table.columns))
    return table


def _refuse_duplicates(names: list[Any]) -> None:
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise DataError(f"column {name!r} appears more than once: give every column its own name")
        seen.add(name)


def _is_category(column: pd.Series[Any], X: Any) -> bool:
    """Whether the dtype says category; an array of objects has no dtypes, so its columns are judged by their values."""
    dtype = column.dtype
    if types.is_bool_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype) or types.is_string_dtype(dtype):
        return isinstance(X, pd.DataFrame) or dtype != object or not _holds_numbers(column)
    if types.is_object_dtype(dtype):
        return isinstance(X, pd.DataFrame) or not _holds_numbers(column)
    if types.is_complex_dtype(dtype) or not types.is_numeric_dtype(dtype):
        raise DataError(
            f"column {column.name!r} has dtype {dtype}: turn it into numbers (a date into days, say), "
            "or name it in categorical"
        )
    return False


def _holds_numbers(column: pd.Series[Any]) -> bool:
    return types.infer_dtype(column, skipna=True) in {"integer", "floating", "mixed-integer-float", "decimal"}


def _floats(column: pd.Series[Any]) -> F8:
    """A numeric column as float64, NaN where it is missing."""
    if types.is_numeric_dtype(column.dtype) and not types.is_complex_dtype(column.dtype):
        return np.asarray(column.to_numpy(np.float64, na_value=np.nan))
    values = np.full(len(column), np.nan)
    for row, (value, missing) in enumerate(zip(column, column.isna(), strict=True)):
        if missing:
            continue
        try:
            if isinstance(value, str):
                raise TypeError
            values[row] = float(value)
        except (TypeError, ValueError):
            raise DataError(
                f"column {column.name!r}, row {column.index[row]!r} holds {value!r}, but the column is numeric: "
                "give a number, or None where it is missing"
            ) from None
    return values


def _refuse_infinite(column: pd.Series[Any], values: F8) -> None:
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size:
        row = infinite[0]
        raise DataError(
            f"column {column.name!r}, row {column.index[row]!r} is {values[row]}: "
            "give a finite number, or NaN where it is missing"
        )


def _cast(column: pd.Series[Any], dtype: Any) -> pd.Series[Any]:
    """A column in another dtype, or as it is where that would lose something."""
    try:
        with np.errstate(all="ignore"):
            cast = column.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return column
    present = ~column.isna()
    if not present.equals(~cast.isna()):
        return column
    before, after = column[present].to_numpy(object), cast[present].to_numpy(object)
    if dtype in _NARROW:  # a float cell is rounded, as it was in the background
        return cast if np.isfinite(after.astype(np.float64)).all() else column
    return cast if bool(np.all(before == after)) else column


def _categorized(column: pd.Series[Any], dtype: pd.CategoricalDtype) -> pd.Series[Any]:
    """A column in the background's categories, followed by those it never had."""
    codes, found = pd.factorize(column)
    values = pd.Index(found.tolist(), dtype=object)
    known = pd.Index(dtype.categories.tolist(), dtype=object)
    if unseen := [value for value in values if value not in known]:
        dtype = pd.CategoricalDtype([*known, *unseen], dtype.ordered)
        known = pd.Index([*known, *unseen], dtype=object)
    positions = np.append(known.get_indexer(values), -1)[codes]
    return pd.Series(pd.Categorical.from_codes(positions, dtype=dtype), column.index, name=column.name)


def _with_numbers(column: pd.Series[Any], cells: NDArray[np.bool_], numbers: F8, kind: str) -> Any:
    """A numeric column with some cells replaced, in a wider dtype if need be."""
    dtype = column.dtype
    if dtype == object:
        values = column.to_numpy(copy=True)
        values[cells] = [int(number) if kind == "integer" and number == number else number for number in numbers]
        return values
    if types.is_integer_dtype(dtype):
        limits = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
        whole = np.isfinite(numbers) & (numbers == np.floor(numbers))
        if not whole.all():
            column = column.astype(np.float64 if isinstance(dtype, np.dtype) else "Float64")
        elif numbers.min() < limits.min or numbers.max() > limits.max:
            column = column.astype(np.int64 if isinstance(dtype, np.dtype) else "Int64")
    values = column.array.copy()
    values[cells] = numbers.astype(values.dtype) if isinstance(values.dtype, np.dtype) else numbers
    return values


def _with_levels(
    column: pd.Series[Any], cells: NDArray[np.bool_], numbers: F8, levels: NDArray[np.object_]
) -> Any:
    """A categorical column with some cells replaced."""
    if (numbers < 0).any():
        raise ValueError(f"column {column.name!r}: level -1 stands for no value of its own")
    values = column.array.copy()
    missing = np.isnan(numbers)
    chosen = levels[np.where(missing, 0, numbers).astype(np.int64)]
    chosen[missing] = None
    values[cells] = chosen
    return values


def _replaced(table: Table, columns: Mapping[Any, Any]) -> Table:
    """A table with some columns replaced; the given one stays as it is."""
    arrays = [columns[name] if name in columns else table.iloc[:, at].array for at, name in enumerate(table.columns)]
    replaced = pd.DataFrame(dict(enumerate(arrays)), index=table.index)
    replaced.columns = table.columns
    return replaced


def _blocks(table: Table) -> Iterable[tuple[Any, list[int]]]:
    """Columns of the same dtype, by position."""
    blocks: dict[Any, list[int]] = {}
    for at, dtype in enumerate(table.dtypes):
        blocks.setdefault(dtype, []).append(at)
    return blocks.items()


def _fingerprint(table: Table) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for at, name in enumerate(table.columns):
        column = table.iloc[:, at]
        digest.update(repr((name, str(column.dtype))).encode())
        digest.update(pd.util.hash_pandas_object(column, index=False).to_numpy().tobytes())
    return digest.hexdigest()
