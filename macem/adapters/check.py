"""Does a copy answer as the model does? Compared on data, on split boundaries, on missing values, on unseen levels.

And does a model that names no classes answer with probabilities, or with labels that pass as such?
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from macem.errors import LabelsWarning, MacemError
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle

__all__ = ["boundaries", "check_table", "columns", "dtype_of", "hard_tables", "place", "warn_of_labels"]

N_ROWS = 200  # background rows that are compared, and about as many rows on boundaries
N_FEW_ROWS = 50  # that are compared where members of the model are asked as they are
MOST_ROWS = 1000  # for cells that stand on boundaries, are missing or unseen
TOLERANCE = 1e-6  # of a probability: what float32 arithmetic in another order may cost


def check_table(oracle: Oracle, X_background: Any) -> str | None:
    """Compare the copy that an oracle asks with the live model.

    Parameters
    ----------
    oracle : Oracle
        Of a table, hard rows are compared; of a composite of tables and other models, some of the background.
    X_background : DataFrame or ndarray, shape (n, d)
        Rows as the model takes them.

    Returns
    -------
    str or None
        The largest gap in words; None where copy and model agree, or where the model itself is asked.

    Raises
    ------
    OracleError
        If the model cannot answer its own background.
    """
    model = getattr(oracle, "live", oracle)
    if model is oracle:
        return None
    copy_of_it = "table" if isinstance(oracle, TreeOracle) else "copy"
    tables = hard_tables(oracle, X_background) if isinstance(oracle, TreeOracle) else _few_rows(X_background)
    worst, description = TOLERANCE, None
    for kind, table in tables:
        try:
            live = model.predict_proba(table)
        except MacemError:
            if kind == "data":
                raise
            continue  # the model does not take such rows, so it will never be asked with them
        try:
            copy = oracle.predict_proba(table)
        except MacemError as error:
            if kind in {"data", "boundary"}:
                return f"on {kind} rows the model answers, but its {copy_of_it} does not: {error}"
            continue  # to refuse such rows is no silent difference
        gap = np.nan_to_num(np.abs(copy - live), nan=np.inf)
        if gap.size and gap.max() > worst:
            worst = gap.max()
            row, column = np.unravel_index(gap.argmax(), gap.shape)
            description = (
                f"on {kind} row {row}, the probability of class {oracle.classes[column]} is {live[row, column]:.9g} by "
                f"the model and {copy[row, column]:.9g} by its {copy_of_it}"
            )
    return description


def warn_of_labels(oracle: Oracle, probabilities: F8) -> None:
    """Warn where a function or a service gave each row of the background one number, and that 0 or 1.

    It is not refused: a hard classifier may answer so, and a service may write 1.0 as 1. An estimator has a ``predict``
    for its labels, and two columns are no labels.

    Parameters
    ----------
    oracle : Oracle
        What was asked.
    probabilities : ndarray, shape (n, n_classes)
        What it answered to the background.
    """
    if (
        isinstance(oracle, BlackBoxOracle)
        and oracle.answers_one_column
        and not hasattr(oracle.model, "predict")
        and np.isin(probabilities, (0.0, 1.0)).all()
    ):
        name = getattr(oracle.model, "__qualname__", type(oracle.model).__qualname__)
        warnings.warn(
            f"The model ({name}) answers each of {len(probabilities)} background rows with exactly 0 or 1, as class "
            "labels are, and it is read as the probability of the second class. If these are labels, let it answer "
            'with predict_proba (MLflow does for models logged with pyfunc_predict_fn="predict_proba"); if it is a '
            "classifier that is always sure, let it say so with a column for each class.",
            LabelsWarning,
            stacklevel=4,
        )


def _few_rows(X: Any) -> Iterator[tuple[str, Any]]:
    """Take some rows of the data, spread evenly."""
    if len(X):
        yield "data", _take(X, _spread(len(X), N_FEW_ROWS))


def hard_tables(oracle: TreeOracle, X: Any, n_rows: int = N_ROWS) -> Iterator[tuple[str, Any]]:
    """Make tables like X on which a wrong copy shows: the data, split boundaries, missing values, unseen levels.

    Parameters
    ----------
    oracle : TreeOracle
    X : DataFrame or ndarray, shape (n, d)
    n_rows : int
        Rows of the data, and about as many on boundaries.

    Yields
    ------
    kind : str
        ``"data"``, ``"boundary"``, ``"missing"``, ``"unseen level"`` or ``"missing level"``.
    table : of the type, columns and dtypes of X
    """
    rows = _spread(len(X), n_rows)
    if rows.size == 0:
        return
    yield "data", _take(X, rows)
    edges = boundaries(oracle)
    at_most = max(1, n_rows // max(1, 3 * sum(edge.size > 0 for edge in edges)))
    cells: list[tuple[int, Any]] = []
    for column, edge in zip(columns(oracle, X), edges, strict=True):
        chosen = edge[np.unique(np.linspace(0, edge.size - 1, min(at_most, edge.size)).astype(np.int64))]
        cells += [(column, value) for value in _beside(chosen, dtype_of(X, column), oracle.single)]
    if cells:
        yield "boundary", place(X, rows, cells)
    numeric = [column for column, edge in zip(columns(oracle, X), edges, strict=True) if edge.size]
    missing = [(column, np.nan) for column in numeric if dtype_of(X, column).kind in "fO"]
    if missing:
        yield "missing", place(X, rows, missing)
    unseen = [
        (column, level)
        for column, n_codes in zip(columns(oracle, X), oracle.ensemble.n_codes, strict=True)
        for level in _unseen(X, column, int(n_codes))
    ]
    if unseen:
        yield "unseen level", place(X, rows, unseen)
    without = [(column, None) for column, level in unseen if isinstance(level, str)]
    if without:
        yield "missing level", place(X, rows, without)


def boundaries(oracle: TreeOracle) -> list[F8]:
    """Collect the finite thresholds of every feature, sorted; empty for one that no split asks as a number."""
    asked, at = [np.zeros(0, np.int64)], [np.zeros(0)]
    for tree in (tree for member in oracle.members for tree in member.trees):
        numeric = (tree.feature >= 0) & np.isfinite(tree.threshold)
        numeric[list(tree.categories)] = False
        asked.append(tree.feature[numeric])
        at.append(tree.threshold[numeric])
    feature, threshold = np.concatenate(asked), np.concatenate(at)
    order = np.argsort(feature, kind="stable")
    parts = np.split(threshold[order], np.searchsorted(feature[order], np.arange(1, oracle.n_features)))
    return [np.unique(part) for part in parts]


def place(X: Any, rows: NDArray[np.int64], cells: list[tuple[int, Any]]) -> Any:
    """Put each (column, value) into a row of its own, copied from `rows` in turn; dtypes stay, categories are added.

    Beyond `MOST_ROWS` they share rows, or 5000 columns would take a gigabyte.
    """
    n = min(len(cells), max(MOST_ROWS, *Counter(column for column, _ in cells).values()))
    table = _take(X, rows[np.arange(n) % rows.size])
    placed: dict[int, list[tuple[int, Any]]] = {}
    for at, (column, value) in enumerate(cells):
        placed.setdefault(column, []).append((at % n, value))
    for column, those in placed.items():
        where = [row for row, _ in those]
        values: Any = [value for _, value in those]
        if isinstance(table, np.ndarray):
            table[where, column] = values
            continue
        series = table.iloc[:, column].copy()
        if series.dtype.name == "category":
            known = set(series.cat.categories)
            new = [value for value in dict.fromkeys(values) if not (pd.isna(value) or value in known)]
            series = series.cat.add_categories(new)
        elif isinstance(series.dtype, pd.StringDtype):  # a model that takes it as numbers reads them from text
            values = [value if pd.isna(value) else str(value) for value in values]
        own = getattr(series.dtype, "numpy_dtype", series.dtype)
        if isinstance(own, np.dtype) and own.kind in "iu":  # Python numbers do not fit a narrow column by themselves
            values = np.clip(values, np.iinfo(own).min, np.iinfo(own).max).astype(own)
        series.iloc[where] = values
        table.isetitem(column, series)
    return table


def _beside(thresholds: F8, dtype: Any, single: bool) -> list[Any]:
    """Return thresholds and the numbers one step to either side, as the column's dtype has them."""
    if dtype.kind in "iu":
        steps = np.concatenate([np.floor(thresholds), np.ceil(thresholds)])
        limits = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
        return list(np.unique(steps[(steps >= limits.min) & (steps <= limits.max)]).astype(np.int64))
    if dtype.kind not in "fO":
        return []
    width: Any = np.float32 if single else np.float64
    exact = thresholds.astype(width)
    infinity = width(np.inf)
    with np.errstate(over="ignore"):
        steps = np.concatenate([exact, np.nextafter(exact, -infinity), np.nextafter(exact, infinity)])
    return list(steps[np.isfinite(steps)].astype(np.float64))


def _unseen(X: Any, column: int, n_codes: int) -> list[Any]:
    """Make levels that a column of categories does not have."""
    dtype = dtype_of(X, column)
    levels = getattr(dtype, "categories", None)
    if n_codes == 0 and levels is None and dtype.kind in "biuf":
        return []
    cells = (X[:, column] if isinstance(X, np.ndarray) else X.iloc[:, column]) if levels is None else levels
    values = pd.Series(cells).dropna().unique().tolist()
    if any(isinstance(value, str) for value in values):
        return ["a level that no row has"]
    if n_codes == 0 or dtype.kind == "b" or not all(isinstance(value, Real) for value in values):
        return []  # dates, bytes: of these no other is made up
    return [max(values) + 1, min(values) - 1] if dtype.kind != "u" else [max(values) + 1]


def columns(oracle: TreeOracle, X: Any) -> list[int]:
    """Find the places in X of the oracle's features: by name where both know names, else in order."""
    names = oracle.feature_names
    if names is None or isinstance(X, np.ndarray) or not set(names) <= set(X.columns):
        return list(range(oracle.n_features))
    return [X.columns.get_loc(name) for name in names]


def dtype_of(X: Any, column: int) -> Any:
    """Dtype of one column."""
    return X.dtype if isinstance(X, np.ndarray) else X.iloc[:, column].dtype


def _spread(n: int, at_most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, n - 1, min(at_most, n)).astype(np.int64))


def _take(X: Any, rows: NDArray[np.int64]) -> Any:
    return X[rows] if isinstance(X, np.ndarray) else X.iloc[rows].copy()
