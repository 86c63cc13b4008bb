"""The exact pertinent positive and negative of a single tree, by enumerating its leaves.

It works on the user's own values, and shares nothing with macem's kernel: a leaf is a list of conditions, and the cost
is a sum over features, so each feature takes the cheapest of its feasible values that meet the leaf's conditions on it.
The optimum of such a feature lies next to a breakpoint (a threshold, an end of its range, the row's value or its
mirror), so those neighbours are tried one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from macem import SearchOptions
from macem.features import Features
from macem.strategies.encodings import SimplexSampling


class Column(NamedTuple):
    """What a column of the tree shows: a feature as it is, or whether it has a level."""

    feature: int
    level: Any = None

    def read(self, value: Any) -> float:
        return float(value) if self.level is None else float(value == self.level)


class Condition(NamedTuple):
    """One node on the way to a leaf."""

    column: Column
    threshold: float
    right: bool

    def holds(self, value: Any) -> bool:
        """Whether a value goes this way, as scikit-learn compares: in float32."""
        return (float(np.float32(self.column.read(value))) > self.threshold) == self.right


class Optimum(NamedTuple):
    cost: float
    values: tuple[Any, ...]
    n_changed: int


@dataclass(frozen=True)
class ExactTree:
    """Solves rows on a fitted ``DecisionTreeClassifier``.

    `places` are the coordinates of the levels, by feature and level, or on a `simplex` how far their corners are from
    the base's; `columns` say what the tree's columns show.
    """

    tree: Any
    features: Features
    places: Mapping[int, Mapping[Any, float]]
    options: SearchOptions
    columns: Sequence[Column] | None = None
    simplex: bool = False

    @cached_property
    def leaves(self) -> list[tuple[int, list[Condition]]]:
        """Class, as a position, and conditions of every leaf."""
        return list(self._leaves_below(0, []))

    def _leaves_below(self, node: int, path: list[Condition]) -> Iterator[tuple[int, list[Condition]]]:
        tree = self.tree.tree_
        if tree.children_left[node] < 0:
            yield int(tree.value[node, 0].argmax()), path
            return
        at = tree.feature[node]
        column = Column(at) if self.columns is None else self.columns[at]
        for child, right in ((tree.children_left[node], False), (tree.children_right[node], True)):
            yield from self._leaves_below(child, [*path, Condition(column, float(tree.threshold[node]), right)])

    def class_of(self, row: Sequence[Any]) -> int:
        """The class of the leaf whose conditions a row meets."""
        return next(label for label, path in self.leaves if all(c.holds(row[c.column.feature]) for c in path))

    def solve(self, row: Sequence[Any], kind: str, target: int | None = None) -> Optimum | None:
        """The cheapest feasible values of the wanted class; None if there are none."""
        own_class = self.class_of(row)
        free = [self.cheapest(feature, row[feature], kind, []) for feature in range(len(row))]
        best: Optimum | None = None
        for label, path in self.leaves:
            wanted = label == own_class if kind == "positive" else label != own_class
            if target is not None and kind == "negative":
                wanted = label == target
            if not wanted:
                continue
            choice = list(free)
            for feature in {condition.column.feature for condition in path}:
                theirs = [condition for condition in path if condition.column.feature == feature]
                choice[feature] = self.cheapest(feature, row[feature], kind, theirs)
            if any(one is None for one in choice):
                continue
            cost = math.fsum(one[0] for one in choice if one is not None)
            if best is None or cost < best.cost:
                values = tuple(one[1] for one in choice if one is not None)
                n_changed = sum(not _same(value, self.reference(at, row[at], kind)) for at, value in enumerate(values))
                best = Optimum(cost, values, n_changed)
        return best

    def cheapest(self, feature: int, own: Any, kind: str, path: list[Condition]) -> tuple[float, Any] | None:
        """Cost and value of the cheapest feasible value of a feature that meets conditions."""
        reference = self.reference(feature, own, kind)
        possible = [
            (self.cost(feature, reference, value), value)
            for value in self._candidates(feature, own, path)
            if all(condition.holds(value) for condition in path) and self.feasible(feature, own, value, kind)
        ]
        return min(possible, key=lambda one: one[0], default=None)

    def reference(self, feature: int, own: Any, kind: str) -> Any:
        """What changes are measured from: the base for a positive, the row for a negative."""
        if kind == "negative" or self._says_nothing(feature, own):
            return own
        levels = self.features.levels[feature]
        base = self.features.base[feature]
        return float(base) if levels is None else levels[int(base)]

    def feasible(self, feature: int, own: Any, value: Any, kind: str) -> bool:
        """Whether a value obeys every rule: frozen, grid, range, direction and the base-value rule."""
        features = self.features
        if _same(value, own):
            return True
        if features.frozen[feature] or self._says_nothing(feature, own):
            return False
        if features.levels[feature] is None:
            if not features.low[feature] <= value <= features.high[feature]:
                return False
            if (value - own) * float(features.direction[feature]) < 0.0:
                return False
            decimals = int(features.decimals[feature])
            if decimals >= 0 and value != round(value, decimals):
                return False
            base = float(features.base[feature])
            distance, radius = abs(value - base), abs(own - base)
        else:
            if value not in self.places[feature]:
                return False
            distance, radius = abs(self._place(feature, value)), abs(self._place(feature, own))
        if kind == "positive":
            return distance <= radius
        return not self.options.away_from_base or distance >= radius

    def cost(self, feature: int, reference: Any, value: Any) -> float:
        """What moving one feature adds to the elastic net and to the costs of change."""
        if _same(value, reference):
            return 0.0
        on_levels = self.features.levels[feature] is not None
        if on_levels and self.options.category_cost is not None:
            return self.options.change_cost + self.options.category_cost
        if on_levels and self.simplex:  # two corners differ by one in two coordinates
            return self.options.change_cost + 2.0 * self.options.l1_weight + 2.0
        if on_levels:
            step = abs(self._place(feature, value) - self._place(feature, reference))
        else:
            step = abs(value - reference) / float(self.features.scale[feature])
        return self.options.change_cost + self.options.l1_weight * step + step * step

    def total(self, row: Sequence[Any], values: Sequence[Any], kind: str) -> float:
        """Cost of a whole example."""
        return math.fsum(self.cost(f, self.reference(f, row[f], kind), values[f]) for f in range(len(row)))

    def _place(self, feature: int, level: Any) -> float:
        places = self.places[feature]
        return places.get(level, max(places.values()) + 1.0)  # never seen: beyond all others

    def _says_nothing(self, feature: int, own: Any) -> bool:
        """A missing value and a special code stay as they are."""
        return bool(pd.isna(own)) or own in self.features.special_codes[feature]

    def _candidates(self, feature: int, own: Any, path: list[Condition]) -> list[Any]:
        levels = self.features.levels[feature]
        if self._says_nothing(feature, own):
            return [own]
        if levels is not None:
            return [own, *levels]
        base = float(self.features.base[feature])
        breakpoints = [base, own, 2.0 * base - own, self.features.low[feature], self.features.high[feature]]
        breakpoints += [condition.threshold for condition in path]
        found = {own, base}
        decimals = int(self.features.decimals[feature])
        for point in (float(point) for point in breakpoints if np.isfinite(point)):
            single = np.float32(point)
            near = [float(np.nextafter(single, np.float32(end))) for end in (-np.inf, np.inf)]
            near += [point, float(single), math.nextafter(point, -math.inf), math.nextafter(point, math.inf)]
            if decimals >= 0:
                steps = [10.0**-decimals * step for step in (-1, 0, 1)]
                near = [round(number + step, decimals) for number in near for step in steps]
            found.update(near)
        return sorted(found)


def exact_for(explainer: Any, tree: Any, columns: Sequence[Column] | None = None) -> ExactTree:
    """The exact solver under the rules of an explainer."""
    plan, features = explainer.encoding.plan, explainer.features
    places = {}
    for feature, levels in enumerate(features.levels):
        if levels is not None:
            first = plan.feature["first_level"][feature]
            places[feature] = dict(zip(levels, plan.level["place"][first:].tolist(), strict=False))
    return ExactTree(
        tree, features, places, explainer.options, columns, isinstance(explainer.encoding, SimplexSampling)
    )


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) or (bool(pd.isna(value)) and bool(pd.isna(other)))
