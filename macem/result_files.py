"""Result files: lines for each row and its contrasts, written a table at a time and read back. Needs pyarrow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from macem.errors import DataError, OptionError
from macem.files import format_of, head, pyarrow, read_table
from macem.lazy import cells_of
from macem.reasons import is_missing
from macem.results import Contrast, Explanation, Explanations, Status

__all__ = [
    "atomically",
    "line_schema",
    "lines",
    "open_table",
    "provenance_path",
    "read_explanations",
    "save_table",
    "text_columns",
    "write_lines",
]

#: Columns that every result file has before those of the rows, and their types; rows and classes may have labels of
#: another type. The prefix keeps them apart from a user's own "status".
LINE_COLUMNS = {
    "macem_row": "int64",
    "macem_kind": "string",
    "macem_status": "string",
    "macem_prediction": "string",
    "macem_probability": "float64",
    "macem_distance": "float64",
    "macem_n_changed": "int64",
    "macem_changed": "string",
    "macem_n_queries": "int64",
    "macem_lower_bound": "float64",
    "macem_reason": "string",
    "macem_details": "string",
}
LABELS = ("macem_row", "macem_prediction")


@contextmanager
def atomically(path: Path) -> Iterator[Path]:
    """Write a file whole or not at all: under another name first, flushed to the disk, then renamed."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def provenance_path(path: Path) -> Path:
    """Where the provenance of a result file stands: beside it."""
    return path.with_name(path.name + ".provenance.json")


def line_schema(dtypes: Mapping[str, Any], classes: Sequence[Any], id_dtype: Any = np.int64) -> Any:
    """Arrow schema of a result file.

    Parameters
    ----------
    dtypes : dict
        Of the rows' columns.
    classes : sequence of labels
    id_dtype : dtype, optional
        Of the rows' labels; whole numbers by default.
    """
    pa = pyarrow()
    types = {**LINE_COLUMNS, "macem_row": _arrow_type(id_dtype)}
    label = pa.array(np.asarray(classes).tolist()).type
    if pa.types.is_primitive(label):
        types["macem_prediction"] = label
    for name, dtype in dtypes.items():
        if name in LINE_COLUMNS:
            raise DataError(f"Column {name!r} has the name of a column of the results; rename it.")
        types[name] = _arrow_type(dtype)
    # Parquet would read an Int64 back as int64, had it no word of what pandas calls it.
    like = pd.DataFrame({name: pd.Series([], dtype=dtype) for name, dtype in dtypes.items()})
    return pa.schema(types, metadata=pa.Schema.from_pandas(like, preserve_index=False).metadata)


def _arrow_type(dtype: Any) -> Any:
    pa = pyarrow()
    if isinstance(dtype, pd.CategoricalDtype):
        return pa.dictionary(pa.int32(), _arrow_type(dtype.categories.dtype), dtype.ordered)
    if pd.api.types.is_string_dtype(dtype):  # object as well
        return pa.string()
    return pa.array(pd.Series([], dtype=dtype)).type


def _value_type(column: Any) -> Any:
    """Type of a field's cells, of those of its levels where it has categories."""
    return getattr(column.type, "value_type", column.type)


def text_columns(schema: Any) -> list[str]:
    """Columns of a result file whose cells are texts, whatever they look like: a CSV file would not tell 007 from 7."""
    texts = [column.name for column in schema if _value_type(column) == pyarrow().string()]
    return [name for name in texts if name not in LINE_COLUMNS or name in LABELS]


def lines(
    explanations: Iterable[Explanation],
    schema: Any,
    dtypes: Mapping[str, Any],
    refused: Iterable[tuple[Any, str]] = (),
    words: Mapping[str, Any] | None = None,
) -> Any:
    """Results as an Arrow table: for each row a line of kind ``row``, then one per contrast; at last the errors.

    The cells of a line are the row's own, or those of the contrast, empty where none was found. Refused rows, and those
    that could not be explained, are lines of kind ``error`` with the reason. `words` is what
    :meth:`macem.results.Explanation.reason` takes.
    """
    records: list[dict[str, Any]] = []
    errors = list(refused)
    for explanation in explanations:
        if explanation.error is not None:
            errors.append((explanation.index, explanation.error))
            continue
        row = {
            "macem_row": explanation.index,
            "macem_kind": "row",
            "macem_prediction": explanation.prediction,
            "macem_probability": explanation.probability,
            "macem_reason": explanation.reason(**(words or {})),
            "macem_details": _details(probabilities=cells_of(explanation, "probabilities") or None),
            **cells_of(explanation, "original"),
        }
        records += [row, *(_contrast_record(explanation, contrast) for contrast in explanation.contrasts)]
    if all(isinstance(label, (int, np.integer)) for label, _ in errors):
        errors.sort(key=lambda one: one[0])
    records += [{"macem_row": label, "macem_kind": "error", "macem_reason": reason} for label, reason in errors]
    columns = [_arrow_column([record.get(column.name) for record in records], column, dtypes) for column in schema]
    return pyarrow().Table.from_arrays(columns, schema=schema)


def _contrast_record(explanation: Explanation, contrast: Contrast) -> dict[str, Any]:
    probabilities, base = cells_of(contrast, "probabilities"), cells_of(explanation, "base")
    probability = probabilities.get(contrast.prediction)
    importance, sensitivity = cells_of(contrast, "importance"), cells_of(contrast, "sensitivity")
    changes = [
        {
            "feature": name,
            "from": contrast.changes[name][0],
            "to": contrast.changes[name][1],
            "base": base[name],
            "importance": importance[name],
            "sensitivity": sensitivity[name],
        }
        for name in contrast.ranked
    ]
    return {
        "macem_row": explanation.index,
        "macem_kind": contrast.kind,
        "macem_status": contrast.status.value,
        "macem_prediction": contrast.prediction,
        "macem_probability": None if probability is None else float(probability),
        "macem_distance": contrast.distance,
        "macem_n_changed": contrast.n_changed,
        "macem_changed": ", ".join(map(str, contrast.ranked)),
        "macem_n_queries": contrast.n_queries,
        "macem_lower_bound": contrast.lower_bound,
        "macem_details": _details(probabilities=probabilities or None, changes=changes),
        **cells_of(contrast, "values"),
    }


def _details(**details: Any) -> str:
    return json.dumps(_plain(details), ensure_ascii=False, allow_nan=False, default=str)


def _plain(value: Any) -> Any:
    """A value as Python and JSON have it: a missing one is None, a float32 has its own shortest digits."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if is_missing(value):
        return None
    if isinstance(value, np.floating) and not isinstance(value, float):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def _arrow_column(cells: Sequence[Any], column: Any, dtypes: Mapping[str, Any]) -> Any:
    """A column of a result file; categories in the order of their dtype, then what else the rows hold."""
    pa = pyarrow()
    values = _arrow_values(cells, column)
    if not pa.types.is_dictionary(column.type):
        return pa.array(values, column.type)
    known = _arrow_values(dtypes[column.name].categories.tolist() if column.name in dtypes else [], column)
    places: dict[Any, int] = {}
    for level in (*known, *values):
        if level is not None:
            places.setdefault(level, len(places))
    codes = pa.array([places.get(value) for value in values], pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(places, _value_type(column)), ordered=column.type.ordered)


def _arrow_values(cells: Sequence[Any], column: Any) -> list[Any]:
    """Cells as Python values that a column's type takes."""
    pa, kind = pyarrow(), _value_type(column)
    values = [_plain(cell) for cell in cells]
    if pa.types.is_string(kind):
        return [value if value is None else str(value) for value in values]
    if pa.types.is_integer(kind):
        values = [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
        if any(isinstance(value, float) for value in values):  # Arrow would cut 24.5 to 24 without a word
            raise DataError(f"Column {column.name!r} of whole numbers got a fraction; give the column a float dtype.")
    return values


def save_table(path: Path, table: Any) -> None:
    """Write an Arrow table, whole or not at all."""
    pa = pyarrow()
    with (
        atomically(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def open_table(path: Path) -> Any:
    """Read an Arrow table that :func:`save_table` wrote."""
    pa = pyarrow()
    with pa.OSFile(str(path), "rb") as source:
        return pa.ipc.open_file(source).read_all()


def write_lines(path: Path, tables: Iterable[Any], schema: Any) -> None:
    """Write Arrow tables to one file, a table at a time; the format is that of the suffix. The file appears whole."""
    pa = pyarrow()
    kind = format_of(path)
    with atomically(path) as temporary:
        if kind == "parquet":
            with pyarrow("parquet").ParquetWriter(temporary, schema) as writer:
                for table in tables:
                    writer.write_table(table)
        elif kind == "csv":
            flat = pa.schema([pa.field(column.name, _value_type(column)) for column in schema])
            with pyarrow("csv").CSVWriter(temporary, flat) as writer:
                for table in tables:
                    writer.write_table(table.cast(flat))
        else:
            with open(temporary, "w", encoding="utf-8") as stream:
                for table in tables:
                    for record in table.to_pylist():
                        if record["macem_details"]:
                            record["macem_details"] = json.loads(record["macem_details"])
                        stream.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")


def read_explanations(path: str | Path, limit: int | None = None) -> Explanations:
    """Read a result file back, for a report or a notebook.

    Importance, sensitivity and base values are those that the file keeps: of the changed features.

    Raises
    ------
    DataError
        If the file is no result file of ``macem explain``.
    OptionError
        If `limit` is below zero.
    """
    path = Path(path)
    if limit is not None and limit < 0:
        raise OptionError(f"limit={limit} is not a whole number of at least 0; give one.")
    with _undamaged(sidecar := provenance_path(path)):
        provenance = json.loads(sidecar.read_text(encoding="utf-8")) if sidecar.is_file() else {}
        texts = provenance.get("texts", ())
    found = head(path)
    # A row has three lines at most: its own, a positive, a negative.
    frame = read_table(path, {name: "str" for name in texts if name in found}, None if limit is None else 3 * limit)
    for name in LINE_COLUMNS:
        if name not in frame:
            raise DataError(f"{path} has no column {name!r}; give a file that `macem explain --output` wrote.")
    with _undamaged(path):
        groups = _lines_by_row(frame)[:limit]
        names = [name for name in frame.columns if name not in LINE_COLUMNS]
        return Explanations(
            tuple(_explanation(own, contrasts, names, provenance.get("target")) for own, *contrasts in groups),
            provenance,
        )


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is damaged ({type(error).__name__}: {error}); give it as `macem explain` wrote it, whole."
        ) from error


def _lines_by_row(frame: pd.DataFrame) -> list[list[dict[Any, Any]]]:
    """For each row its own line, then those of its contrasts."""
    groups: list[list[dict[Any, Any]]] = []
    for line in frame.to_dict("records"):
        # A column of whole labels that is empty on some lines came back as floats.
        for label in LABELS:
            if isinstance(line[label], float) and line[label].is_integer():
                line[label] = int(line[label])
        if isinstance(line["macem_details"], str):  # JSON lines hold the object itself
            line["macem_details"] = json.loads(line["macem_details"])
        if line["macem_kind"] == "row":
            groups.append([line])
        else:
            groups[-1].append(line)
    return groups


def _explanation(
    own: Mapping[Any, Any], others: Sequence[Mapping[Any, Any]], names: Sequence[str], target: Any
) -> Explanation:
    """The explanation that the lines of a row tell."""
    label, prediction = own["macem_row"], own["macem_prediction"]
    original = _cells(own, names)
    base = pd.Series(None, index=original.index, dtype=object)
    for line in others:
        for change in line["macem_details"]["changes"]:
            base[change["feature"]] = change["base"]
    contrasts = {line["macem_kind"]: _contrast(line, original, base, target) for line in others}
    return Explanation(
        index=label,
        original=original,
        prediction=prediction,
        probabilities=_probabilities(own),
        base=base,
        positive=contrasts.get("positive"),
        negative=contrasts.get("negative"),
    )


def _contrast(line: Mapping[Any, Any], original: pd.Series, base: pd.Series, target: Any) -> Contrast:
    kind, status, changes = line["macem_kind"], Status(line["macem_status"]), line["macem_details"]["changes"]
    found = status is Status.FOUND
    prediction, probabilities = (line["macem_prediction"], _probabilities(line)) if found else (None, None)
    if probabilities is not None and prediction not in probabilities:
        raise LookupError(f"no probability of {prediction!r}")
    n_changed = _number(line["macem_n_changed"])

    def kept(what: str) -> pd.Series:
        of_changed = {change["feature"]: change[what] for change in changes}
        return pd.Series({**dict.fromkeys(original.index, 0.0), **of_changed}, dtype=float)

    return Contrast(
        kind=kind,
        status=status,
        values=_cells(line, original.index) if found else None,
        changes={change["feature"]: (change["from"], change["to"]) for change in changes},
        importance=kept("importance"),
        sensitivity=kept("sensitivity"),
        prediction=prediction,
        probabilities=probabilities,
        distance=_number(line["macem_distance"]),
        n_changed=None if n_changed is None else int(n_changed),
        n_queries=int(line["macem_n_queries"]),
        lower_bound=_number(line["macem_lower_bound"]),
        reference=base if kind == "positive" else original,
        target=target if kind == "negative" else None,
    )


def _cells(line: Mapping[Any, Any], names: Iterable[str]) -> pd.Series:
    return pd.Series({name: line[name] for name in names}, name=line["macem_row"], dtype=object)


def _number(cell: Any) -> float | None:
    return None if is_missing(cell) else float(cell)


def _probabilities(line: Mapping[Any, Any]) -> pd.Series | None:
    """Probabilities by label; JSON made texts of the labels, which are of one type with the prediction."""
    probabilities = line["macem_details"]["probabilities"]
    if probabilities is None:
        return None
    return pd.Series({_like(line["macem_prediction"], name): value for name, value in probabilities.items()})


def _like(prediction: Any, name: str) -> Any:
    """The label that a text stands for; whole numbers of 1.0 came back from CSV as 1."""
    if isinstance(prediction, (bool, np.bool_)):
        return name == "True"
    if isinstance(prediction, (int, float)):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(name)
    return name
