"""Encodings: working coordinates in which zero is the base value, and the way back to the user's numbers.

An encoding whose `plan` is not None is data that the kernel reads; `encode` and `decode` below are the same in NumPy.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from macem.errors import OptionError
from macem.features import Features
from macem.kernel import CONTINUOUS, COORDINATE, F8, GRID, I8, LEVEL, ORDERED, SIMPLEX, Plan, Records, records

__all__ = [
    "Encoding",
    "FrequencyMap",
    "GivenPlaces",
    "OrderedEncoding",
    "SimplexSampling",
    "encoding_from",
    "project_on_simplex",
]


@runtime_checkable
class Encoding(Protocol):
    """Turns numbers (n, d) into working points (n, n_coordinates), zero being the base, and back."""

    @property
    def plan(self) -> Plan | None:
        """The encoding as data for the kernel; None keeps the search in lockstep."""
        ...

    @property
    def n_coordinates(self) -> int: ...

    def fit(self, features: Features) -> Encoding:
        """A new encoding, fitted to the features; this one stays as it is."""
        ...

    def encode(self, numbers: F8) -> F8:
        """Points, shape (n, n_coordinates), of numbers, shape (n, d); a missing number stands at the base."""
        ...

    def decode(self, points: F8, uniforms: F8 | None = None) -> F8:
        """Numbers, shape (n, d), of points; `uniforms` in [0, 1), shape (n, d), feed what is drawn."""
        ...


class _Planned:
    """An encoding that is nothing but its plan."""

    _plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        if self._plan is None:
            raise OptionError(f"{type(self).__name__} is not fitted: call fit(features) first")
        return self._plan

    @property
    def n_coordinates(self) -> int:
        return int(self.plan.feature["first"][-1])

    def fit(self, features: Features) -> Self:
        fitted = copy.copy(self)
        fitted._plan = self._plan_of(features)
        return fitted

    def _plan_of(self, features: Features) -> Plan:
        raise NotImplementedError

    def encode(self, numbers: F8) -> F8:
        return encode(self.plan, numbers)

    def decode(self, points: F8, uniforms: F8 | None = None) -> F8:
        return decode(self.plan, points, uniforms)


class OrderedEncoding(_Planned):
    """Base of encodings that place the levels of a category on a line: one method says where.

    Numbers stay linear whatever a subclass does: the kernel reads the places alone, and calls neither `encode` nor
    `decode`.
    """

    def places(self, counts: F8, levels: NDArray[np.object_]) -> F8:
        """Places of the levels of one feature, each another; the base value's is then moved to zero.

        Parameters
        ----------
        counts : ndarray of float64, shape (n_levels,)
            How often the background shows each level; equal counts come apart by less than half an occurrence.
        levels : ndarray of object, shape (n_levels,)
            The categories, by falling frequency.
        """
        raise OptionError(
            f"{type(self).__name__} has no method places(counts, levels): write one in a subclass, or take GivenPlaces"
        )

    def _places_of(self, name: Any, counts: F8, levels: NDArray[np.object_]) -> F8:
        return self.places(counts, levels)

    def _plan_of(self, features: Features) -> Plan:
        places: list[F8] = []
        columns = zip(features.names, features.counts, features.levels, features.base, strict=True)
        for name, counts, levels, base in columns:
            if counts is None or levels is None:
                places.append(np.empty(0))
                continue
            found = np.asarray(self._places_of(name, _apart(counts), levels), np.float64)
            if found.shape != counts.shape or not np.isfinite(found).all():
                raise OptionError(
                    f"places of {name!r} are {found!r}: give one finite number for each of its {len(levels)} levels"
                )
            order = np.argsort(found, kind="stable")
            twins = np.flatnonzero(np.diff(found[order]) == 0.0)
            if twins.size:
                one, other = levels[order[twins[0]]], levels[order[twins[0] + 1]]
                raise OptionError(
                    f"levels {one!r} and {other!r} of {name!r} share the place {float(found[order[twins[0]]])!r}: "
                    "give each level its own"
                )
            places.append(found - found[int(base)])
        return _plan(features, places, simplex=False)


class FrequencyMap(OrderedEncoding):
    """FMA, the paper's frequency map: the mode at 0, a level seen once at 1."""

    def places(self, counts: F8, levels: NDArray[np.object_]) -> F8:
        most = counts.max()
        return np.asarray((most - counts) / max(most - 1.0, 1.0))


class GivenPlaces(FrequencyMap):
    """Places given by the user for some features; the others stand by their frequency.

    Parameters
    ----------
    places : {feature: {level: place}}
        Such as ``{"size": {"S": 0, "M": 1, "L": 2}}``; every level of a feature that is named.
    """

    def __init__(self, places: Mapping[Any, Mapping[Any, float]]) -> None:
        self.given = places

    def _plan_of(self, features: Features) -> Plan:
        for name in self.given:
            if features.levels[features.position(name)] is None:
                raise OptionError(f"places are given for {name!r}, which is numeric: name categorical features only")
        return super()._plan_of(features)

    def _places_of(self, name: Any, counts: F8, levels: NDArray[np.object_]) -> F8:
        given = self.given.get(name)
        if given is None:
            return self.places(counts, levels)
        if missing := [level for level in levels if level not in given]:
            raise OptionError(f"places of {name!r} leave out {missing[:10]!r}: give a place for every level")
        return np.array([given[level] for level in levels], np.float64)


class SimplexSampling(_Planned):
    """SSA, the paper's simplex sampling: one weight for each level, minus the corner of the base level.

    Parameters
    ----------
    n_samples : int
        Corners drawn for each value of the objective.
    """

    def __init__(self, n_samples: int = 10) -> None:
        if n_samples < 1:
            raise OptionError(f"n_samples is {n_samples!r}: give at least 1")
        self.n_samples = n_samples

    def _plan_of(self, features: Features) -> Plan:
        places = [
            np.empty(0) if levels is None else (np.arange(levels.size) != base).astype(np.float64)
            for levels, base in zip(features.levels, features.base, strict=True)
        ]
        return _plan(features, places, simplex=True)


def encoding_from(given: Any) -> Encoding:
    """An encoding by name ("fma" or "ssa"), or as it is."""
    if isinstance(given, str):
        if given in ("fma", "ssa"):
            return FrequencyMap() if given == "fma" else SimplexSampling()
        raise OptionError(f"encoding is {given!r}: give 'fma', 'ssa' or an Encoding")
    if isinstance(given, type):
        raise OptionError(f"encoding is the class {given.__name__}: give an object of it, such as {given.__name__}()")
    if not all(callable(getattr(given, method, None)) for method in ("fit", "encode", "decode")):
        raise OptionError(
            f"encoding is a {type(given).__name__}: give 'fma', 'ssa' or an object with fit, encode and decode"
        )
    encoding: Encoding = given
    return encoding


def encode(plan: Plan, numbers: F8) -> F8:
    """Points of numbers, as the kernel's `point_of` does row by row."""
    points = np.zeros((len(numbers), plan.feature["first"][-1]))
    for at, feature in enumerate(plan.feature[:-1]):
        column, first = numbers[:, at], feature["first"]
        present = np.flatnonzero(~np.isnan(column))
        known = column[present]
        if feature["kind"] <= GRID:
            points[present, first] = (known - feature["base_value"]) / feature["scale"]
        elif feature["kind"] == ORDERED:
            places = np.append(_levels(plan, at)["place"], feature["unseen_place"])
            points[present, first] = places[known.astype(np.int64)]
        else:  # from the base's corner to the level's; a level never seen has no corner
            seen = present[known >= 0.0]
            points[seen, first + int(feature["base_value"])] -= 1.0
            points[seen, first + column[seen].astype(np.int64)] += 1.0
    return points


def decode(plan: Plan, points: F8, uniforms: F8 | None = None) -> F8:
    """Numbers of points, as the kernel's `decode_point` does where every value is feasible."""
    numbers = np.empty((len(points), plan.feature.size - 1))
    for at, feature in enumerate(plan.feature[:-1]):
        block = points[:, feature["first"] : plan.feature["first"][at + 1]]
        if feature["kind"] <= GRID:
            numbers[:, at] = _settled(feature, block[:, 0])
        elif feature["kind"] == ORDERED:
            numbers[:, at] = _nearest_level(_levels(plan, at), block[:, 0])
        else:
            weights = block.copy()
            weights[:, int(feature["base_value"])] += 1.0
            numbers[:, at] = _drawn_level(weights, None if uniforms is None else uniforms[:, at])
    return numbers


def project_on_simplex(weights: F8) -> F8:
    """Euclidean projection of each row, shape (n, k), onto the weights that are at least 0 and sum to 1, by sorting."""
    falling = -np.sort(-weights, axis=1)
    shifts = (np.cumsum(falling, axis=1) - 1.0) / np.arange(1, weights.shape[1] + 1)
    n_positive = np.count_nonzero(falling > shifts, axis=1)
    return np.asarray(np.maximum(weights - shifts[np.arange(len(weights)), n_positive - 1][:, None], 0.0))


def _levels(plan: Plan, at: int) -> Records:
    return plan.level[plan.feature["first_level"][at] : plan.feature["first_level"][at + 1]]


def _settled(feature: Any, places: F8) -> F8:
    """Values of a numeric coordinate: on the data's grid, or such that float32 holds them; the base as it is."""
    values = feature["base_value"] + feature["scale"] * places
    if feature["grid"] > 0.0:
        return np.asarray(np.floor(values * feature["grid"] + 0.5) / feature["grid"])
    return np.asarray(np.where(places == 0.0, feature["base_value"], values.astype(np.float32)))


def _nearest_level(levels: Records, places: F8) -> I8:
    """Levels whose places are nearest; ties go to the smaller place."""
    order = levels["order"]
    rising = levels["place"][order]
    above = np.searchsorted(rising, places).clip(max=order.size - 1)
    below = np.maximum(above - 1, 0)
    nearer = np.abs(places - rising[below]) <= np.abs(places - rising[above])
    return np.asarray(order[np.where(nearer, below, above)])


def _drawn_level(weights: F8, uniforms: F8 | None) -> I8:
    """The level on whose share of the weights a uniform number falls, or the largest weight."""
    if uniforms is None:
        return np.asarray(weights.argmax(axis=1))
    cumulated = np.cumsum(np.maximum(weights, 0.0), axis=1)
    passed = (cumulated > uniforms[:, None]) & (weights > 0.0)
    last = weights.shape[1] - 1 - (weights[:, ::-1] > 0.0).argmax(axis=1)
    return np.asarray(np.where(passed.any(axis=1), passed.argmax(axis=1), last))


def _apart(counts: I8) -> F8:
    """Counts with ties separated by less than half an occurrence.

    The mode stays and its equals fall behind it; all other ties lean toward the mode, so that the rarest stay at 1.
    """
    order = np.argsort(-counts, kind="stable")
    falling = counts[order]
    _, first, size = np.unique(-falling, return_index=True, return_counts=True)
    rank = np.arange(counts.size) - np.repeat(first, size)
    shift = (np.repeat(size, size) - 1 - rank) / np.repeat(2 * size, size)
    shift[: size[0]] = -rank[: size[0]] / (2 * size[0])
    apart = np.empty(counts.size)
    apart[order] = falling + shift
    return apart


def _plan(features: Features, places: list[F8], *, simplex: bool) -> Plan:
    """The plan of numeric features, and of levels at these places."""
    is_level = np.array([levels is not None for levels in features.levels])
    n_levels = np.array([place.size for place in places])
    kind = np.where(is_level, SIMPLEX if simplex else ORDERED, np.where(features.decimals >= 0, GRID, CONTINUOUS))
    width = np.where(is_level & simplex, n_levels, 1)
    return Plan(
        feature=records(
            COORDINATE,
            len(places) + 1,
            kind=[*kind, -1],
            first=np.append(0, np.cumsum(width)),
            first_level=np.append(0, np.cumsum(n_levels)),
            base_value=[*features.base, 0.0],
            scale=[*np.where(is_level, 1.0, features.scale), 1.0],
            grid=[*np.where(features.decimals >= 0, 10.0 ** np.maximum(features.decimals, 0), 0.0), 0.0],
            unseen_place=[*(place.max() + 1.0 if place.size else 0.0 for place in places), 0.0],
        ),
        level=records(
            LEVEL,
            int(n_levels.sum()),
            place=np.concatenate(places),
            order=np.concatenate([np.argsort(place, kind="stable") for place in places]),
        ),
    )
