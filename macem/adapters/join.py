"""Several tables as one: the trees of different models over the same columns, asked through one reader."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macem.errors import DataError
from macem.kernel import F8
from macem.oracle import Oracle, Reader, TreeOracle
from macem.trees import Link, Member, Tree, rename_features

__all__ = ["NumberReader", "Part", "check_width", "columns_by_name", "feature_names", "join", "obstacle"]


# Reading numbers -----------------------------------------------------------------------------------------------------


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
        from sklearn.utils.validation import check_array

        finite = False if self.infinite else "allow-nan" if self.missing else True
        try:
            with np.errstate(over="ignore"):  # what is too large for float32 is refused as infinite
                numbers = check_array(
                    columns_by_name(X, self.names), dtype=self.dtype, ensure_all_finite=finite, ensure_min_samples=0
                )
        except ValueError as error:
            raise DataError(f"The model cannot read this table: {error} Give it numbers that it takes.") from error
        check_width(numbers, self.n_features)
        return np.asarray(numbers, dtype=np.float64)


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


# Joining tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One model of several that answer together.

    Attributes
    ----------
    oracle : Oracle
    weight : float
        Its weight in the mean.
    classes : sequence of int
        Place of each of its classes among the classes of the whole.
    columns : ndarray of int, or None
        Place of each of its features in the table of the whole; None: the same features.
    read : Reader, or None
        Reads its features from the table of the whole; None: as its oracle reads.
    """

    oracle: Oracle
    weight: float
    classes: Sequence[int]
    columns: NDArray[np.int64] | None = None
    read: Reader | None = None


def obstacle(parts: Sequence[Part]) -> str:
    """Say why models cannot be one table; empty where they can."""
    oracles: list[Any] = [part.oracle for part in parts]
    for oracle in oracles:
        if not isinstance(oracle, TreeOracle):
            return getattr(oracle, "note", "") or f"{type(oracle).__name__} is no table"
    if len({repr(float(oracle.missing_value)) for oracle in oracles}) > 1:
        return "they take different numbers for missing"
    if _shared_reader(parts) is not None:
        return ""
    trees = [tree for oracle in oracles for member in oracle.members for tree in member.trees]
    if any(tree.categories for tree in trees):
        return "they number the categories of a column differently"
    if any(tree.zero_is_missing is not None for tree in trees):
        return "one of them takes zeros for missing values"
    return ""


def join(
    parts: Sequence[Part],
    *,
    classes: NDArray[Any],
    live: Oracle,
    n_features: int,
    names: tuple[Any, ...] | None,
    total: float | None = None,
    kind: type[TreeOracle] = TreeOracle,
) -> TreeOracle:
    """Make the weighted mean of tables one table; there must be no `obstacle`.

    Parameters
    ----------
    parts : sequence of Part
    classes : ndarray, shape (n_classes,)
    live : Oracle
        Answers from the user's own model.
    n_features : int
    names : tuple or None
        Names of the columns as the whole knows them.
    total : float, optional
        Divisor of the weighted sum; the sum of weights by default.
    kind : class
        What to make.
    """
    single, read = _joint_reader(parts, n_features, names)
    members: list[Member] = []
    for part in parts:
        oracle: Any = part.oracle
        divisor = sum(member.weight for member in oracle.members) if oracle.total is None else oracle.total
        for member in oracle.members:
            if part.columns is not None:
                member = rename_features(member, part.columns)
            if isinstance(read, JointReader) and not single:
                member = replace(member, trees=_behind_reader(member.trees, oracle))
            # the weight itself where a model is one member: the sum is then the live one to the bit
            weight = part.weight if member.weight == divisor else part.weight * member.weight / divisor
            places = tuple(part.classes[place] for place in member.classes)
            members.append(replace(member, weight=weight, classes=places))
    total = float(sum(part.weight for part in parts)) if total is None else total
    if all(_is_one_tree(member) for member in members):
        members, total = [_forest(members, len(classes), total)], 1.0
    return kind(
        members=members,
        classes=classes,
        live=live,
        read=read,
        n_features=n_features,
        single=single,
        missing_value=parts[0].oracle.missing_value,  # type: ignore[attr-defined]
        total=total,
        feature_names=names,
    )


def _is_one_tree(member: Member) -> bool:
    plain = (member.link, member.divisor, member.weight, member.single) == (Link.IDENTITY, 1.0, 1.0, False)
    return plain and len(member.trees) == 1 and not np.any(member.start)


def _forest(members: Sequence[Member], n_classes: int, divisor: float) -> Member:
    """Make many members of one tree each one member; the sum runs in the same order."""
    trees = []
    for member in members:
        (tree,) = member.trees
        value = np.zeros((len(tree.value), n_classes))
        value[:, list(member.classes)] = tree.value
        trees.append(replace(tree, value=value))
    return Member(
        trees=trees,
        n_outputs=n_classes,
        link=Link.IDENTITY,
        start=np.zeros(n_classes),
        classes=tuple(range(n_classes)),
        divisor=divisor,
    )


# One reader for all --------------------------------------------------------------------------------------------------


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
            asked, told = _rounded(read(X), single), _rounded(read(numbers), single)
            if not np.array_equal(asked, told, equal_nan=True):
                column = int(np.flatnonzero(~((asked == told) | (np.isnan(asked) & np.isnan(told))).all(axis=0))[0])
                raise DataError(
                    f"The members of the model do not round the numbers of column {column} alike. Give them as float64."
                )
        return numbers


def _rounded(numbers: F8, single: bool) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32) if single else numbers


def _readers(parts: Sequence[Part]) -> list[Any]:
    return [part.oracle.read if part.read is None else part.read for part in parts]  # type: ignore[attr-defined]


def _shared_reader(parts: Sequence[Part]) -> Reader | None:
    """Return the reader of all parts, where they have the same."""
    first, *others = _readers(parts)
    if len({part.oracle.single for part in parts}) > 1 or any(part.columns is not None for part in parts):  # type: ignore[attr-defined]
        return None
    image = pickle.dumps(first)
    return first if all(pickle.dumps(other) == image for other in others) else None


def _joint_reader(parts: Sequence[Part], n_features: int, names: tuple[Any, ...] | None) -> tuple[bool, Reader]:
    """Find a reader for all parts, and whether they all compare in float32."""
    single = all(part.oracle.single for part in parts)  # type: ignore[attr-defined]
    readers = _readers(parts)
    shared = _shared_reader(parts)
    if shared is not None:
        return single, shared
    plain = [read for read in readers if isinstance(read, NumberReader)]
    if len(plain) == len(readers) and len({read.dtype for read in plain}) == 1:
        missing, infinite = all(read.missing for read in plain), all(read.infinite for read in plain)
        return single, NumberReader(n_features, names, plain[0].dtype, missing, infinite)
    numbers = NumberReader(n_features, names, "float32" if single else "float64", missing=True, infinite=True)
    pairs = zip(readers, parts, strict=True)
    return single, JointReader(numbers, tuple((read, part.oracle.single) for read, part in pairs))  # type: ignore[attr-defined]


def _behind_reader(trees: Sequence[Tree], oracle: TreeOracle) -> list[Tree]:
    """Move thresholds so that float64 numbers, which the oracle would read and round first, go the same way."""
    asked = np.unique(np.concatenate([tree.threshold[tree.feature >= 0] for tree in trees] or [np.zeros(0)]))
    if not asked.size:
        return list(trees)

    def seen(numbers: F8) -> F8:
        read = oracle.read(np.broadcast_to(numbers[:, None], (numbers.size, oracle.n_features)))
        return _rounded(read[:, 0], oracle.single).astype(np.float64)

    moved = largest_on_the_left(seen, asked, _largest_readable(oracle))
    last = asked.size - 1
    return [replace(tree, threshold=moved[np.searchsorted(asked, tree.threshold).clip(0, last)]) for tree in trees]


def _largest_readable(oracle: TreeOracle) -> float:
    largest = float(np.finfo(np.float64).max)
    try:
        oracle.read(np.full((1, oracle.n_features), largest))
    except DataError:
        return float(np.finfo(np.float32).max)
    return largest


def largest_on_the_left(seen: Callable[[F8], F8], thresholds: F8, largest: float) -> F8:
    """Find the largest float that a monotone function still keeps at or below each threshold, by bisection over floats.

    Parameters
    ----------
    seen : callable
        The function, not decreasing, over arrays.
    thresholds : ndarray of float64
    largest : float
        Numbers up to this size may be asked; where it stays on the left, so does everything.
    """
    low = np.full(thresholds.shape, _ordinal(np.array([-largest]))[0])
    high = np.full(thresholds.shape, _ordinal(np.array([largest]))[0])
    never, always = seen(_number(low)) > thresholds, seen(_number(high)) <= thresholds
    for _ in range(64):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        left = seen(_number(middle)) <= thresholds
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return np.where(never, -np.inf, np.where(always, np.inf, _number(low)))


def _ordinal(numbers: F8) -> NDArray[np.int64]:
    """Number the floats in their order."""
    return _flip(numbers.view(np.int64))


def _number(ordinals: NDArray[np.int64]) -> F8:
    """Return the floats of `_ordinal` numbers."""
    return _flip(ordinals).view(np.float64)


def _flip(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Reverse the order of negative numbers; its own inverse."""
    return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
