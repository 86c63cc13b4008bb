"""Several tables as one: the trees of different models over the same columns, asked through one reader."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from macem.adapters.lightgbm import LightGBMReader
from macem.adapters.number_line import largest_on_the_left
from macem.adapters.readers import JointReader, NumberReader, rounded
from macem.adapters.vocabularies import JointPipelineReader, PipelineReader
from macem.errors import DataError
from macem.kernel import F8
from macem.oracle import Oracle, Reader, TreeOracle
from macem.trees import Link, Member, Tree, rename_features

__all__ = ["JoinedOracle", "Part", "join", "obstacle"]


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
    rewrite : callable, or None
        What becomes of each of its members, where the whole does not take its probabilities as they are.
    """

    oracle: Oracle
    weight: float
    classes: Sequence[int]
    columns: NDArray[np.int64] | None = None
    read: Reader | None = None
    rewrite: Callable[[Member], Member] | None = None

    @property
    def table(self) -> TreeOracle:
        """Its oracle, where that is a table."""
        return cast(TreeOracle, self.oracle)

    @property
    def reader(self) -> Reader:
        """What reads its features from the table of the whole."""
        return self.table.read if self.read is None else self.read

    @property
    def trees(self) -> list[Tree]:
        """Its trees, as its oracle has them."""
        return [tree for member in self.table.members for tree in member.trees]


def obstacle(parts: Sequence[Part]) -> str:
    """Say why models cannot be one table; empty where they can."""
    for part in parts:
        if not isinstance(part.oracle, TreeOracle):
            return getattr(part.oracle, "note", "") or f"{type(part.oracle).__name__} is no table"
    if len({repr(float(part.table.missing_value)) for part in parts}) > 1:
        return "they take different numbers for missing"
    if _shared_reader(parts) is not None:
        return ""
    trees = [tree for part in parts for tree in part.trees]
    if any(tree.zero_is_missing is not None for tree in trees):
        return "one of them takes zeros for missing values"
    if any(tree.categories for tree in trees) and not _vocabularies_join(parts):
        return "they number the categories of a column differently"
    return ""


def join(
    parts: Sequence[Part],
    *,
    classes: NDArray[Any],
    live: Oracle,
    n_features: int,
    names: tuple[Any, ...] | None,
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
    kind : class
        What to make.
    """
    read, convert = _one_reader(parts, n_features, names)
    members: list[Member] = []
    for part in parts:
        divisor = sum(member.weight for member in part.table.members) if part.table.total is None else part.table.total
        for member in part.table.members:
            # the weight itself where a model is one member: the sum is then the live one to the bit
            weight = part.weight if member.weight == divisor else part.weight * member.weight / divisor
            if convert is not None:
                member = replace(member, trees=convert(part, member.trees))
            if part.rewrite is not None:
                member = part.rewrite(member)
            if part.columns is not None:
                member = rename_features(member, part.columns)
            places = tuple(part.classes[place] for place in member.classes)
            members.append(replace(member, weight=weight, classes=places))
    total = float(sum(part.weight for part in parts))
    if all(_is_one_tree(member) for member in members):
        members, total = [_forest(members, len(classes), total)], 1.0
    make: Callable[..., TreeOracle] = kind
    if any(hasattr(part.oracle, "for_table") for part in parts):
        make = partial(JoinedOracle, kind=kind, parts=tuple(parts))
    return make(
        members=members,
        classes=classes,
        live=live,
        read=read,
        n_features=n_features,
        single=all(part.table.single for part in parts),
        missing_value=parts[0].table.missing_value,
        total=total,
        feature_names=names,
    )


@dataclass(frozen=True)
class JoinedOracle(TreeOracle):
    """One table of several that depend on the types of the user's columns, as folded pipelines do."""

    kind: type[TreeOracle] = field(kw_only=True)
    parts: tuple[Part, ...] = field(kw_only=True)

    def for_table(self, X: Any) -> TreeOracle:
        """Join the tables that belong to the column types of a table, for instance of the background."""
        parts = [
            replace(part, oracle=part.oracle.for_table(X)) if hasattr(part.oracle, "for_table") else part
            for part in self.parts
        ]
        if all(part.oracle is own.oracle for part, own in zip(parts, self.parts, strict=True)):
            return self
        return join(
            parts,
            classes=self.classes,
            live=self.live,
            n_features=self.n_features,
            names=self.feature_names,
            kind=self.kind,
        )

    def raw_scores(self, X: Any) -> F8:
        """Sums of the trees, of the table that belongs to the column types of `X`."""
        return TreeOracle.raw_scores(self.for_table(X), X)

    def link(self, raw: F8) -> F8:
        """From raw outputs to class probabilities, as `kind` does it."""
        return self.kind.link(self, raw)


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

_Convert = Callable[[Part, Sequence[Tree]], list[Tree]]  # a part's trees as they must be behind the common reader


def _one_reader(
    parts: Sequence[Part], n_features: int, names: tuple[Any, ...] | None
) -> tuple[Reader, _Convert | None]:
    """Find a reader for all parts, and what it makes of their trees; None: nothing."""
    shared = _shared_reader(parts)
    if shared is not None:
        return shared, None
    if any(tree.categories for part in parts for tree in part.trees):
        read = JointPipelineReader.of([cast(PipelineReader, part.reader) for part in parts])
        return read, lambda part, trees: read.recode(cast(PipelineReader, part.reader), trees)
    plain = [part.reader for part in parts if isinstance(part.reader, NumberReader)]
    if len(plain) == len(parts) and len({read.dtype for read in plain}) == 1:
        missing, infinite = all(read.missing for read in plain), all(read.infinite for read in plain)
        return NumberReader(n_features, names, plain[0].dtype, missing, infinite), None
    single = all(part.table.single for part in parts)
    numbers = NumberReader(n_features, names, "float32" if single else "float64", missing=True, infinite=True)
    joint = JointReader(numbers, tuple((part.reader, part.table.single) for part in parts))
    return joint, None if single else _behind_reader


def _shared_reader(parts: Sequence[Part]) -> Reader | None:
    """Return the reader of all parts, where they have the same."""
    if len({part.table.single for part in parts}) > 1 or any(part.columns is not None for part in parts):
        return None
    first, *others = _with_all_sets(parts)
    image = pickle.dumps(first)
    return first if all(pickle.dumps(other) == image for other in others) else None


def _with_all_sets(parts: Sequence[Part]) -> list[Reader]:
    """Let LightGBM models that number categories alike read, all of them, the features that any asks for categories."""
    readers: list[Any] = [part.reader for part in parts]
    if not all(isinstance(read, LightGBMReader) for read in readers):
        return readers
    sets = {feature for read in readers for feature in read.sets}
    for tree in (tree for part in parts for tree in part.trees):
        numeric = tree.feature >= 0
        numeric[list(tree.categories)] = False
        if sets.intersection(tree.feature[numeric].tolist()):
            return readers
    return [replace(read, sets=tuple(sorted(sets))) for read in readers]


def _behind_reader(part: Part, trees: Sequence[Tree]) -> list[Tree]:
    """Move thresholds so that float64 numbers, which the oracle would read and round first, go the same way."""
    oracle = part.table
    asked = np.unique(np.concatenate([tree.threshold[tree.feature >= 0] for tree in trees] or [np.zeros(0)]))
    if not asked.size:
        return list(trees)

    def seen(numbers: F8) -> F8:  # all columns are read alike, so that each may hold some of the numbers
        table = np.resize(numbers, (-(-numbers.size // oracle.n_features), oracle.n_features))
        return rounded(oracle.read(table), oracle.single).astype(np.float64).ravel()[: numbers.size]

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


# Categories of several pipelines -------------------------------------------------------------------------------------


def _vocabularies_join(parts: Sequence[Part]) -> bool:
    """Whether all parts are pipelines that take the same columns for categories."""
    readers = [part.reader for part in parts]
    if not all(isinstance(read, PipelineReader) for read in readers) or any(part.columns is not None for part in parts):
        return False
    pipelines = cast(list[PipelineReader], readers)
    if len({(read.n_features, read.names) for read in pipelines}) > 1:
        return False
    columns = range(pipelines[0].n_features)
    return all(
        len({read.vocabularies[column] is None for read in pipelines if read.needed[column]}) < 2 for column in columns
    )
