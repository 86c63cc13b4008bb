"""Attributes that are computed when somebody first asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["lazy"]

_Value = TypeVar("_Value")


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
