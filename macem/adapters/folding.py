"""Folding: the questions that trees ask about transformed columns become questions about the user's columns.

Each user column is cut into *cells*: its known values, or intervals of numbers, within which every question of every
tree has one answer. The answers are read off the fitted transformers, one row per cell; a node then asks for the cells
that go left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from macem.adapters.cells import number_cells, vocabulary_cells
from macem.adapters.probing import B1, Probe
from macem.adapters.transformers import NotColumnwise
from macem.kernel import F8, I8
from macem.trees import Member, Tree

__all__ = ["Folded", "fold"]

MAX_GROWTH = 16  # a tree may grow so much where a question has several intervals


@dataclass(frozen=True)
class Folded:
    """A folded model, and what the reader of the user's table must know."""

    members: list[Member]
    asked: set[int]
    vocabularies: dict[int, dict[Any, int]]
    unseen: B1
    missing: B1


def fold(members: Sequence[Member], probe: Probe, types: Sequence[np.dtype[Any]]) -> Folded:
    """Rewrite trees that ask about transformed columns into trees that ask about the user's.

    Parameters
    ----------
    members : sequence of Member
    probe : Probe
    types : sequence of dtype, shape (n_features,)
        Types of the user's columns of numbers.

    Raises
    ------
    NotColumnwise
        If the table cannot hold the pipeline.
    """
    questions = Questions.of(members, probe.missing_value)
    feeds: dict[int, list[int]] = {}
    for column in np.unique(questions.column).tolist():
        feeds.setdefault(probe.columns[column].source, []).append(column)
    coded = set(probe.sources.encoded)
    _refuse_double_use(questions, probe, feeds, coded)
    by_column = np.split(np.arange(questions.column.size), np.flatnonzero(np.diff(questions.column)) + 1)
    asked_by = {int(questions.column[group[0]]): group for group in by_column if group.size}

    missing_codes, missing = probe.ask_missing(sorted(set(feeds) | coded), types)
    vocabularies, unseen, cells = vocabulary_cells(
        probe, types, {s: feeds.get(s, []) for s in coded}, missing_codes, missing
    )
    numbers = {source: columns for source, columns in feeds.items() if source not in coded}
    targets = {
        column: _targets(questions, asked_by[column], probe) for columns in numbers.values() for column in columns
    }
    cells |= number_cells(probe, types, numbers, targets)

    answers = Answers(questions)
    for source, columns in feeds.items():
        for column in columns:
            values = np.append(cells[source].values[column], missing_codes[column])
            answers.add(asked_by[column], source, values, cells[source].upper)
    of_tree = iter(questions.of_tree)
    rewritten = [
        replace(member, trees=[answers.rewrite(tree, next(of_tree)) for tree in member.trees]) for member in members
    ]
    return Folded(rewritten, set(feeds), vocabularies, unseen, missing)


def _refuse_double_use(questions: Questions, probe: Probe, feeds: Mapping[int, list[int]], coded: set[int]) -> None:
    by_categories = {int(questions.column[q]) for q, codes in enumerate(questions.categories) if codes is not None}
    for source, columns in feeds.items():
        name = probe.name(source)
        if source in coded:
            if not all(probe.columns[column].coded for column in columns):
                raise NotColumnwise(f"column {name!r} reaches the model both as a number and encoded")
        elif by_categories.intersection(columns):
            raise NotColumnwise(
                f"the model behind the transformers takes the numbers of column {name!r} for codes of categories; "
                "encoded in the pipeline (by OrdinalEncoder, say) or as a pandas category they would fold"
            )


def _targets(questions: Questions, asked: I8, probe: Probe) -> F8:
    """Values of a transformed column after which an answer may change."""
    special = [] if np.isnan(probe.missing_value) else [probe.missing_value]
    if questions.zero_is_missing[asked].any():
        special.append(0.0)
    below = np.float32(-np.inf) if probe.single else -np.inf
    around = [float(np.nextafter(np.float32(value) if probe.single else value, below)) for value in special] + special
    return np.unique(np.append(questions.threshold[asked], around))


# Questions ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Questions:
    """The distinct questions that the nodes of all trees ask; arrays of shape (n_questions,)."""

    column: I8
    threshold: F8
    missing_left: B1
    zero_is_missing: B1
    categories: list[I8 | None]  # codes that go left, where a node asks for such
    of_tree: list[I8]  # the question of each node of each tree; -1 at leaves
    missing_value: float

    @classmethod
    def of(cls, members: Sequence[Member], missing_value: float) -> Questions:
        trees = [tree for member in members for tree in member.trees]
        sets: dict[bytes, int] = {}
        codes: list[I8 | None] = []
        parts = []
        for tree in trees:
            asked = np.full(tree.feature.size, -1, np.int64)
            for node, categories in tree.categories.items():
                content = np.sort(np.asarray(categories, dtype=np.int64))
                asked[node] = sets.setdefault(content.tobytes(), len(codes))
                if asked[node] == len(codes):
                    codes.append(content)
            none = np.zeros(tree.feature.size, bool)
            zero_missing = none if tree.zero_is_missing is None else tree.zero_is_missing
            flags = tree.missing_left * 1 + zero_missing * 2
            threshold = np.where(asked < 0, tree.threshold + 0.0, 0.0)
            parts.append(np.stack([tree.feature, threshold.view(np.int64), flags, asked]))
        rows = np.concatenate(parts, axis=1) if parts else np.zeros((4, 0), np.int64)
        inner = np.flatnonzero(rows[0] >= 0)
        order = inner[np.lexsort(rows[::-1, inner])]  # by column first
        ordered = rows[:, order]
        new = np.ones(order.size, bool)
        new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
        of_node = np.full(rows.shape[1], -1, np.int64)
        of_node[order] = np.cumsum(new) - 1
        column, threshold_bits, flags, asked = np.ascontiguousarray(ordered[:, new])
        return cls(
            column=column,
            threshold=threshold_bits.view(np.float64),
            missing_left=flags & 1 > 0,
            zero_is_missing=flags & 2 > 0,
            categories=[None if place < 0 else codes[place] for place in asked],
            of_tree=np.split(of_node, np.cumsum([tree.feature.size for tree in trees])[:-1]),
            missing_value=missing_value,
        )

    def is_missing(self, values: F8) -> B1:
        """Whether the model takes a value for missing."""
        return np.asarray(np.isnan(values) | (values == self.missing_value))

    def go_left(self, asked: I8, values: F8) -> B1:
        """Answer questions for each value as the kernel does, shape (n_asked, n_values)."""
        absent = self.is_missing(values)
        values = np.where(absent, 0.0, values)
        missing = absent | (self.zero_is_missing[asked, None] & (values == 0.0))
        left = values <= self.threshold[asked, None]
        for row, question in enumerate(asked.tolist()):
            categories = self.categories[question]
            if categories is not None:
                left[row] = (values >= 0.0) & np.isin(np.floor(values), categories)
        return np.where(missing, self.missing_left[asked, None], left)


# Trees ----------------------------------------------------------------------------------------------------------------


class Answers:
    """Each question, put to the user's column that its transformed column is computed from."""

    def __init__(self, questions: Questions) -> None:
        n_questions = questions.column.size
        self.questions = questions
        self.source = np.zeros(n_questions, np.int64)
        self.threshold = np.full(n_questions, np.inf)
        self.swapped = np.zeros(n_questions, bool)  # numbers up to the threshold go right
        self.missing_left = np.zeros(n_questions, bool)
        self.categories: list[I8 | None] = [None] * n_questions
        self.sides: dict[int, B1] = {}  # which cells go left, where one threshold does not tell
        self.upper: dict[int, F8] = {}

    def add(self, asked: I8, source: int, values: F8, upper: F8 | None) -> None:
        """Answer the questions about a transformed column; `values`: of its cells, and last of a missing value."""
        self.source[asked] = source
        self.missing_left[asked] = self.questions.go_left(asked, values[-1:])[:, 0]
        values = values[:-1]
        if upper is None:
            for question, left in zip(asked.tolist(), self.questions.go_left(asked, values), strict=True):
                self.categories[question] = np.flatnonzero(left)
            return
        self.upper[source] = upper
        falling = bool(values[0] > values[-1])
        ascending = values[::-1] if falling else values
        plain = not self.questions.is_missing(values).any() and not self.questions.zero_is_missing[asked].any()
        if plain and (ascending[1:] >= ascending[:-1]).all():
            n_left = np.searchsorted(ascending, self.questions.threshold[asked], side="right")
            self._set(
                asked, ascending.size - n_left if falling else n_left, n_left > 0 if falling else n_left == 0, upper
            )
            self.swapped[asked] = np.where(n_left == ascending.size, False, self.swapped[asked])
            return
        for question in asked.tolist():
            left = self.questions.go_left(np.array([question]), values)[0]
            turns = np.flatnonzero(left[1:] != left[:-1])
            if turns.size > 1:
                self.sides[question] = left
            else:
                self._set(np.array([question]), turns + 1 if turns.size else np.zeros(1, np.int64), ~left[:1], upper)

    def _set(self, asked: I8, n_below: I8, swapped: B1, upper: F8) -> None:
        """Let the first cells go one way and the others the other way; all go one way where `n_below` is 0 or all."""
        inside = (n_below > 0) & (n_below < upper.size)
        self.threshold[asked] = np.where(inside, upper[n_below - 1], np.inf)
        self.swapped[asked] = swapped

    def rewrite(self, tree: Tree, question: I8) -> Tree:
        """Let a tree ask about the user's columns."""
        if self.sides and any(asked in self.sides for asked in question.tolist()):
            return _Unfolding(self, tree, question).tree()
        inner = np.flatnonzero(question >= 0)
        asked = question[inner]
        feature, threshold = np.full(question.size, -1, np.int64), np.zeros(question.size)
        left, right, missing_left = tree.left.copy(), tree.right.copy(), np.zeros(question.size, bool)
        swapped = self.swapped[asked]
        feature[inner] = self.source[asked]
        threshold[inner] = self.threshold[asked]
        left[inner] = np.where(swapped, tree.right[inner], tree.left[inner])
        right[inner] = np.where(swapped, tree.left[inner], tree.right[inner])
        missing_left[inner] = self.missing_left[asked] ^ swapped
        sets = {node: self.categories[place] for node, place in zip(inner.tolist(), asked.tolist(), strict=True)}
        return Tree(
            feature=feature,
            threshold=threshold,
            left=left,
            right=right,
            value=tree.value,
            missing_left=missing_left,
            output=tree.output,
            categories={node: codes for node, codes in sets.items() if codes is not None},
        )


class _Unfolding:
    """Rewrites a tree with questions that several intervals answer alike: each becomes a chain of thresholds.

    A branch remembers the cells that can still reach it, so that no question is asked twice.
    """

    def __init__(self, answers: Answers, tree: Tree, question: I8) -> None:
        self.answers = answers
        self.old = tree
        self.question = question.tolist()
        self.rows: list[list[Any]] = []  # old node, feature, threshold, left, right, missing_left
        self.categories: dict[int, I8] = {}

    def tree(self) -> Tree:
        todo: list[tuple[int, _Reach, int, int]] = [(0, {}, -1, 0)]
        while todo:
            old, reach, parent, place = todo.pop()
            old, reach, row, children = self._node(old, reach)
            if parent >= 0:
                self.rows[parent][place] = len(self.rows)
            todo += [(child, state, len(self.rows), 3 + side) for side, (child, state) in enumerate(children)]
            self.rows.append([old, *row])
            if len(self.rows) > MAX_GROWTH * (len(self.question) + MAX_GROWTH):
                raise NotColumnwise("its trees would grow too large: numbers pass functions that are not monotone")
        old_node, feature, threshold, left, right, missing_left = (list(part) for part in zip(*self.rows, strict=True))
        return Tree(
            feature=np.array(feature, dtype=np.int64),
            threshold=np.array(threshold, dtype=np.float64),
            left=np.array(left, dtype=np.int64),
            right=np.array(right, dtype=np.int64),
            value=self.old.value[old_node],
            missing_left=np.array(missing_left, dtype=bool),
            output=self.old.output,
            categories=self.categories,
        )

    def _node(self, old: int, reach: _Reach) -> tuple[int, _Reach, list[Any], list[tuple[int, _Reach]]]:
        """Go down to the next old node that has to be asked; give its row and what its children stand for."""
        while (question := self.question[old]) >= 0:
            source = int(self.answers.source[question])
            children = int(self.old.right[old]), int(self.old.left[old])
            missing_left = bool(self.answers.missing_left[question])
            categories = self.answers.categories[question]
            if categories is not None:
                self.categories[len(self.rows)] = categories
                return old, reach, [source, 0.0, 0, 0, missing_left], [(children[1], reach), (children[0], reach)]
            sides, upper = self._sides(question), self.answers.upper[source]
            first, last, numbers, missing = reach.get(source, (0, sides.size, True, True))
            first_left = bool(sides[first])
            run = sides[first:last]
            end = first + int(np.argmax(run != first_left)) if (run != first_left).any() else last
            if not numbers:
                old = children[missing_left]
            elif end == last and (not missing or missing_left == first_left):
                old = children[first_left]
            elif end == last:  # only a missing value goes the other way
                number, none = (first, last, True, False), (first, last, False, True)
                row = [source, np.inf, 0, 0, False]
                return (
                    old,
                    reach,
                    row,
                    [
                        (children[first_left], reach | {source: number}),
                        (children[missing_left], reach | {source: none}),
                    ],
                )
            else:
                joins = missing and missing_left == first_left
                below = (first, end, True, joins)
                above = (end, last, True, missing and not joins)
                row = [source, upper[end - 1], 0, 0, joins]
                return (
                    old,
                    reach,
                    row,
                    [
                        (children[first_left], reach | {source: below}),
                        (old, reach | {source: above}),
                    ],
                )
        return old, reach, [-1, 0.0, 0, 0, False], []

    def _sides(self, question: int) -> B1:
        """Which cells go left."""
        if question in self.answers.sides:
            return self.answers.sides[question]
        upper = self.answers.upper[int(self.answers.source[question])]
        below = upper <= self.answers.threshold[question]
        below[-1] |= np.isinf(self.answers.threshold[question])
        return np.asarray(below ^ self.answers.swapped[question])


_Reach = dict[
    int, tuple[int, int, bool, bool]
]  # of a column: first cell, end, whether numbers and missing values arrive
