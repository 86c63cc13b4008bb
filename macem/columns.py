"""One column of a table: its kind, its grid or its levels, and how single cells are replaced in its own dtype."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from macem.errors import DataError
from macem.kernel import F8, I8

__all__ = [
    "are_numbers",
    "as_written",
    "cast",
    "decimals_of",
    "factorized",
    "floats",
    "inward",
    "is_category",
    "is_narrow",
    "leveled",
    "levels_of",
    "no_category",
    "on_grid",
    "plain",
    "refuse_infinite",
    "refuse_strangers",
    "with_levels",
    "with_numbers",
]

Column = Any  # a Series; its type variable says nothing of a user's column

MOST_DECIMALS = 10


def is_category(column: Column, *, typed: bool) -> bool:
    """Whether the dtype says category; an array of objects has no dtypes, so its values are looked at instead."""
    dtype = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        raise DataError(f"column {column.name!r} is sparse ({dtype}): give table.sparse.to_dense()")
    if types.is_object_dtype(dtype) and not typed:
        return not are_numbers(column)
    if isinstance(dtype, pd.CategoricalDtype) or types.is_bool_dtype(dtype) or types.is_string_dtype(dtype):
        return True
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype) and "decimal" not in str(dtype):
        return False
    raise DataError(
        f"column {column.name!r} has dtype {dtype}: turn it into numbers (a date into days, say), "
        "or name it in categorical"
    )


def are_numbers(column: Column) -> bool:
    """Whether the cells of a column of objects are numbers, but for missing ones."""
    kinds = {"integer", "floating", "mixed-integer-float", "decimal"}
    return types.infer_dtype(column, skipna=True) in kinds


def floats(column: Column) -> F8:
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
        except (TypeError, ValueError, OverflowError):
            raise DataError(
                f"column {column.name!r}, row {_label(column.index, row)!r} holds {plain(value)!r}, but the column is "
                "numeric: give a number, or None where it is missing"
            ) from None
    return values


def _label(index: pd.Index[Any], row: Any) -> Any:
    """The label of a row, a number without numpy's type around it."""
    return index[[row]].tolist()[0]


def refuse_infinite(column: Column, values: F8) -> None:
    """No distance leads to or from infinity."""
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size:
        row = infinite[0]
        raise DataError(
            f"column {column.name!r}, row {_label(column.index, row)!r} is {values[row]}: "
            "give a finite number, or NaN where it is missing"
        )


def is_narrow(dtype: Any) -> bool:
    """Whether a dtype holds fewer digits than a float64."""
    return _float_dtype(dtype) != np.float64


def inward(ends: F8, dtype: Any) -> F8:
    """Low and high ends, shape (…, 2), as the first and the last number between them that a dtype holds."""
    own, toward = _float_dtype(dtype), np.array([1.0, -1.0])
    with np.errstate(over="ignore"):
        nearest = ends.astype(own)
        beyond = toward * nearest < toward * ends
        inside = np.where(beyond, np.nextafter(nearest, (toward * np.inf).astype(own)), nearest)
    return inside.astype(np.float64)


def as_written(number: float, dtype: Any) -> float:
    """A number as a column of the dtype holds it."""
    return float(_float_dtype(dtype).type(number))


def on_grid(values: F8, decimals: int) -> F8:
    """The nearest numbers with so many decimals (half up), each the float that its written form parses to."""
    if decimals < 0:
        return values
    grid = 10.0**decimals
    return np.asarray(np.floor(values * grid + 0.5) / grid)


def decimals_of(values: F8, dtype: Any) -> int:
    """Smallest number of decimals that writes every value exactly in its own dtype, or -1."""
    if types.is_integer_dtype(dtype):
        return 0
    own = _float_dtype(dtype)
    limit = 2.0 ** (np.finfo(own).nmant + 1)  # up to here every step of the grid is a float of its own
    largest = float(np.abs(values).max())
    for decimals in range(MOST_DECIMALS + 1):
        if largest * 10.0**decimals >= limit:
            break
        if all(
            np.array_equal(on_grid(part, decimals).astype(own), part.astype(own))
            for part in (values[:100], values)  # most grids fail on the first few values
        ):
            return decimals
    return -1


def factorized(column: Column) -> tuple[I8, NDArray[np.object_]]:
    """Codes of a column (-1 where it is missing), and the values that they stand for."""
    try:
        codes, found = pd.factorize(column)
    except TypeError as error:
        raise no_category(column.name, error) from error
    return codes.astype(np.int64, copy=False), _objects(found.tolist())


def no_category(name: Any, error: Exception) -> DataError:
    """The refusal of a column with cells that cannot be told apart by value."""
    return DataError(f"column {name!r} holds values that cannot be categories ({error}): give strings or numbers")


def refuse_strangers(name: Any, index: pd.Index[Any], cells: NDArray[np.object_], known: Mapping[Any, Any]) -> None:
    """A category may be new, but of no other type than the known ones: a number among texts was read amiss."""
    for row, cell in enumerate(cells):
        try:
            if cell in known or pd.isna(cell) or any(_kind(level) == _kind(cell) for level in known):
                continue
        except TypeError:  # a list, say, which nothing is known by
            pass
        kinds = " and ".join(sorted({_kind(level) for level in known}))
        some = ", ".join(map(repr, list(known)[:5])) + (", …" if len(known) > 5 else "")
        meant = "".join(f" (did you mean {level!r}?)" for level in known if str(level) == str(cell))
        of_file = kinds == "texts" and _kind(cell) == "numbers"
        raise DataError(
            f"column {name!r}, row {_label(index, row)!r} holds {plain(cell)!r}{meant}, but the background's "
            f"categories are {kinds} ({some}): give {kinds}, or None where it is missing"
            + (f"; pandas reads the codes of a file as texts with dtype={{{name!r}: str}}" if of_file else "")
        )


_KINDS = {bool: "bools", np.bool_: "bools", str: "texts", Number: "numbers", date: "dates"}  # the first that fits


def _kind(category: Any) -> str:
    """What a person calls the type of a category."""
    return next((word for kind, word in _KINDS.items() if isinstance(category, kind)), type(category).__name__)


def plain(value: Any) -> Any:
    """A cell as a Python number or text, which prints as it is written."""
    return value.item() if isinstance(value, np.generic) else value


def levels_of(column: Column) -> tuple[NDArray[np.object_], I8]:
    """Levels of a categorical column and their counts, the mode first; ties by value, whatever the order of rows."""
    codes, found = factorized(column)
    counts = np.bincount(codes[codes >= 0], minlength=found.size).astype(np.int64)
    by_value = np.array(sorted(range(found.size), key=lambda at: _sort_key(found[at])), np.int64)
    order = by_value[np.argsort(-counts[by_value], kind="stable")]
    return found[order], counts[order]


def cast(column: Column, dtype: Any) -> Column:
    """A column in another dtype, or as it is where that would lose something."""
    try:
        with np.errstate(all="ignore"):
            changed = column.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return column
    present = ~column.isna()
    if not present.equals(~changed.isna()):
        return column
    before, after = column[present].to_numpy(object), changed[present].to_numpy(object)
    if types.is_float_dtype(dtype):  # rounded to the float that the background would hold
        return changed if np.isfinite(after.astype(np.float64)).all() else column
    return changed if bool(np.all(before == after)) else column


def leveled(column: Column, dtype: Any, levels: NDArray[np.object_]) -> Column:
    """A categorical column in the background's dtype, or in one that holds the background's levels beside its own."""
    if isinstance(dtype, pd.CategoricalDtype):
        return _categorized(column, dtype)
    column = cast(column.astype(object) if isinstance(column.dtype, pd.CategoricalDtype) else column, dtype)
    holds_both = column.dtype == dtype or cast(pd.Series(levels, dtype=object), column.dtype).dtype == column.dtype
    return column if holds_both else column.astype(object)


def _categorized(column: Column, dtype: pd.CategoricalDtype) -> Column:
    """A column in the background's categories, followed by those it never had."""
    codes, found = factorized(column)
    known = {category: at for at, category in enumerate(dtype.categories.tolist())}
    if unseen := [value for value in found if value not in known]:
        known |= {value: len(known) + at for at, value in enumerate(unseen)}
        dtype = pd.CategoricalDtype(list(known), dtype.ordered)
    positions = np.array([*(known[value] for value in found), -1])[codes]
    return pd.Series(pd.Categorical.from_codes(positions, dtype=dtype), column.index, name=column.name)


def with_numbers(column: Column, cells: NDArray[np.bool_], numbers: F8) -> Any:
    """The values of a numeric column with some cells replaced, in a wider dtype only where one does not fit."""
    dtype = column.dtype
    whole = np.isfinite(numbers) & (numbers == np.floor(numbers))
    if types.is_integer_dtype(dtype):
        own = getattr(dtype, "numpy_dtype", dtype)
        if not whole.all() or not (_fits(numbers, own) or (_fits(numbers, np.int64) and own != np.uint64)):
            column = column.astype(np.float64 if own is dtype else "Float64")
        elif not _fits(numbers, own):
            column = column.astype(np.int64 if own is dtype else "Int64")
    values = column.array.copy()
    if types.is_object_dtype(dtype):
        values[cells] = _objects([int(n) if is_whole else n for n, is_whole in zip(numbers, whole, strict=True)])
    else:
        own = getattr(values.dtype, "numpy_dtype", np.dtype(np.float64))
        values[cells] = _as_integers(numbers, own) if own.kind in "iu" else numbers.astype(own)
    return values


def _fits(numbers: F8, dtype: Any) -> bool:
    """Whether whole numbers are within the range of a dtype, as floats."""
    limits = np.iinfo(dtype)
    return bool(numbers.min() >= float(limits.min) and numbers.max() <= float(limits.max))


def _as_integers(numbers: F8, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Whole numbers in a dtype of integers; the largest of 64 bits is one less than the float that stands for it."""
    largest = np.iinfo(dtype).max
    top = numbers >= float(largest)
    integers = np.where(top, 0.0, numbers).astype(dtype)
    integers[top] = largest
    return integers


def with_levels(column: Column, cells: NDArray[np.bool_], numbers: F8, levels: NDArray[np.object_]) -> Any:
    """The values of a categorical column with some cells replaced."""
    if (numbers < 0).any():
        raise ValueError(f"column {column.name!r}: level number -1 stands for no value of its own")
    missing = np.isnan(numbers)
    chosen = levels[np.where(missing, 0, numbers).astype(np.int64)]
    chosen[missing] = None
    values = column.array.copy()
    own = column.dtype
    if isinstance(own, pd.CategoricalDtype):  # by their places: pandas looks no interval up among overlapping ones
        place = {category: at for at, category in enumerate(own.categories.tolist())}
        codes = values.codes.astype(np.int64)
        codes[cells] = [place.get(level, -1) for level in chosen]
        return pd.Categorical.from_codes(codes, dtype=own)
    if types.is_numeric_dtype(own):  # which was declared categorical takes its levels as numbers of its own dtype
        chosen = pd.array(chosen.tolist(), dtype=own)
    values[cells] = chosen
    return values


def _float_dtype(dtype: Any) -> np.dtype[Any]:
    own = getattr(dtype, "numpy_dtype", dtype)
    return np.dtype(own if types.is_float_dtype(own) else np.float64)


def _objects(values: Sequence[Any] | Iterable[Any]) -> NDArray[np.object_]:
    """A one-dimensional array of objects, even of tuples."""
    listed = list(values)
    array = np.empty(len(listed), object)
    array[:] = listed
    return array


def _sort_key(level: Any) -> tuple[str, Any]:
    """Sorts levels of any types: numbers and strings by value, others by how they print."""
    if isinstance(level, (bool, int, float)):
        return "", level
    return type(level).__name__, level if isinstance(level, str) else repr(level)
