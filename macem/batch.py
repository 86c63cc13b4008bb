"""A night's batch: rows explained and written in chunks, in constant memory, so that a killed run can resume.

Each chunk becomes one file in a work folder beside the output, renamed into place once it is whole on the disk. When
the last is there they are joined into the output. Whatever ends a run early, the chunks that stand are never explained
again, and the joined output is byte for byte that of an uninterrupted run.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from macem.errors import DataError, MacemError, OptionError, OracleError
from macem.files import RowFile
from macem.result_files import (
    atomically,
    line_schema,
    lines,
    open_table,
    provenance_path,
    save_table,
    text_columns,
    write_lines,
)
from macem.results import Explanation

__all__ = ["FULL", "BatchError", "Outcome", "run"]

#: Errors of a disk that has no room.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class BatchError(MacemError, RuntimeError):
    """A batch that ended early; what stands is kept and can be resumed."""


class Explain(Protocol):
    """What a batch needs of an explainer."""

    def check(self, frame: pd.DataFrame) -> object:
        """Refuse a table that holds a bad row, with a DataError."""
        ...

    def explain(self, frame: pd.DataFrame) -> Any:
        """Explain a table of good rows."""
        ...

    def probe(self) -> object:
        """Ask the model about a row that it is known to answer."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What a batch wrote."""

    n_explained: int
    n_errors: int
    n_resumed: int
    n_queries: int
    seconds: float
    output: Path
    errors: Path | None


def run(
    explainer: Explain,
    rows: RowFile,
    output: Path,
    *,
    classes: Any,
    identity: Mapping[str, Any],
    chunk_rows: int = 500,
    resume: bool = False,
    progress: Callable[[int], object] = lambda n: None,
    words: Mapping[str, Any] | None = None,
) -> Outcome:
    """Explain a file of rows.

    Parameters
    ----------
    explainer : Explain
    rows : RowFile
    output : Path
        The result file; errors stand beside it in ``<output>.errors.csv``.
    classes : sequence of labels
    identity : dict
        What the results depend on (plain JSON); a run with another identity cannot resume this one.
    chunk_rows : int
        Rows per chunk: the most that a kill can lose.
    resume : bool
        Go on where an earlier run ended; without one, begin.
    progress : callable
        Called with the number of rows done since the last call.
    words : dict, optional
        What :meth:`macem.results.Explanation.reason` takes: `templates`, `names`, `labels`.

    Raises
    ------
    OptionError
        If there is an unfinished run and `resume` is False, if the run to resume was of another identity, or if it is
        still running.
    BatchError
        If the disk is full or the model does not answer any more; the run can be resumed.
    """
    if chunk_rows < 1:
        raise OptionError(f"chunk_rows={chunk_rows} is not a whole number of at least 1; give one.")
    started = time.perf_counter()
    identity = json.loads(json.dumps({**identity, "chunk_rows": chunk_rows}, default=str))
    folder = output.with_name(output.name + ".parts")
    errors = output.with_name(output.name + ".errors.csv")
    if folder.exists():
        if not folder.is_dir():
            raise OptionError(f"{folder} is a file, where chunks would be kept; move it, or name another output.")
        with _alone(folder):
            if not resume:
                raise OptionError(
                    f"{folder} holds an unfinished run; go on with it by --resume, or delete it to begin anew."
                )
    begun = _record(folder / "run.json")
    finished = _record(provenance_path(output)) if resume and output.is_file() else None
    if finished is not None and _other_setting(finished, identity) is None:
        # A kill may have come after the output was whole, and before the parts were gone.
        shutil.rmtree(folder, ignore_errors=True)
        counts = finished["counts"]
        return _outcome({**counts, "queries": 0}, counts["explained"], 0.0, output, errors)
    if begun is not None and (other := _other_setting(begun, identity)):
        way_out = "resume with the same, or delete the folder to begin anew"
        raise OptionError(f"{folder} holds a run with other settings ({other}); {way_out}.")
    if begun is None and finished is not None:
        other = _other_setting(finished, identity)
        way_out = "name another output, or leave --resume out to write it anew"
        raise OptionError(f"{output} is of a run with other settings ({other}); {way_out}.")
    schema = line_schema(rows.row_dtypes, classes, rows.label_dtype)
    parts: list[Path] = []
    n_resumed = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            with atomically(folder / "run.json") as temporary:
                temporary.write_text(json.dumps(identity, indent=1), encoding="utf-8")
            try:
                for number, chunk in enumerate(rows.chunks(chunk_rows)):
                    parts.append(part := folder / f"{number:08d}.arrow")
                    if part.exists():
                        n_resumed += _counted(open_table(part))["explained"]
                    else:
                        good = chunk.without(_faults(explainer, chunk.frame))
                        explained = _explained(explainer, good.frame)
                        save_table(part, lines(explained, schema, rows.row_dtypes, good.refused, words))
                    progress(len(chunk.frame) + len(chunk.refused))
            except MacemError:
                if not any(part.exists() for part in parts):  # nothing to resume, nor to keep another run from
                    shutil.rmtree(folder, ignore_errors=True)
                raise
            counts = _join(parts, output, errors, schema)
            seconds = time.perf_counter() - started
            provenance = {
                **identity,
                "texts": text_columns(schema),
                "counts": counts,
                "seconds": round(seconds, 3),
                "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            with atomically(provenance_path(output)) as temporary:
                temporary.write_text(json.dumps(provenance, indent=1, ensure_ascii=False), encoding="utf-8")
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise BatchError(
            f"The disk is full ({error}). Every chunk written so far is kept; make room and add --resume."
        ) from error
    shutil.rmtree(folder)
    return _outcome(counts, n_resumed, seconds, output, errors)


def _outcome(counts: Mapping[str, int], n_resumed: int, seconds: float, output: Path, errors: Path) -> Outcome:
    n_explained, n_errors, n_queries = (counts[name] for name in ("explained", "errors", "queries"))
    return Outcome(n_explained, n_errors, n_resumed, n_queries, seconds, output, errors if n_errors else None)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder; the system lets go of the lock when this process ends, even by a kill."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(folder / "lock", "a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            stream.seek(0)
            raise OptionError(
                f"{folder} is being written by another run ({stream.read()}); let it end, or name another output."
            ) from error
        except OSError:  # a file system without locks
            pass
        else:
            stream.truncate(0)
            stream.write(f"process {os.getpid()} on {socket.gethostname()}")
            stream.flush()
        yield


def _record(path: Path) -> dict[str, Any] | None:
    """What stands of a run in a file, None where there is none."""
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OptionError(f"{path} is damaged ({error}); delete it.") from error
    return record if isinstance(record, dict) else {}


def _other_setting(earlier: Mapping[str, Any], identity: Mapping[str, Any]) -> str | None:
    """What the results of a run depend on and an earlier one's did not, None where they are of one kind."""
    different = sorted(key for key in identity if earlier.get(key) != identity[key])
    return f"{different[0]}: then {earlier.get(different[0])!r}, now {identity[different[0]]!r}" if different else None


def _faults(explainer: Explain, frame: pd.DataFrame, start: int = 0) -> dict[int, str]:
    """Why the explainer refuses rows, by position; halves are asked, so good rows cost little."""
    try:
        if len(frame):
            explainer.check(frame)
    except DataError as error:
        if len(frame) == 1:
            return {start: str(error)}
        middle = len(frame) // 2
        first = _faults(explainer, frame.iloc[:middle], start)
        return first | _faults(explainer, frame.iloc[middle:], start + middle)
    return {}


def _explained(explainer: Explain, frame: pd.DataFrame) -> list[Explanation]:
    """Explain good rows; where the model failed, make sure that it is the row's fault and not the model's."""
    if frame.empty:
        return []
    try:
        explanations = list(explainer.explain(frame))
        if any(explanation.error is not None for explanation in explanations):
            explainer.probe()
    except OracleError as error:
        raise BatchError(
            f"The model does not answer any more: {error} Every chunk written so far is kept; see to the model and add "
            "--resume."
        ) from error
    return explanations


def _counted(table: Any) -> dict[str, int]:
    """What the lines of a table are, and the model calls that they took."""
    kinds = Counter(table["macem_kind"].to_pylist())
    queries = int(table["macem_n_queries"].to_pandas().sum())
    return {"explained": kinds["row"], "errors": kinds["error"], "queries": queries}


def _join(parts: list[Path], output: Path, errors: Path, schema: Any) -> dict[str, int]:
    """Join the parts into the output and the errors file, a part at a time."""
    counts: Counter[str] = Counter()
    bad: list[pd.DataFrame] = []

    def tables() -> Iterator[Any]:
        for part in parts:
            table = open_table(part)
            counts.update(_counted(table))
            failed = table["macem_kind"].to_numpy() == "error"
            if failed.any():
                refused = table.filter(failed).select(["macem_row", "macem_reason"])
                bad.append(refused.to_pandas(integer_object_nulls=True))
            yield table.filter(~failed)

    write_lines(output, tables(), schema)
    if bad:
        with atomically(errors) as temporary:
            pd.concat(bad).set_axis(["row", "reason"], axis=1).to_csv(temporary, index=False, lineterminator="\n")
    else:
        errors.unlink(missing_ok=True)
    return counts
