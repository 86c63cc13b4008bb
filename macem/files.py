"""Tables in files: CSV, Parquet and JSON lines, read whole or in chunks, and results written back. Needs pyarrow.

A text file carries no dtypes, so a column of one is read as whole numbers, numbers, bools or text, whichever is the
first that all its cells allow. An empty cell is missing; a quoted empty text (``""``) and words such as ``none`` are
categories like any other, and missing only in a column of numbers.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from macem.errors import DataError, MacemError, OptionError
from macem.lazy import lazy
from macem.reasons import is_missing
from macem.results import Contrast, Explanation, Explanations, Status, cells_of

__all__ = [
    "RowFile",
    "atomically",
    "line_schema",
    "lines",
    "read_explanations",
    "read_table",
    "text_columns",
    "write_lines",
]

FORMATS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
}
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>"})
BOOLS = {"true": True, "false": False}


def format_of(path: str | Path) -> str:
    """``csv``, ``parquet`` or ``json`` (lines), by the suffix.

    Raises
    ------
    OptionError
        If the suffix is none of those.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise OptionError(f"{path} ends in {suffix!r}; name a table .csv, .parquet or .jsonl (one JSON object a line).")
    return FORMATS[suffix]


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


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file: those that can be read as a table, and the others with the reason."""

    frame: pd.DataFrame
    refused: list[tuple[Any, str]] = field(default_factory=list)


def read_table(path: str | Path, dtypes: Mapping[str, str] | None = None, limit: int | None = None) -> pd.DataFrame:
    """Read a table, with the dtypes that its columns allow.

    Parameters
    ----------
    path : path
    dtypes : dict, optional
        ``{column: dtype}`` where the file's own cells say something else, such as ``{"zip": "str"}``.
    limit : int, optional
        So many rows, at most; all by default.

    Raises
    ------
    DataError
        If the file is not there, or holds a line that is no row.
    OptionError
        If the suffix is unknown, or `dtypes` names a column that is not there or a dtype that does not fit.
    """
    limit = 1 << 30 if limit is None else limit
    chunks, n = [], 0
    for chunk in _raw_chunks(Path(path), limit):
        chunks.append(chunk)
        n += len(chunk.frame)
        if n >= limit:
            break
    for chunk in chunks:
        for label, reason in chunk.refused:
            raise DataError(f"{path}, row {label}: {reason}. Correct the file.")
    frame = (pd.concat([chunk.frame for chunk in chunks]) if len(chunks) > 1 else chunks[0].frame).iloc[:limit]
    dtypes = dict(dtypes or {})
    for name in dtypes:
        if name not in frame:
            raise OptionError(f"dtypes names {name!r}, which {path} does not hold; it has {list(frame.columns)}.")
    typed = format_of(path) == "parquet"
    columns = {}
    for name in frame.columns:
        column = frame[name] if typed or name in dtypes else _inferred(frame[name])
        if name in dtypes:
            column = _given_dtype(column, dtypes[name])
        columns[name] = column
    return pd.DataFrame(columns, index=frame.index)


def _given_dtype(column: pd.Series, name: str) -> pd.Series:
    """A column of raw cells in the dtype that the user names."""
    try:
        dtype = pd.api.types.pandas_dtype(name)
        if isinstance(dtype, pd.CategoricalDtype):
            return column.astype(dtype)
        if pd.api.types.is_integer_dtype(dtype) and not _whole(_numbers(column)[0].dropna()):
            raise ValueError("it holds a fraction")
        cells, faults = _as_dtype(column, dtype)
        for fault in faults.values():
            raise ValueError(f"it holds {fault}")
        return cells.astype(dtype)
    except (TypeError, ValueError) as error:
        raise OptionError(f"dtypes: column {column.name!r} cannot be {name!r} ({error}); choose another.") from error


class RowFile:
    """The rows to explain: a file read in chunks, each with the columns and dtypes of the background.

    Parameters
    ----------
    path : path
    background : DataFrame
        Its columns are read, in its order, with its dtypes; a column of whole numbers widens where a row has a
        fraction or is missing.
    id_column : str, optional
        A column that names the rows; by default their position, or the index that a Parquet file keeps.
    """

    def __init__(self, path: str | Path, background: pd.DataFrame, id_column: str | None = None) -> None:
        self.path = Path(path)
        self.dtypes = dict(background.dtypes)
        self.id_column = id_column
        found = next(_raw_chunks(self.path, 1), Chunk(pd.DataFrame())).frame
        if id_column is not None and id_column not in found:
            raise DataError(
                f"{path} has no column {id_column!r} to name the rows by (it has {list(found.columns)}); name another."
            )
        missing = [name for name in self.dtypes if name not in found]
        if missing:
            raise DataError(
                f"{path} has no column {missing[0]!r}, which the background has (it has {list(found.columns)}); "
                f"add it, or drop it from the background if the model does not take it (--drop {missing[0]})."
            )

    @lazy
    def n_rows(self) -> int:
        """Number of rows, refused ones included."""
        self._scan()
        return self._n_rows

    @lazy
    def row_dtypes(self) -> dict[str, Any]:
        """Dtype of each column over the whole file, so that no row's form depends on its neighbours."""
        return self._scan()

    @lazy
    def label_dtype(self) -> Any:
        """Dtype of the rows' labels: positions, or the texts or values of the id column or of a Parquet index."""
        if format_of(self.path) == "parquet":
            return next(_raw_chunks(self.path, 1, self.id_column)).frame.index.dtype
        return np.dtype(object if self.id_column else "int64")

    def _scan(self) -> dict[str, Any]:
        dtypes = dict(self.dtypes)
        self._n_rows = 0
        for chunk in _raw_chunks(self.path, 1 << 11):
            self._n_rows += len(chunk.frame) + len(chunk.refused)
            for name, dtype in dtypes.items():
                if not pd.api.types.is_integer_dtype(dtype):
                    continue
                numbers = _numbers(chunk.frame[name])[0]
                if not _whole(numbers.dropna() if _is_nullable(dtype) else numbers):
                    dtypes[name] = pd.Float64Dtype() if _is_nullable(dtype) else np.dtype(float)
        return dtypes

    def chunks(self, size: int) -> Iterator[Chunk]:
        """Read the rows, so many at a time."""
        for raw in _raw_chunks(self.path, size, self.id_column):
            frame, refused = raw.frame, list(raw.refused)
            bad: dict[int, str] = {}
            columns = {}
            for name, dtype in self.row_dtypes.items():
                columns[name], faults = _as_dtype(frame[name], dtype)
                for position, fault in faults.items():
                    bad.setdefault(position, f"column {name!r} holds {fault}")
            table = pd.DataFrame(columns, index=frame.index)
            if bad:
                refused += [(frame.index[position], reason) for position, reason in sorted(bad.items())]
                table = (
                    table.drop(index=table.index) if len(bad) == len(table) else table.iloc[_others(len(table), bad)]
                )
                # Without the bad cells a column of numbers is of the background's dtype again.
                numeric = [name for name, dtype in self.row_dtypes.items() if pd.api.types.is_numeric_dtype(dtype)]
                table = table.astype({name: self.row_dtypes[name] for name in numeric if table[name].notna().all()})
            yield Chunk(table, refused)


def _others(n: int, bad: Mapping[int, str]) -> list[int]:
    return [position for position in range(n) if position not in bad]


def _raw_chunks(path: Path, size: int, id_column: str | None = None) -> Iterator[Chunk]:
    """Cells as the file has them: text from CSV, values from JSON lines, typed columns from Parquet."""
    if not path.is_file():
        raise DataError(f"There is no file {path}; check the path.")
    kind = format_of(path)
    try:
        if kind == "parquet":
            yield from _parquet_chunks(path, size, id_column)
            return
        _check_encoding(path)
        for chunk in _csv_chunks(path, size) if kind == "csv" else _json_chunks(path, size):
            if id_column is None:
                yield chunk
            else:
                # A line that cannot be read has no id.
                refused = [(f"row {label}", reason) for label, reason in chunk.refused]
                yield Chunk(chunk.frame.set_index(id_column, drop=False), refused)
    except _pyarrow().ArrowInvalid as error:
        if "straddling object" in str(error):
            raise DataError(
                f"{path} has a row of more than a megabyte, as a quote that is never closed makes one; close it, or "
                "shorten the row."
            ) from error
        raise DataError(f"{path} cannot be read ({error}); check that its suffix tells its format.") from error


def _check_encoding(path: Path) -> None:
    """Refuse a text file that is not UTF-8: Arrow would say so late, on stderr, or not at all."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with open(path, "rb") as stream:
        try:
            while block := stream.read(1 << 20):
                decoder.decode(block)
                line += block.count(b"\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            line += error.object.count(b"\n", 0, error.start)
            place = stream.tell() - len(error.object) + error.start
            raise DataError(
                f"{path} is not UTF-8: its line {line} has the byte {error.object[error.start]:#04x} (byte {place} of "
                "the file); save it as UTF-8, and check that its suffix tells its format."
            ) from error


def _csv_chunks(path: Path, size: int) -> Iterator[Chunk]:
    csv = _pyarrow("csv")
    pa = _pyarrow()
    invalid: dict[int, str] = {}

    def skip(row: Any) -> str:
        # Arrow counts the header as line 1.
        invalid[row.number - 2] = (
            f"the line has {row.actual_columns} fields where the header has {row.expected_columns}"
        )
        return "skip"

    with open(path, "rb") as stream:
        header = stream.readline()
    first = header.decode("utf-8-sig")
    if not first.strip():
        raise DataError(f"{path} is empty, or its first line is; a CSV file begins with a header line.")
    if "," not in first and any(separator in first for separator in ";\t|"):
        raise DataError(f"{path} begins with {first.strip()[:60]!r}; save it with commas between the cells.")
    reader = csv.open_csv(
        # Without the end of its line, Arrow takes a header alone for an empty file.
        path if header.endswith((b"\n", b"\r")) else BytesIO(header + b"\n"),
        # One thread: only then does Arrow know the number of a line that it skips.
        read_options=csv.ReadOptions(use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        convert_options=csv.ConvertOptions(
            default_column_type=pa.string(),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    names = reader.schema.names
    _check_names(path, names)
    yield from _rechunk(_csv_batches(reader, invalid), names, size)


def _csv_batches(
    reader: Any, invalid: dict[int, str]
) -> Iterator[tuple[list[int], pd.DataFrame, list[tuple[int, str]]]]:
    position = 0
    for batch in reader:
        frame = batch.to_pandas(types_mapper=None).astype(object)
        refused, labels = [], []
        for _ in range(len(frame)):
            while position in invalid:
                refused.append((position, invalid.pop(position)))
                position += 1
            labels.append(position)
            position += 1
        yield labels, frame, refused
    yield [], pd.DataFrame(), sorted(invalid.items())


def _json_chunks(path: Path, size: int) -> Iterator[Chunk]:
    def batches() -> Iterator[tuple[list[int], pd.DataFrame, list[tuple[int, str]]]]:
        records: list[dict[str, Any]] = []
        labels: list[int] = []
        refused: list[tuple[int, str]] = []
        with open(path, encoding="utf-8-sig") as stream:
            for position, line in enumerate(text for text in stream if text.strip()):
                try:
                    records.append(_record(line))
                except ValueError as error:
                    refused.append((position, f"the line is no JSON object ({error})"))
                    continue
                labels.append(position)
                if len(records) == 1024:
                    yield labels, pd.DataFrame(records, dtype=object), refused
                    records, labels, refused = [], [], []
        yield labels, pd.DataFrame(records, dtype=object), refused

    # A key may be absent from any one line, so the names are those of the whole file.
    names: dict[str, None] = {}
    for _, frame, refused in batches():
        names.update(dict.fromkeys(frame.columns))
        if refused and not names:
            raise DataError(
                f"{path}, row {refused[0][0]}: {refused[0][1]}, and none before it is one. Correct the file."
            )
    yield from _rechunk(batches(), list(names), size)


def _record(line: str) -> dict[str, Any]:
    """The JSON object of a line; raises ValueError where there is none, or none that can be written again."""
    try:
        record = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not an object")
    if "\\u" in line:  # half a surrogate pair is no text
        json.dumps(record, ensure_ascii=False).encode()
    return record


def _rechunk(
    batches: Iterable[tuple[list[int], pd.DataFrame, list[tuple[int, str]]]], names: Sequence[str], size: int
) -> Iterator[Chunk]:
    """Chunks of the size asked for, out of batches of any size; at least one, for the names."""
    empty = pd.DataFrame(columns=list(names), dtype=object)
    held, refused, n = [empty], [], 0
    first = True
    for labels, frame, bad in batches:
        refused += bad
        start = 0
        while start < len(frame):
            taken = frame.iloc[start : start + size - n].reindex(columns=list(names))
            taken.index = pd.Index(labels[start : start + len(taken)])
            held.append(taken)
            n += len(taken)
            start += len(taken)
            if n == size:
                yield Chunk(_joined(held), [one for one in refused if one[0] <= held[-1].index[-1]])
                refused = [one for one in refused if one[0] > held[-1].index[-1]]
                held, n, first = [empty], 0, False
    if n or refused or first:
        yield Chunk(_joined(held), refused)


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames[1:]) if len(frames) > 1 else frames[0]


def _parquet_chunks(path: Path, size: int, id_column: str | None) -> Iterator[Chunk]:
    pa, parquet = _pyarrow(), _pyarrow("parquet")
    position = 0
    with parquet.ParquetFile(path) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
        _check_names(path, schema.names)
        batches = file.iter_batches(batch_size=min(size, 1 << 20)) if n_rows else []
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        positions = _kept_range(schema, n_rows)
        for table in tables if n_rows else [schema.empty_table()]:
            frame = _with_numbers(table).to_pandas()
            if id_column is None and isinstance(frame.index, pd.RangeIndex):
                frame.index = positions[position : position + len(frame)]
            else:
                frame.index = _labels(table, frame, id_column)
            position += len(frame)
            yield Chunk(frame)


def _index_columns(schema: Any) -> list[Any]:
    """What pandas wrote of the index of a Parquet file: names of columns, or a range as a dict."""
    return list((schema.pandas_metadata or {}).get("index_columns", []))


def _kept_range(schema: Any, n_rows: int) -> pd.RangeIndex:
    """The range that a Parquet file keeps as the index of its rows, else their positions."""
    for index in _index_columns(schema):
        if isinstance(index, dict):
            kept = pd.RangeIndex(index["start"], index["stop"], index["step"])
            if len(kept) == n_rows:
                return kept
    return pd.RangeIndex(n_rows)


def _with_numbers(table: Any) -> Any:
    """An Arrow table whose decimals, as databases export them, are float64; pandas would make objects of them."""
    pa = _pyarrow()
    for place, column in enumerate(table.schema):
        if pa.types.is_decimal(column.type):
            # By way of their digits: Arrow's own cast misses the nearest number for one decimal in seven.
            table = table.set_column(place, column.name, table[place].cast(pa.string()).cast(pa.float64()))
    return table


def _labels(table: Any, frame: pd.DataFrame, id_column: str | None) -> pd.Index:
    """Labels of the rows, with all digits that the file has: pandas makes floats of whole numbers beside a gap."""
    pa = _pyarrow()
    kept = frame.index if id_column is None else pd.Index(frame[id_column])
    names = _index_columns(table.schema) if id_column is None else [id_column]
    if len(names) != 1 or names[0] not in table.schema.names:
        return kept
    column = table[names[0]]
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    elif not (pa.types.is_integer(column.type) and column.null_count):
        return kept
    labels: pd.Index = pd.Index(column.to_pandas(types_mapper=pd.ArrowDtype))
    return labels


def _check_names(path: Path, names: Sequence[str]) -> None:
    for name in names:
        if list(names).count(name) > 1:
            raise DataError(f"{path} has two columns {name!r}; rename one.")


def open_table(path: Path) -> Any:
    """Read an Arrow table that :func:`save_table` wrote."""
    pa = _pyarrow()
    with pa.OSFile(str(path), "rb") as source:
        return pa.ipc.open_file(source).read_all()


def save_table(path: Path, table: Any) -> None:
    """Write an Arrow table, whole or not at all."""
    pa = _pyarrow()
    with (
        atomically(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def _number(cell: object) -> int | float | None:
    """A cell as a number, None where it is missing; raises ValueError where it is neither."""
    if is_missing(cell):
        return None
    if isinstance(cell, (int, float, np.number)) and not isinstance(cell, bool):
        return cell  # type: ignore[return-value]
    text = str(cell).strip()
    if text.lower() in MISSING_WORDS:
        return None
    if isinstance(cell, (bool, np.bool_)) or "_" in text:
        raise ValueError(text)
    try:
        return int(text)
    except ValueError:
        return float(text)


def _numbers(column: pd.Series) -> tuple[pd.Series, dict[int, str]]:
    """A column as int64 or float64, and the cells that are no numbers."""
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        return column, {}
    pa = _pyarrow()
    for dtype in (pa.int64(), pa.float64()):
        try:
            return pd.Series(pa.array(column, pa.string()).cast(dtype).to_numpy(False), column.index), {}
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            continue
    cells: list[int | float | None] = []
    bad = {}
    for position, cell in enumerate(column):
        try:
            cells.append(_number(cell))
        except ValueError:
            cells.append(None)
            bad[position] = f"{cell!r}, which is no number"
    whole = all(isinstance(cell, (int, np.integer)) and abs(int(cell)) < 1 << 63 for cell in cells)
    values = np.array(cells, dtype=np.int64) if whole and cells else np.array(cells, dtype=float)
    return pd.Series(values, column.index), bad


def _is_nullable(dtype: Any) -> bool:
    """Whether a dtype of whole numbers or bools has room for a missing cell, as pandas' own and Arrow's do."""
    return isinstance(dtype, pd.api.extensions.ExtensionDtype)


def _whole(numbers: pd.Series) -> bool:
    """Whether every cell is a whole number, and none missing."""
    values = numbers.to_numpy(dtype=float, na_value=np.nan)
    return bool(np.isfinite(values).all() and (values == np.round(values)).all())


def _inferred(column: pd.Series) -> pd.Series:
    """A column of raw cells with the first dtype that all of them allow."""
    present = [cell for cell in column if not is_missing(cell)]
    if any(isinstance(cell, (dict, list)) for cell in present):
        return column
    if present and all(isinstance(cell, bool) or str(cell).strip().lower() in BOOLS for cell in present):
        booleans = [None if is_missing(cell) else BOOLS[str(cell).strip().lower()] for cell in column]
        return pd.Series(booleans, column.index, dtype=bool if len(present) == len(column) else object)
    numbers, bad = _numbers(column)
    if not bad:
        return numbers
    return pd.Series([None if is_missing(cell) else str(cell) for cell in column], column.index, dtype="str")


def _as_dtype(column: pd.Series, dtype: Any) -> tuple[pd.Series, dict[int, str]]:
    """A column as the background has it, and the cells that cannot be so."""
    if column.dtype == dtype:
        return column, {}
    if isinstance(dtype, pd.CategoricalDtype):
        cells, bad = _as_dtype(column, dtype.categories.dtype)
        # A category that the background lacks must stay what it is: as a missing value it would get another answer.
        unseen = [value for value in cells.dropna().unique() if value not in dtype.categories]
        categories = [*dtype.categories, *sorted(unseen, key=str)]
        return cells.astype(pd.CategoricalDtype(categories, dtype.ordered)), bad
    if pd.api.types.is_bool_dtype(dtype):
        booleans, bad = [], {}
        for position, cell in enumerate(column):
            known = None if is_missing(cell) else BOOLS.get(str(cell).strip().lower())
            if known is None and not is_missing(cell):
                bad[position] = f"{cell!r}, which is neither true nor false"
            booleans.append(known)
        whole = pd.Series(booleans, column.index, dtype=object)
        return (whole.astype(dtype) if _is_nullable(dtype) or not whole.isna().any() else whole), bad
    if pd.api.types.is_numeric_dtype(dtype):
        numbers, bad = _numbers(column)
        return (numbers if bad else numbers.astype(dtype)), bad
    cells = pd.Series([None if is_missing(cell) else str(cell) for cell in column], column.index, dtype=object)
    return cells.astype(dtype), {}


#: Columns that every result file has before those of the rows; the prefix keeps them apart from a user's own "status".
LINE_COLUMNS = (
    "macem_row",
    "macem_kind",
    "macem_status",
    "macem_prediction",
    "macem_probability",
    "macem_distance",
    "macem_n_changed",
    "macem_changed",
    "macem_n_queries",
    "macem_lower_bound",
    "macem_reason",
    "macem_details",
)


def line_schema(dtypes: Mapping[str, Any], classes: Sequence[Any], id_dtype: Any = None) -> Any:
    """Arrow schema of a result file.

    Parameters
    ----------
    dtypes : dict
        Of the rows' columns.
    classes : sequence of labels
    id_dtype : dtype, optional
        Of the rows' labels; whole numbers by default.
    """
    pa = _pyarrow()
    label = pa.array(np.asarray(classes).tolist()).type
    types = {
        "macem_row": _arrow_type(id_dtype if id_dtype is not None else np.dtype("int64")),
        "macem_prediction": label if pa.types.is_primitive(label) else pa.string(),
        "macem_n_changed": pa.int64(),
        "macem_n_queries": pa.int64(),
        **dict.fromkeys(["macem_probability", "macem_distance", "macem_lower_bound"], pa.float64()),
    }
    for name in dtypes:
        if name in LINE_COLUMNS:
            raise DataError(f"Column {name!r} has the name of a column of the results; rename it.")
    fields = [pa.field(name, types.get(name, pa.string())) for name in LINE_COLUMNS]
    schema = pa.schema([*fields, *(pa.field(str(name), _arrow_type(dtype)) for name, dtype in dtypes.items())])
    # Parquet would read an Int64 back as int64, had it no word of what pandas calls it.
    like = pd.DataFrame({str(name): pd.Series([], dtype=dtype) for name, dtype in dtypes.items()})
    return schema.with_metadata(pa.Schema.from_pandas(like, preserve_index=False).metadata)


def text_columns(schema: Any) -> list[str]:
    """Columns of a result file whose cells are texts, whatever they look like: a CSV file would not tell 007 from 7."""
    pa = _pyarrow()
    names = []
    for column in schema:
        kind = getattr(column.type, "value_type", column.type)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            names.append(column.name)
    return [name for name in names if name not in LINE_COLUMNS or name in ("macem_row", "macem_prediction")]


def _arrow_type(dtype: Any) -> Any:
    pa = _pyarrow()
    if isinstance(dtype, pd.CategoricalDtype):
        return pa.dictionary(pa.int32(), _arrow_type(dtype.categories.dtype), dtype.ordered)
    if dtype == np.dtype(object) or pd.api.types.is_string_dtype(dtype):
        return pa.string()
    return pa.Schema.from_pandas(pd.DataFrame({"column": pd.Series([], dtype=dtype)})).field("column").type


def lines(
    explanations: Iterable[Explanation],
    schema: Any,
    refused: Iterable[tuple[Any, str]] = (),
    words: Mapping[str, Any] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
) -> Any:
    """Results as an Arrow table: for each row a line of kind ``row``, then one per contrast; at last the errors.

    The cells of a line are the row's own, or those of the contrast, empty where none was found. Refused rows, and those
    that could not be explained, are lines of kind ``error`` with the reason. `words` is what
    :meth:`macem.results.Explanation.reason` takes, `levels` the categories of each categorical column in their order.
    """
    records: list[dict[str, Any]] = []
    values: list[Mapping[str, Any]] = []
    errors = [(label, reason) for label, reason in refused]
    for explanation in explanations:
        if explanation.error is not None:
            errors.append((explanation.index, explanation.error))
            continue
        shared = {"macem_row": explanation.index}
        records.append(
            {
                **shared,
                "macem_kind": "row",
                "macem_prediction": explanation.prediction,
                "macem_probability": explanation.probability,
                "macem_reason": explanation.reason(**(words or {})),
                "macem_details": _details(probabilities=_probabilities(explanation)),
            }
        )
        values.append(cells_of(explanation, "original"))
        for contrast in explanation.contrasts:
            records.append({**shared, **_contrast_record(explanation, contrast)})
            values.append(cells_of(contrast, "values"))
    if all(isinstance(label, (int, np.integer)) for label, _ in errors):
        errors.sort(key=lambda one: one[0])
    for label, reason in errors:
        records.append({"macem_row": label, "macem_kind": "error", "macem_reason": reason})
        values.append({})
    return _arrow_table(records, values, schema, levels or {})


def _contrast_record(explanation: Explanation, contrast: Contrast) -> dict[str, Any]:
    probability = cells_of(contrast, "probabilities").get(contrast.prediction) if contrast.found else None
    base = cells_of(explanation, "base")
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
        "macem_kind": contrast.kind,
        "macem_status": contrast.status.value,
        "macem_prediction": contrast.prediction,
        "macem_probability": None if probability is None else float(probability),
        "macem_distance": contrast.distance,
        "macem_n_changed": contrast.n_changed,
        "macem_changed": ", ".join(str(name) for name in contrast.ranked),
        "macem_n_queries": contrast.n_queries,
        "macem_lower_bound": contrast.lower_bound,
        "macem_details": _details(probabilities=_probabilities(contrast), changes=changes),
    }


def _arrow_table(
    records: list[dict[str, Any]], values: list[Mapping[str, Any]], schema: Any, levels: Mapping[str, Sequence[Any]]
) -> Any:
    pa = _pyarrow()
    columns = []
    for column in schema:
        if column.name in LINE_COLUMNS:
            cells = [record.get(column.name) for record in records]
        else:
            cells = [value[column.name] if value else None for value in values]
        cells = [None if is_missing(cell) else _plain(cell) for cell in cells]
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind):
            cells = [cell if cell is None else str(cell) for cell in cells]
        elif pa.types.is_integer(kind):
            # Arrow would cut 24.5 to 24 without a word.
            cells = [int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in cells]
            if any(isinstance(cell, float) for cell in cells):
                raise DataError(
                    f"Column {column.name!r} of whole numbers got a fraction; give the column a float dtype."
                )
        if kind is column.type:
            columns.append(pa.array(cells, kind))
            continue
        # The background's categories in their order, then what else the rows hold.
        known = [*levels.get(column.name, ()), *(cell for cell in cells if cell is not None)]
        places = {level: place for place, level in enumerate(dict.fromkeys(known))}
        codes = pa.array([places.get(cell) for cell in cells], pa.int32())
        columns.append(pa.DictionaryArray.from_arrays(codes, pa.array(places, kind), ordered=column.type.ordered))
    return pa.Table.from_arrays(columns, schema=schema)


def _plain(cell: Any) -> Any:
    """A numpy scalar as the Python value it stands for, a float32 by its own shortest digits; those of a tuple too."""
    if isinstance(cell, tuple):
        return tuple(_plain(inner) for inner in cell)
    if isinstance(cell, np.floating) and not isinstance(cell, float):
        return float(str(cell))
    return cell.item() if isinstance(cell, np.generic) else cell


def _probabilities(result: Explanation | Contrast) -> dict[str, Any] | None:
    return {str(label): _plain(value) for label, value in cells_of(result, "probabilities").items()} or None


def _details(**details: Any) -> str:
    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        value = None if is_missing(value) else _plain(value)
        return value if isinstance(value, (str, int, float, type(None))) else str(value)

    return json.dumps(plain(details), ensure_ascii=False, allow_nan=False)


def write_lines(path: Path, tables: Iterable[Any], schema: Any) -> None:
    """Write Arrow tables to one file, a table at a time; the format is that of the suffix. The file appears whole."""
    pa = _pyarrow()
    kind = format_of(path)
    with atomically(path) as temporary:
        if kind == "parquet":
            with _pyarrow("parquet").ParquetWriter(temporary, schema) as writer:
                for table in tables:
                    writer.write_table(table)
        elif kind == "csv":
            csv = _pyarrow("csv")
            flat = pa.schema([pa.field(f.name, getattr(f.type, "value_type", f.type)) for f in schema])
            with csv.CSVWriter(temporary, flat) as writer:
                for table in tables:
                    writer.write_table(table.cast(flat))
        else:
            with open(temporary, "w", encoding="utf-8") as stream:
                for table in tables:
                    for record in table.to_pylist():
                        if record.get("macem_details"):
                            record["macem_details"] = json.loads(record["macem_details"])
                        stream.write(json.dumps(record, ensure_ascii=False) + "\n")


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
    dtypes = {}
    if format_of(path) != "parquet":
        found = next(_raw_chunks(path, 1)).frame.columns
        dtypes = {name: "str" for name in provenance.get("texts", ()) if name in found}
    # A row has three lines at most: its own, a positive, a negative.
    frame = read_table(path, dtypes, limit=None if limit is None else 3 * limit)
    absent = [name for name in LINE_COLUMNS if name not in frame]
    if absent:
        raise DataError(f"{path} has no column {absent[0]!r}; give a file that `macem explain --output` wrote.")
    names = [name for name in frame.columns if name not in LINE_COLUMNS]
    with _undamaged(path):
        return Explanations(tuple(_rows_of(frame, names, provenance.get("target"), limit)), provenance)


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is damaged ({type(error).__name__}: {error}); give it as `macem explain` wrote it, whole."
        ) from error


def _rows_of(frame: pd.DataFrame, names: Sequence[str], target: Any, limit: int | None) -> list[Explanation]:
    """Explanations of the lines of a result file."""
    rows: list[Explanation] = []
    for line in frame.to_dict("records"):
        # A column of whole labels that is empty on some lines came back as floats.
        for label in ("macem_row", "macem_prediction"):
            if isinstance(line[label], float) and line[label].is_integer():
                line[label] = int(line[label])
        if line["macem_kind"] == "row":
            if limit is not None and len(rows) == limit:
                break
            rows.append(_row_of(line, names))
        else:
            rows[-1] = _with_contrast(rows[-1], line, names, target)
    return rows


def provenance_path(path: Path) -> Path:
    """Where the provenance of a result file stands: beside it."""
    return path.with_name(path.name + ".provenance.json")


def _read_details(line: Mapping[Any, Any]) -> dict[str, Any]:
    details = line["macem_details"]
    loaded: dict[str, Any] = json.loads(details) if isinstance(details, str) else details
    return loaded


def _row_of(line: Mapping[Any, Any], names: Sequence[str]) -> Explanation:
    original = pd.Series({name: line[name] for name in names}, name=line["macem_row"], dtype=object)
    probabilities = _read_details(line)["probabilities"]
    prediction = line["macem_prediction"]
    return Explanation(
        index=line["macem_row"],
        original=original,
        prediction=prediction,
        probabilities=None if probabilities is None else pd.Series(_labelled(probabilities, prediction)),
        base=pd.Series(None, index=original.index, dtype=object),
    )


def _labelled(probabilities: Mapping[str, float], prediction: Any) -> dict[Any, float]:
    """Probabilities by label; JSON made texts of the labels, which are of one type with the prediction."""
    return {_like(prediction, name): value for name, value in probabilities.items()}


def _like(prediction: Any, name: str) -> Any:
    """The label that a text stands for; whole numbers of 1.0 came back from CSV as 1."""
    if isinstance(prediction, (bool, np.bool_)):
        return name == "True"
    if isinstance(prediction, (int, float)):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(name)
    return name


def _with_contrast(explanation: Explanation, line: Mapping[Any, Any], names: Sequence[str], target: Any) -> Explanation:
    details = _read_details(line)
    status = Status(line["macem_status"])
    found = status is Status.FOUND
    base = explanation.base.copy()
    changes = {change["feature"]: (change["from"], change["to"]) for change in details["changes"]}
    for change in details["changes"]:
        base[change["feature"]] = change["base"]
    values = pd.Series({name: line[name] for name in names}, name=explanation.index, dtype=object)
    contrast = Contrast(
        kind=line["macem_kind"],
        status=status,
        values=values if found else None,
        changes=changes,
        importance=_kept(details["changes"], "importance", names),
        sensitivity=_kept(details["changes"], "sensitivity", names),
        prediction=line["macem_prediction"] if found else None,
        probabilities=pd.Series(_labelled(details["probabilities"], line["macem_prediction"])) if found else None,
        distance=None if is_missing(line["macem_distance"]) else float(line["macem_distance"]),
        n_changed=None if is_missing(line["macem_n_changed"]) else int(line["macem_n_changed"]),
        n_queries=int(line["macem_n_queries"]),
        lower_bound=None if is_missing(line["macem_lower_bound"]) else float(line["macem_lower_bound"]),
        reference=explanation.base if line["macem_kind"] == "positive" else explanation.original,
        target=target if line["macem_kind"] == "negative" else None,
    )
    if contrast.kind == "positive":
        return replace(explanation, base=base, positive=contrast)
    return replace(explanation, base=base, negative=contrast)


def _kept(changes: Sequence[Mapping[str, Any]], what: str, names: Sequence[str]) -> pd.Series:
    return pd.Series(
        {**dict.fromkeys(names, 0.0), **{change["feature"]: change[what] for change in changes}}, dtype=float
    )


def _pyarrow(module: str = "") -> ModuleType:
    try:
        return import_module(f"pyarrow.{module}" if module else "pyarrow")
    except ImportError as error:
        raise MacemError('Table files need pyarrow; install it with: pip install "macem[files]"') from error
