"""Asking fitted transformers what they make of the values of one user column at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from macem.adapters.transformers import Column, NotColumnwise, Sources, trace
from macem.errors import sentence
from macem.kernel import F8
from macem.oracle import TreeOracle

__all__ = ["B1", "Probe"]

B1 = NDArray[np.bool_]


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
        table = self.row(types)
        return [table.dtype] if hasattr(table, "dtype") else table.dtypes.tolist()

    def row(self, types: Sequence[Any]) -> Any:
        """Make a table of one row as the model behind the transformers gets it."""
        return self.transform(self.table({}, 1, types))

    def table(self, values: Mapping[int, NDArray[Any]], n_rows: int, types: Sequence[np.dtype[Any]]) -> Any:
        """Make a table as the user would: given values in some columns, in the others one that the pipeline takes."""
        arrays = [
            values[source] if source in values else np.full(n_rows, self._usual(source)[0], self._type(source, types))
            for source in range(self.n_features)
        ]
        if self.names is not None:
            for source in self.read_by_model:
                arrays[source] = self._as_category(arrays[source], source)
            return pd.DataFrame(dict(zip(self.names, arrays, strict=True)), columns=list(self.names))
        kinds = {array.dtype.kind for array in arrays}
        common = types[0] if types[0].kind == "f" or "f" not in kinds else np.dtype(float)
        return np.stack([array.astype(object if "O" in kinds else common) for array in arrays], axis=1)

    def _as_category(self, values: NDArray[Any], source: int) -> Any:
        """Make a pandas category column, as the model was fitted on; values that it does not know are the last."""
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
        if not hasattr(self.row([np.dtype(float)] * self.n_features), "toarray"):
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
