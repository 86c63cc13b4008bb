"""Folding: the questions that trees ask about transformed columns become questions about the user's columns.

Each user column is cut into *cells*: its known values, or intervals of numbers, within which every question of every
tree has one answer. The answers are read off the fitted transformers, one row per cell; a node then asks for the cells
that go left.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macem.adapters.transformers import Column, NotColumnwise, Sources, trace
from macem.errors import sentence
from macem.kernel import F8, I8
from macem.oracle import TreeOracle
from macem.trees import Member, Tree

__all__ = ["REFUSED", "Cells", "Folded", "Probe", "fold"]

B1 = NDArray[np.bool_]

GRID = 512  # numbers that a column is first looked at with
SECANTS = 3  # interpolations before the search for a threshold widens step by step
GROWTH = 8  # factor by which it widens
BATCH = 1 << 22  # numbers that are transformed at a time
MAX_GROWTH = 16  # a tree may grow so much where a question has several intervals
REFUSED = -2  # code of a value that the pipeline does not take
LIMITS = (np.finfo(np.float64).max, 1e38, 1e15)  # numbers up to the first that the transformers take are looked at


# Asking the transformers ---------------------------------------------------------------------------------------------


class Probe:
    """The transformers of a pipeline and the reader of its model, asked for one user column at a time.

    Raises
    ------
    NotColumnwise
        If a column that the model asks for depends on several of the user's.
    """

    def __init__(self, pipeline: Any, transformers: Sequence[Any], model: TreeOracle) -> None:
        self.transformers = transformers
        self.read = model.read
        self.single = model.single
        n_features = getattr(pipeline, "n_features_in_", None)
        if n_features is None:
            raise NotColumnwise(f"{type(transformers[0]).__name__} does not tell how many columns it was fitted on")
        self.n_features = int(n_features)
        names = getattr(pipeline, "feature_names_in_", None)
        self.names = None if names is None else tuple(names)
        self.sources = Sources()
        self.columns = [Column(position) for position in range(self.n_features)]
        for transformer in transformers:
            self.columns = trace(transformer, self.columns, self.sources)
        if len(self.columns) != model.n_features:
            raise NotColumnwise(f"the model sees {model.n_features} columns where {len(self.columns)} were expected")
        self.read_by_model: set[int] = set()
        for feature, known in getattr(model.read, "known_categories", {}).items():
            self._read_by_model(feature, known)
        self.missing_value = self._missing_value(pipeline, model)

    def _read_by_model(self, feature: int, known: Sequence[Any] | NDArray[Any]) -> None:
        """Let a column of the user's, whose categories the model itself reads, be one of categories."""
        column = self.columns[feature]
        if column.coded or not column.raw:
            return
        self.read_by_model.add(column.source)
        self.sources.encoded.add(column.source)
        self.sources.tell_apart(column.source, known)
        self.columns[feature] = replace(column, coded=True)

    def name(self, source: int) -> Any:
        return source if self.names is None else self.names[source]

    def number_types(self, types: Sequence[Any]) -> tuple[np.dtype[Any], ...]:
        """Type that the numbers of each column are looked at in: floats as they are, all others as float64.

        Integers are float64 to every transformer; only where a table of integers stays one up to the model, which may
        round it as such, they keep their type.
        """
        own = [dtype if isinstance(dtype, np.dtype) and dtype.kind in "fiub" else np.dtype(float) for dtype in types]
        if self.names is None and own:
            own = [np.result_type(*own)] * len(own)
        double = [dtype if dtype.kind == "f" else np.dtype(float) for dtype in own]
        if own != double and self._output_types(own) == self._output_types(double):
            own = double
        return tuple(own)

    def _output_types(self, types: Sequence[np.dtype[Any]]) -> Any:
        table = self.transform(self.table({}, 1, types))
        return [table.dtype] if hasattr(table, "dtype") else table.dtypes.tolist()

    def table(self, values: Mapping[int, NDArray[Any]], n_rows: int, types: Sequence[np.dtype[Any]]) -> Any:
        """Make a table as the user would: given values in some columns, in the others one that the pipeline takes."""
        arrays = [
            values[source] if source in values else np.full(n_rows, self._usual(source)[0], self._type(source, types))
            for source in range(self.n_features)
        ]
        if self.names is not None:
            import pandas as pd

            for source in self.read_by_model:
                arrays[source] = self._as_category(arrays[source], source)
            return pd.DataFrame(dict(zip(self.names, arrays, strict=True)), columns=list(self.names))
        kinds = {array.dtype.kind for array in arrays}
        common = types[0] if types[0].kind == "f" or "f" not in kinds else np.dtype(float)
        return np.stack([array.astype(object if "O" in kinds else common) for array in arrays], axis=1)

    def _as_category(self, values: NDArray[Any], source: int) -> Any:
        """Make a pandas category column, as the model was fitted on; values that it does not know are the last."""
        import pandas as pd

        known = self.sources.vocabulary.get(source, [])
        others = [value for value in dict.fromkeys(values.tolist()) if not pd.isna(value) and value not in known]
        dtype = object if source in self.sources.objects else None
        return pd.Categorical(values, categories=pd.Index([*known, *others], dtype=dtype))

    def _usual(self, source: int) -> Sequence[Any]:
        return self.sources.vocabulary.get(source) or [1.0]

    def _type(self, source: int, types: Sequence[np.dtype[Any]]) -> Any:
        return self.known_values(source).dtype if source in self.sources.encoded else types[source]

    def known_values(self, source: int) -> NDArray[Any]:
        """Return the vocabulary of a column, as an array of numbers where it holds only such."""
        values = self.sources.vocabulary.get(source, [])
        if source in self.sources.objects:
            return _objects(values)
        kinds = {type(value) for value in values}
        plain = len(kinds) == 1 and kinds <= {bool, int, float}
        if not plain and kinds and kinds <= {int, float}:
            return np.array(values, dtype=np.float64)
        return np.array(values) if plain else _objects(values)

    def transform(self, table: Any) -> Any:
        with _asked_beyond_use():
            for transformer in self.transformers:
                table = transformer.transform(table)
            return table

    def ask(self, table: Any) -> tuple[F8, F8]:
        """Codes that the model reads behind the transformers, and the numbers before it rounds them, (n, n_columns)."""
        with _asked_beyond_use():
            table = self._dense(self.transform(table))
            codes = np.array(self.read(table), dtype=np.float64)
            if self.single:
                codes = codes.astype(np.float32).astype(np.float64)
            numbers = np.asarray(table)
            numbers = numbers.astype(np.float64) if numbers.dtype.kind in "fiub" else codes
        return codes, numbers

    def _dense(self, table: Any) -> Any:
        if not hasattr(table, "toarray"):
            return table
        if self.missing_value == 0.0 and table.count_nonzero() != table.nnz:
            raise NotColumnwise("a sparse table holds zeros that the model does not take for missing")
        return table.toarray()

    def _missing_value(self, pipeline: Any, model: TreeOracle) -> float:
        """Number that counts as missing beside NaN: to XGBoost the gaps of a sparse table, zeros to all others."""
        types = [np.dtype(float)] * self.n_features
        if not hasattr(self.transform(self.table({}, 1, types)), "toarray"):
            return model.missing_value
        final = pipeline.steps[-1][1]
        inside = [type(value).__module__.partition(".")[0] for value in final.get_params().values()]
        if type(final).__module__.partition(".")[0] == "xgboost" and np.isnan(model.missing_value):
            return 0.0
        if "xgboost" in [*inside, type(final).__module__.partition(".")[0]]:
            raise NotColumnwise("parts of the model take the gaps of a sparse table for missing, others do not")
        return model.missing_value

    def ask_missing(self, sources: Sequence[int], types: Sequence[np.dtype[Any]]) -> tuple[F8, B1]:
        """Codes of missing values, shape (n_columns,), and whether each of the user's columns may have one."""
        cells = {}
        for source in range(self.n_features):
            usual = self._type(source, types)
            cells[source] = np.array([np.nan], usual if usual.kind in "Of" else np.float64)
        return self._ask_each(cells, sources, types)

    def ask_none(self, sources: Sequence[int], types: Sequence[np.dtype[Any]]) -> tuple[F8, B1]:
        """Codes of None, likewise: to some encoders it is another value than NaN."""
        return self._ask_each({source: _objects([None]) for source in sources}, sources, types)

    def ask_unseen(self, sources: Sequence[int], types: Sequence[np.dtype[Any]]) -> tuple[F8, B1]:
        """Codes of values outside the vocabulary, likewise."""
        cells = {}
        for source in sources:
            known = self.known_values(source)
            if known.dtype.kind in "if":
                cells[source] = np.array([np.max(known, initial=0) + 1]).astype(known.dtype)
            else:
                cells[source] = _objects([_another(known.tolist())])
        return self._ask_each(cells, sources, types)

    def _ask_each(
        self, cells: Mapping[int, NDArray[Any]], sources: Sequence[int], types: Sequence[np.dtype[Any]]
    ) -> tuple[F8, B1]:
        """Ask for all cells in one row, or one by one where the pipeline refuses some."""
        taken = np.ones(self.n_features, bool)
        try:
            return self.ask(self.table({source: cells[source] for source in sources}, 1, types))[0][0], taken
        except NotColumnwise:
            codes = np.full(len(self.columns), np.nan)
        owner = np.array([column.source for column in self.columns])
        for source in sources:
            try:
                answer = self.ask(self.table({source: cells[source]}, 1, types))[0][0]
                codes[owner == source] = answer[owner == source]
            except NotColumnwise:
                taken[source] = False
        return codes, taken


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _another(values: Sequence[Any]) -> str:
    name = "another"
    while name in values:
        name += " one"
    return name


@contextmanager
def _asked_beyond_use() -> Iterator[None]:
    """Ask what no user would: overflows and unknown categories are answers here, and every exception is a refusal."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            yield
        except NotColumnwise:
            raise
        except Exception as error:
            raise NotColumnwise(f"the pipeline refuses values that it should take: {sentence(error)}") from error


# Questions -----------------------------------------------------------------------------------------------------------


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
        sets: dict[bytes, int] = {b"": -1}
        codes: list[I8 | None] = []
        parts = []
        for tree in trees:
            asked = np.full(tree.feature.size, -1, np.int64)
            for node, categories in tree.categories.items():
                content = np.sort(np.asarray(categories, dtype=np.int64))
                key = b"set" + content.tobytes()
                if key not in sets:
                    sets[key] = len(codes)
                    codes.append(content)
                asked[node] = sets[key]
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


# Cells ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """The parts of one user column that the model can tell apart.

    Attributes
    ----------
    upper : ndarray of float64, shape (n_cells,), or None
        Largest number of each cell, in order; None where the cells are the entries of a vocabulary and the unseen.
    values : dict of int to ndarray
        Of each column behind the transformers that the user's feeds: its value in each cell, and last that of a
        missing value.
    """

    upper: F8 | None
    values: dict[int, F8]


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
    vocabularies, unseen, cells = _vocabulary_cells(
        probe, types, {s: feeds.get(s, []) for s in coded}, missing_codes, missing
    )
    numbers = {source: columns for source, columns in feeds.items() if source not in coded}
    targets = {
        column: _targets(questions, asked_by[column], probe) for columns in numbers.values() for column in columns
    }
    cells |= _number_cells(probe, types, numbers, targets)

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


def _vocabulary_cells(
    probe: Probe,
    types: Sequence[np.dtype[Any]],
    feeds: Mapping[int, list[int]],
    missing_codes: F8,
    missing: B1,
) -> tuple[dict[int, dict[Any, int]], B1, dict[int, Cells]]:
    """Number the values of every vocabulary, and ask for all of them, all columns at once."""
    sources = sorted(feeds)
    none_codes, none = probe.ask_none(sources, types)
    unseen_codes, unseen = probe.ask_unseen(sources, types)
    known = {source: probe.known_values(source) for source in sources}
    n_rows = max((values.size for values in known.values()), default=0)
    cycled = {source: np.resize(values, n_rows) for source, values in known.items() if values.size}
    codes = probe.ask(probe.table(cycled, n_rows, types))[0] if n_rows else np.zeros((0, len(probe.columns)))
    vocabularies, cells = {}, {}
    for source, columns in feeds.items():
        vocabulary = {value: code for code, value in enumerate(known[source].tolist())}
        rows = list(codes[: len(vocabulary)])
        alike = np.array_equal(none_codes[columns], missing_codes[columns], equal_nan=True)
        if none[source] != missing[source] or not alike:
            vocabulary[None] = len(vocabulary) if none[source] else REFUSED
            rows.append(none_codes)
        vocabularies[source] = vocabulary
        rows.append(unseen_codes)
        cells[source] = Cells(None, {column: np.array([row[column] for row in rows]) for column in columns})
    return vocabularies, unseen, cells


# Cells of numbers: bisection over the floats --------------------------------------------------------------------------


class _Line:
    """The numbers of a type in their order, as integer keys; neighbours differ by one."""

    def __init__(self, dtype: np.dtype[Any], limit: float) -> None:
        self.dtype = dtype
        self._bits = np.dtype(f"i{dtype.itemsize}") if dtype.kind == "f" else None
        if dtype.kind == "f":
            largest = min(limit, float(np.finfo(dtype).max))
            self.low, self.high = (int(key) for key in self.keys(np.array([-largest, largest])))
        elif dtype.kind == "b":
            self.low, self.high = 0, 1
        else:
            information = np.iinfo(dtype)
            exact = min(int(limit), 1 << 53)  # a table holds float64
            self.low, self.high = max(information.min, -exact), min(information.max, exact)

    def keys(self, numbers: NDArray[Any]) -> I8:
        """Key of the largest number of the type that is not above each number."""
        if self._bits is None:
            return np.asarray(np.clip(np.floor(numbers), self.low, self.high), dtype=np.int64)
        with np.errstate(over="ignore"):
            nearest = numbers.astype(self.dtype)
            nearest = np.where(nearest > numbers, np.nextafter(nearest, self.dtype.type(-np.inf)), nearest)
        bits = nearest.view(self._bits).astype(np.int64)
        return np.where(bits < 0, -(bits & np.iinfo(self._bits).max), bits)

    def numbers(self, keys: I8) -> NDArray[Any]:
        if self._bits is None:
            return keys.astype(self.dtype)
        size = np.abs(keys).astype(self._bits).view(self.dtype)
        return np.where(keys < 0, -size, size)

    def grid(self) -> I8:
        """Keys over the whole line, close together near zero."""
        double = _Line(np.dtype(float), float(np.finfo(np.float64).max))
        spread = double.numbers(np.linspace(double.low, double.high, GRID).astype(np.int64))
        return np.unique(np.clip(self.keys(spread), self.low, self.high))


class _Search:
    """Bisection for many thresholds of many columns at once; a row of a table serves one threshold of each column."""

    def __init__(self, probe: Probe, types: Sequence[np.dtype[Any]], sources: Sequence[int]) -> None:
        self.probe = probe
        self.types = types
        for limit in LIMITS:
            self.lines = {source: _Line(types[source], limit) for source in sources}
            try:
                ends = [np.array([line.low, line.high]) for line in self.lines.values()]
                self.ask(np.repeat(sources, 2), np.concatenate(ends), None)
                return
            except NotColumnwise as error:
                refusal = error
        raise refusal

    def ask(self, sources: I8, keys: I8, columns: I8 | None) -> tuple[F8, F8]:
        """Codes and numbers behind the transformers where a column has the number of a key, the others their usual one.

        Parameters
        ----------
        sources, keys : ndarray of int, shape (n,)
        columns : ndarray of int, shape (n,), or None
            The transformed column of interest; None for all.
        """
        from sklearn import config_context

        rank = np.empty(sources.size, np.int64)
        for source in np.unique(sources):
            mine = sources == source
            rank[mine] = np.arange(np.count_nonzero(mine))
        n_columns = len(self.probe.columns)
        shape = (sources.size,) if columns is not None else (sources.size, n_columns)
        codes, numbers = np.empty(shape), np.empty(shape)
        step = max(1, BATCH // max(n_columns, self.probe.n_features))
        for first in range(0, int(rank.max(initial=-1)) + 1, step):
            now = np.flatnonzero((rank >= first) & (rank < first + step))
            n_rows = int(rank[now].max()) - first + 1
            values = {}
            for source in np.unique(sources[now]).tolist():
                mine = now[sources[now] == source]
                number = self.lines[source].numbers(keys[mine])
                values[source] = np.append(number, np.repeat(number[-1:], n_rows - mine.size))
            with config_context(assume_finite=True):  # ask with numbers that no user would
                answers = self.probe.ask(self.probe.table(values, n_rows, self.types))
            rows = rank[now] - first
            for whole, answer in zip((codes, numbers), answers, strict=True):
                whole[now] = answer[rows] if columns is None else answer[rows, columns[now]]
        return codes, numbers

    def cut(self, sources: I8, columns: I8, targets: F8, low: I8, high: I8, ends: F8) -> I8:
        """Find the last key before the answer to "is the code at most the target?" changes.

        It differs between `low` and `high`. `ends` holds the numbers behind the transformers at both, shape (2, n);
        they guide the search, and decide nothing.
        """
        low, high, ends = low.copy(), high.copy(), ends.copy()
        aim = targets
        if self.probe.single:  # the code turns half way to the next float32
            aim = (targets + np.nextafter(targets.astype(np.float32), np.float32(np.inf))) / 2
        first_left = self._left(sources, low, columns, targets)[0]
        step, side = np.ones(low.size, np.int64), np.zeros(low.size, np.int64)
        turn = 0
        while (active := np.flatnonzero(high - low > 1)).size:
            bottom, top, width = low[active], high[active], high[active] - low[active]
            middle = bottom + width // 2
            if turn < SECANTS:
                key = self._interpolate(sources[active], bottom, top, ends[:, active], aim[active], middle)
            else:
                near = np.where(side[active] < 0, bottom + step[active], top - step[active])
                key = np.where(step[active] < width // 2, near, middle)
            key = np.clip(key, bottom + 1, top - 1)
            left, number = self._left(sources[active], key, columns[active], targets[active])
            up = left == first_left[active]
            low[active] = np.where(up, key, bottom)
            high[active] = np.where(up, top, key)
            ends[0, active] = np.where(up, number, ends[0, active])
            ends[1, active] = np.where(up, ends[1, active], number)
            turned = side[active] * np.where(up, -1, 1) < 0
            side[active] = np.where(up, -1, 1)
            if turn >= SECANTS:
                step[active] = np.where(turned, 1 << 60, np.minimum(step[active], 1 << 56) * GROWTH)
            turn += 1
        return low

    def _left(self, sources: I8, keys: I8, columns: I8, targets: F8) -> tuple[B1, F8]:
        codes, numbers = self.ask(sources, keys, columns)
        return codes <= targets, numbers

    def _interpolate(self, sources: I8, low: I8, high: I8, ends: F8, aim: F8, middle: I8) -> I8:
        keys = middle.copy()
        with np.errstate(all="ignore"):
            for source in np.unique(sources):
                mine = np.flatnonzero(sources == source)
                line = self.lines[int(source)]
                bottom = line.numbers(low[mine]).astype(np.float64)
                top = line.numbers(high[mine]).astype(np.float64)
                share = (aim[mine] - ends[0, mine]) / (ends[1, mine] - ends[0, mine])
                guess = bottom + share * (top - bottom)
                good = np.isfinite(guess) & (share >= 0.0) & (share <= 1.0)
                keys[mine] = np.where(good, line.keys(np.where(good, guess, 0.0)), middle[mine])
        return keys


def _number_cells(
    probe: Probe, types: Sequence[np.dtype[Any]], feeds: Mapping[int, list[int]], targets: Mapping[int, F8]
) -> dict[int, Cells]:
    """Cut columns of numbers where an answer changes."""
    if not feeds:
        return {}
    search = _Search(probe, types, sorted(feeds))
    grids = {source: _with_breaks(search.lines[source], probe.sources.breaks.get(source, [])) for source in feeds}
    sources = np.repeat(list(grids), [grid.size for grid in grids.values()])
    codes, numbers = search.ask(sources, np.concatenate(list(grids.values())), None)
    keys = np.concatenate(list(grids.values()))
    tasks: list[list[NDArray[Any]]] = []
    for source, columns in feeds.items():
        mine = np.flatnonzero(sources == source)
        for column in columns:
            left = codes[mine, column] <= targets[column][:, None]
            which, turn = np.nonzero(left[:, 1:] != left[:, :-1])
            size = which.size
            tasks.append([np.full(size, source), np.full(size, column), targets[column][which], mine[turn]])
    task_source, task_column, target, place = (np.concatenate(part) for part in zip(*tasks, strict=True))
    ends = np.stack([numbers[place, task_column], numbers[place + 1, task_column]])
    found = search.cut(task_source, task_column, target, keys[place], keys[place + 1], ends)
    cuts = {}
    for source in feeds:
        line = search.lines[source]
        own = np.append(found[task_source == source], _break_keys(line, probe.sources.breaks.get(source, [])))
        cuts[source] = np.unique(own[(own >= line.low) & (own < line.high)])
    return _checked_cells(search, cuts, feeds, targets)


def _with_breaks(line: _Line, breaks: Sequence[float]) -> I8:
    cuts = _break_keys(line, breaks)
    return np.unique(np.clip(np.concatenate([line.grid(), cuts, cuts + 1]), line.low, line.high))


def _break_keys(line: _Line, breaks: Sequence[float]) -> I8:
    """Last keys before and at each break."""
    at = line.keys(np.array(breaks, dtype=np.float64))
    return np.concatenate([at - 1, at])


def _checked_cells(
    search: _Search, cuts: Mapping[int, I8], feeds: Mapping[int, list[int]], targets: Mapping[int, F8]
) -> dict[int, Cells]:
    """Ask for the largest number of each cell, and make sure that the others of the cell are answered alike."""
    keys: dict[int, I8] = {}
    for source, ends in cuts.items():
        line = search.lines[source]
        others = np.append(line.low, ends + 1)
        if source in search.probe.sources.rough:
            others = np.append(others, np.clip(ends[:, None] + np.arange(-4, 6), line.low, line.high))
        keys[source] = np.concatenate([np.append(ends, line.high), others])
    sources = np.repeat(list(keys), [own.size for own in keys.values()])
    codes, _ = search.ask(sources, np.concatenate(list(keys.values())), None)
    cells = {}
    for source, ends in cuts.items():
        n_cells = ends.size + 1
        own = codes[sources == source]
        home = np.searchsorted(ends, keys[source][n_cells:])
        for column in feeds[source]:
            rank = np.searchsorted(targets[column], own[:, column])
            if (rank[:n_cells][home] != rank[n_cells:]).any():
                name = search.probe.name(source)
                raise NotColumnwise(f"column {name!r} passes a function that is not monotone to the last bit")
        upper = search.lines[source].numbers(keys[source][:n_cells]).astype(np.float64)
        cells[source] = Cells(upper, {column: own[:n_cells, column] for column in feeds[source]})
    return cells


# Trees ---------------------------------------------------------------------------------------------------------------


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
