"""Tables in files: CSV, Parquet and JSON lines, read whole or in chunks. Needs pyarrow.

A text file carries no dtypes, so a column of one is read as whole numbers, numbers, bools or text, whichever is the
first that all its cells allow. An empty cell is missing; a quoted empty text (``""``) and words such as ``none`` are
categories like any other, and missing only in a column of numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from itertools import count, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from macem.errors import DataError, MacemError, OptionError
from macem.lazy import lazy
from macem.reasons import is_missing

__all__ = ["Chunk", "RowFile", "format_of", "head", "pyarrow", "read_table"]

FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".jsonl": "json", ".ndjson": "json"}
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


def pyarrow(module: str = "") -> ModuleType:
    """The library, or one of its modules; what needs none can be imported without it."""
    try:
        return import_module(f"pyarrow.{module}" if module else "pyarrow")
    except ImportError as error:
        raise MacemError('Table files need pyarrow; install it with: pip install "macem[files]"') from error


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file: those that can be read as a table, and the labels of the others with the reason."""

    frame: pd.DataFrame
    refused: list[tuple[Any, str]] = field(default_factory=list)

    def without(self, faults: Mapping[int, str]) -> Chunk:
        """The chunk in which the rows at these positions are refused, too."""
        if not faults:
            return self
        refused = [(self.frame.index[position], fault) for position, fault in sorted(faults.items())]
        return Chunk(_others(self.frame, faults), [*self.refused, *refused])


def _others(rows: Any, positions: Collection[int]) -> Any:
    """The rows of a table or column that are not at these positions."""
    return rows.iloc[np.delete(np.arange(len(rows)), list(positions))]


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
    path, dtypes = Path(path), dtypes or {}
    frames, n = [], 0
    for chunk in _raw_chunks(path, 1 << 30 if limit is None else max(limit, 1)):
        for label, reason in chunk.refused:
            raise DataError(f"{path}, row {label}: {reason}. Correct the file.")
        frames.append(chunk.frame)
        n += len(chunk.frame)
        if limit is not None and n >= limit:
            break
    frame = pd.concat(frames).iloc[:limit]
    for name in dtypes:
        if name not in frame:
            raise OptionError(f"dtypes names {name!r}, which {path} does not hold; it has {list(frame.columns)}.")
    columns = dict(frame.items())
    if format_of(path) != "parquet":
        columns |= {name: _inferred(column) for name, column in columns.items() if name not in dtypes}
    columns |= {name: _given_dtype(columns[name], dtype) for name, dtype in dtypes.items()}
    return pd.DataFrame(columns, index=frame.index)


def head(path: Path, id_column: str | None = None) -> pd.DataFrame:
    """The first row as the file has it, none of a file without rows: for the names, and for the labels' dtype."""
    return next(_raw_chunks(path, 1, id_column)).frame


class RowFile:
    """The rows to explain: a file read in chunks, each with the columns and dtypes of the background.

    Parameters
    ----------
    path : path
    background : DataFrame
        Its columns are read, in its order, with its dtypes; a column of whole numbers widens where a row has a
        fraction, a number that the dtype cannot hold, or none.
    id_column : str, optional
        A column that names the rows; by default their position, or the index that a Parquet file keeps.
    """

    def __init__(self, path: str | Path, background: pd.DataFrame, id_column: str | None = None) -> None:
        self.path, self.id_column = Path(path), id_column
        self._background_dtypes = dict(background.dtypes)
        found = list(head(self.path))
        if id_column is not None and id_column not in found:
            raise DataError(f"{path} has no column {id_column!r} to name the rows by (it has {found}); name another.")
        missing = [name for name in background if name not in found]
        if missing:
            raise DataError(
                f"{path} has no column {missing[0]!r}, which the background has (it has {found}); "
                f"add it, or drop it from the background if the model does not take it (--drop {missing[0]})."
            )

    @property
    def n_rows(self) -> int:
        """Number of rows, refused ones included."""
        return self._scanned[0]

    @property
    def row_dtypes(self) -> dict[str, Any]:
        """Dtype of each column over the whole file, so that no row's form depends on its neighbours."""
        return self._scanned[1]

    @lazy
    def _scanned(self) -> tuple[int, dict[str, Any]]:
        n_rows, dtypes = 0, dict(self._background_dtypes)
        for chunk in _raw_chunks(self.path, 1 << 11):
            n_rows += len(chunk.frame) + len(chunk.refused)
            for name, dtype in dtypes.items():
                if pd.api.types.is_integer_dtype(dtype):
                    numbers, faults = _numbers(chunk.frame[name])
                    if not _fit(_others(numbers, faults), dtype):
                        dtypes[name] = pd.Float64Dtype() if _is_nullable(dtype) else np.dtype(float)
        return n_rows, dtypes

    @lazy
    def label_dtype(self) -> Any:
        """Dtype of the rows' labels: positions, or the texts or values of the id column or of a Parquet index."""
        if format_of(self.path) == "parquet":
            return head(self.path, self.id_column).index.dtype
        return np.dtype(object if self.id_column else "int64")

    def chunks(self, size: int) -> Iterator[Chunk]:
        """Read the rows, so many at a time."""
        for raw in _raw_chunks(self.path, size, self.id_column):
            table, faults = self._typed(raw.frame)
            if faults:
                raw = raw.without(faults)
                table, _ = self._typed(raw.frame)
            yield Chunk(table, raw.refused)

    def _typed(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[int, str]]:
        """The columns of the background in their dtypes, and what is wrong with a row, by position."""
        columns: dict[str, pd.Series] = {}
        faults: dict[int, str] = {}
        for name, dtype in self.row_dtypes.items():
            columns[name], bad = _as_dtype(frame[name], dtype)
            for position, fault in bad.items():
                faults.setdefault(position, f"column {name!r} holds {fault}")
        return pd.DataFrame(columns, index=frame.index), faults


def _raw_chunks(path: Path, size: int, id_column: str | None = None) -> Iterator[Chunk]:
    """Cells as the file has them: text from CSV, values from JSON lines, typed columns from Parquet; at least one."""
    if not path.is_file():
        raise DataError(f"There is no file {path}; check the path.")
    kind = format_of(path)
    try:
        if kind == "parquet":
            yield from _parquet_chunks(path, size, id_column)
            return
        _check_encoding(path)
        names, batches = _csv_batches(path) if kind == "csv" else _json_batches(path)
        for chunk in _rechunked(batches, names, size):
            if id_column is not None:
                chunk.frame.index = pd.Index(_texts(chunk.frame[id_column], object))
                # A line that cannot be read has no id.
                chunk = Chunk(chunk.frame, [(f"row {position}", reason) for position, reason in chunk.refused])
            yield chunk
    except pyarrow().ArrowInvalid as error:
        if "straddling object" in str(error):
            raise DataError(
                f"{path} has a row of more than a megabyte, as a quote that is never closed makes one; close it, or "
                "shorten the row."
            ) from error
        raise DataError(f"{path} cannot be read ({error}); check that its suffix tells its format.") from error


def _check_encoding(path: Path) -> None:
    """Refuse a text file that is not UTF-8: Arrow would say so late, on stderr, or not at all."""
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                place = stream.tell() - len(line) + error.start
                raise DataError(
                    f"{path} is not UTF-8: its line {number} has the byte {line[error.start]:#04x} (byte {place} of "
                    "the file); save it as UTF-8, and check that its suffix tells its format."
                ) from error


def _check_names(path: Path, names: Sequence[str]) -> None:
    for name, n in Counter(names).items():
        if n > 1:
            raise DataError(f"{path} has two columns {name!r}; rename one.")


def _csv_batches(path: Path) -> tuple[list[str], Iterator[Chunk]]:
    """Names of the columns, and the rows by their positions, as Arrow comes by them."""
    pa, csv = pyarrow(), pyarrow("csv")
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

    def batches() -> Iterator[Chunk]:
        positions = (position for position in count() if position not in invalid)
        n_told = 0
        for batch in reader:
            frame = batch.to_pandas().astype(object)
            frame.index = pd.Index(list(islice(positions, len(frame))), dtype="int64")
            yield Chunk(frame, list(invalid.items())[n_told:])
            n_told = len(invalid)
        yield Chunk(pd.DataFrame(), list(invalid.items())[n_told:])

    return names, batches()


def _json_batches(path: Path) -> tuple[list[str], Iterator[Chunk]]:
    """Names of the columns, and the rows by their positions."""

    def batches() -> Iterator[Chunk]:
        with open(path, encoding="utf-8-sig") as stream:
            numbered = enumerate(line for line in stream if line.strip())
            while some := list(islice(numbered, 1024)):
                records, refused = {}, []
                for position, line in some:
                    try:
                        records[position] = _record(line)
                    except ValueError as error:
                        refused.append((position, f"the line is no JSON object ({error})"))
                index = pd.Index(list(records), dtype="int64")
                yield Chunk(pd.DataFrame(list(records.values()), index, dtype=object), refused)

    # A key may be absent from any one line, so the names are those of the whole file.
    names: dict[str, None] = {}
    for chunk in batches():
        names.update(dict.fromkeys(chunk.frame.columns))
        if chunk.refused and not names:
            position, reason = chunk.refused[0]
            raise DataError(f"{path}, row {position}: {reason}, and none before it is one. Correct the file.")
    return list(names), batches()


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


def _rechunked(batches: Iterable[Chunk], names: Sequence[str], size: int) -> Iterator[Chunk]:
    """Chunks of so many rows, each with the lines refused before its last row; at least one, for the names."""
    held = [pd.DataFrame(columns=list(names), index=pd.Index([], dtype="int64"), dtype=object)]
    refused: list[tuple[Any, str]] = []
    n, is_first = 0, True
    for batch in batches:
        refused += batch.refused
        if len(batch.frame):
            held.append(batch.frame.reindex(columns=list(names)))
            n += len(batch.frame)
        if n >= size:
            rows = pd.concat(held)
            for start in range(0, n - size + 1, size):
                frame = rows.iloc[start : start + size]
                last = frame.index[-1]
                yield Chunk(frame, [one for one in refused if one[0] <= last])
                refused = [one for one in refused if one[0] > last]
            held, n, is_first = [rows.iloc[n - n % size :]], n % size, False
    if n or refused or is_first:
        yield Chunk(pd.concat(held), refused)


def _parquet_chunks(path: Path, size: int, id_column: str | None) -> Iterator[Chunk]:
    pa, parquet = pyarrow(), pyarrow("parquet")
    with parquet.ParquetFile(path) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
        _check_names(path, schema.names)
        positions = _kept_range(schema, n_rows)
        batches = file.iter_batches(min(size, 1 << 20)) if n_rows else [pa.RecordBatch.from_pylist([], schema)]
        start = 0
        for batch in batches:
            table = pa.Table.from_batches([batch])
            frame = _with_numbers(table).to_pandas()
            frame.columns = pd.Index([str(name) for name in frame])  # pandas reads back numbers and tuples
            if id_column is None and isinstance(frame.index, pd.RangeIndex):
                frame.index = positions[start : start + len(frame)]
            else:
                frame.index = _labels(table, frame, id_column)
            start += len(frame)
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
    pa = pyarrow()
    for place, column in enumerate(table.schema):
        if pa.types.is_decimal(column.type):
            # By way of their digits: Arrow's own cast misses the nearest number for one decimal in seven.
            table = table.set_column(place, column.name, table[place].cast(pa.string()).cast(pa.float64()))
    return table


def _labels(table: Any, frame: pd.DataFrame, id_column: str | None) -> pd.Index:
    """Labels of the rows, with all digits that the file has: pandas makes floats of whole numbers beside a gap."""
    pa = pyarrow()
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


def _inferred(column: pd.Series) -> pd.Series:
    """A column of raw cells with the first dtype that all of them allow."""
    if any(isinstance(cell, (dict, list)) for cell in column):
        return column
    for read in (_numbers, _booleans):
        cells, faults = read(column)
        if not faults:
            return cells
    return _texts(column, "str")


def _given_dtype(column: pd.Series, name: str) -> pd.Series:
    """A column of raw cells in the dtype that the user names."""
    try:
        dtype = pd.api.types.pandas_dtype(name)
        if isinstance(dtype, pd.CategoricalDtype):
            return column.astype(dtype)
        cells, faults = _as_dtype(column, dtype)
        for fault in faults.values():
            raise ValueError(f"it holds {fault}")
        if pd.api.types.is_numeric_dtype(dtype) and cells.dtype != dtype:
            raise ValueError("it has a cell that is empty, or a number that does not fit")
        return cells
    except (NotImplementedError, SyntaxError, TypeError, ValueError) as error:
        raise OptionError(f"dtypes: column {column.name!r} cannot be {name!r} ({error}); choose another.") from error


def _as_dtype(column: pd.Series, dtype: Any) -> tuple[pd.Series, dict[int, str]]:
    """A column as the background has it, and the cells that cannot be so.

    Numbers that a dtype of whole numbers does not hold, and bools beside a gap, stay what they are.
    """
    if column.dtype == dtype:
        return column, {}
    if isinstance(dtype, pd.CategoricalDtype):
        cells, faults = _as_dtype(column, dtype.categories.dtype)
        # A category that the background lacks must stay what it is: as a missing value it would get another answer.
        unseen = [value for value in cells.dropna().unique() if value not in dtype.categories]
        categories = [*dtype.categories, *sorted(unseen, key=str)]
        return cells.astype(pd.CategoricalDtype(categories, dtype.ordered)), faults
    if pd.api.types.is_bool_dtype(dtype):
        return _booleans(column, dtype)
    if pd.api.types.is_numeric_dtype(dtype):
        numbers, faults = _numbers(column)
        fit = not faults and (not pd.api.types.is_integer_dtype(dtype) or _fit(numbers, dtype))
        return (numbers.astype(dtype) if fit else numbers), faults
    return _texts(column, dtype), {}


def _is_nullable(dtype: Any) -> bool:
    """Whether a dtype of whole numbers or bools has room for a missing cell, as pandas' own and Arrow's do."""
    return isinstance(dtype, pd.api.extensions.ExtensionDtype)


def _fit(numbers: pd.Series, dtype: Any) -> bool:
    """Whether a dtype of whole numbers holds all these numbers as they are."""
    # An error: a gap, or a number that pandas itself would not cut.
    with suppress(OverflowError, TypeError, ValueError), np.errstate(invalid="ignore"):
        return bool(numbers.dtype == dtype or (numbers.astype(dtype) == numbers).all())
    return False


def _numbers(column: pd.Series) -> tuple[pd.Series, dict[int, str]]:
    """A column as int64 or float64, and the cells that are no numbers."""
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        return column, {}
    pa = pyarrow()
    try:
        texts = pa.array(column, pa.string())
        numbers = texts.cast(pa.float64())
        # In this order: among whole numbers, Arrow takes 0x10 for one.
        with suppress(pa.ArrowInvalid):
            numbers = texts.cast(pa.int64())
        return pd.Series(numbers.to_numpy(zero_copy_only=False), column.index), {}
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass
    cells: list[int | float | None] = []
    faults = {}
    for position, cell in enumerate(column):
        try:
            cells.append(_number(cell))
        except ValueError:
            cells.append(None)
            faults[position] = f"{cell!r}, which is no number"
    whole = all(isinstance(cell, int) for cell in cells)
    return pd.Series(np.array(cells, dtype=np.int64 if whole else float), column.index), faults


def _number(cell: object) -> int | float | None:
    """A cell as a number, whole where an int64 holds it, None where it is missing; raises ValueError for others."""
    if is_missing(cell):
        return None
    if isinstance(cell, float):
        return cell
    text = str(cell).strip()
    if text.lower() in MISSING_WORDS:
        return None
    if isinstance(cell, bool) or "_" in text:
        raise ValueError(text)
    try:
        number = int(text)
    except ValueError:
        return float(text)
    return number if abs(number) < 1 << 63 else float(text)


def _booleans(column: pd.Series, dtype: Any = bool) -> tuple[pd.Series, dict[int, str]]:
    """A column as bools, and the cells that are none; one with gaps is of objects where the dtype has no room."""
    cells, faults = [], {}
    for position, cell in enumerate(column):
        truth = BOOLS.get(str(cell).strip().lower())
        if truth is None and not is_missing(cell):
            faults[position] = f"{cell!r}, which is neither true nor false"
        cells.append(truth)
    room = _is_nullable(dtype) or None not in cells
    return pd.Series(cells, column.index, dtype=dtype if room else object), faults


def _texts(column: pd.Series, dtype: Any) -> pd.Series:
    return pd.Series([None if is_missing(cell) else str(cell) for cell in column], column.index, dtype=dtype)
