"""Attributes that are computed when somebody first asks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Generic, TypeVar, overload

import pandas as pd
from numpy.typing import NDArray

__all__ = ["cells_of", "lazy", "rows_of", "shows_as_series"]

_Value = TypeVar("_Value")
_Class = TypeVar("_Class", bound=type)


class lazy(Generic[_Value]):
    """`functools.cached_property` without a lock.

    Before Python 3.12 that locks a whole class while it computes for one instance: threads wait for each other, and
    the child of a process that forks meanwhile waits for ever. Here two threads may compute the same; the first one's
    is kept.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[_Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _Value: ...

    def __get__(self, instance: object | None, owner: type) -> lazy[_Value] | _Value:
        if instance is None:
            return self
        value: _Value = vars(instance).setdefault(self.compute.__name__, self.compute(instance))
        return value


class _Row:
    """A Series that is made when somebody asks for it.

    pandas takes 20 us for one, an explained row has eleven, and most are never looked at.
    """

    __slots__ = ("_cells", "_label", "_listed", "_made", "_names")

    def __init__(self, cells: NDArray[Any], names: pd.Index[Any], listed: list[Any], label: Any) -> None:
        self._cells: Any = cells
        self._names = names
        self._listed = listed  # the names; an Index takes as long to list them as a Series to be made
        self._label = label
        self._made: dict[str, Any] = {}

    @property
    def series(self) -> Any:
        """The Series, the same one every time."""
        cells = self._cells  # read first: another thread lets them go once the Series is there
        if not self._made:  # of two threads the first one's is kept, or what is written into the other's is lost
            self._made.setdefault("series", pd.Series(cells, self._names, name=self._label, dtype=cells.dtype))
            self._cells = None
        return self._made["series"]

    def by_name(self) -> dict[Any, Any]:
        """The cells alone."""
        cells = self._cells
        return dict(zip(self._listed, self._made["series"].array if cells is None else cells, strict=True))


def rows_of(cells: NDArray[Any], names: pd.Index[Any], labels: Sequence[Any] | None = None) -> list[Any]:
    """Rows of cells (n, d), for attributes that show them as Series with these names and labels.

    Each keeps a copy of its own: the cells may be written into later, and a row that is kept must not keep the others.
    """
    listed = names.tolist()
    return [_Row(row.copy(), names, listed, label) for row, label in zip(cells, labels or repeat(None), strict=False)]


def cells_of(result: object, attribute: str) -> dict[Any, Any]:
    """What an attribute shows as a Series, by name, without the Series; nothing where it is None."""
    kept = vars(result)[attribute]
    if kept is None:
        return {}
    return kept.by_name() if isinstance(kept, _Row) else dict(kept.items())


class _ShownAsSeries:
    """An attribute that shows what `rows_of` gave as a Series."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        value = instance.__dict__[self.name]
        return value.series if isinstance(value, _Row) else value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value


def shows_as_series(*names: str) -> Callable[[_Class], _Class]:
    """Let attributes of a dataclass be given as `rows_of` gives them."""

    def decorate(cls: _Class) -> _Class:
        for name in names:
            setattr(cls, name, _ShownAsSeries(name))
        return cls

    return decorate
