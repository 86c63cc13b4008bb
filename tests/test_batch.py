"""A night's batch: chunks, errors, kills and resumptions."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from macem import batch, files
from macem.errors import OptionError
from tests.hand_made import CLASSES, ThresholdExplainer, rows

pytest.importorskip("pyarrow")

IDENTITY = {"model": "threshold"}


def write(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    return path


def run(source: Path, output: Path, explainer: Any = None, *, chunk_rows: int = 10, **options: Any) -> batch.Outcome:
    return batch.run(
        explainer or ThresholdExplainer(),
        files.RowFile(source, rows(50)),
        output,
        classes=CLASSES,
        identity=IDENTITY,
        chunk_rows=chunk_rows,
        **options,
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_writes_a_line_per_row_and_contrast(tmp_path: Path, suffix: str) -> None:
    source = write(rows(25), tmp_path / f"rows{suffix}")
    outcome = run(source, tmp_path / f"out{suffix}")
    assert (outcome.n_explained, outcome.n_errors, outcome.n_queries) == (25, 0, 25 * 240)
    table = files.read_table(outcome.output)
    assert list(table["macem_kind"]) == ["row", "positive", "negative"] * 25
    own = table[table["macem_kind"] == "row"].reset_index(drop=True)
    expected = rows(25).assign(purpose=own["purpose"]) if suffix == ".csv" else rows(25)
    pd.testing.assert_frame_equal(own[list(expected)], expected, check_dtype=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"rows{suffix}", f"out{suffix}", f"out{suffix}.provenance.json"]
    )


KILLED = """
import sys
from pathlib import Path
from macem import batch, files
from tests.hand_made import CLASSES, ThresholdExplainer, rows
source, output, log, kill_after = sys.argv[1:]
batch.run(
    ThresholdExplainer(kill_after=int(kill_after), log=log), files.RowFile(source, rows(50)), Path(output),
    classes=CLASSES, identity={"model": "threshold"}, chunk_rows=10, resume=True,
)
"""


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_killed_and_resumed_is_byte_for_byte_the_same(tmp_path: Path, suffix: str) -> None:
    source = write(rows(75), tmp_path / f"rows{suffix}")
    whole = run(source, tmp_path / f"whole{suffix}").output
    output, log = tmp_path / f"killed{suffix}", tmp_path / "log"
    command = [sys.executable, "-c", KILLED, str(source), str(output), str(log)]
    for kill_after in (13, 30, 5):
        killed = subprocess.run([*command, str(kill_after)], cwd=Path(__file__).parents[1], check=False)
        assert killed.returncode == -9
        assert not output.exists()
    subprocess.run([*command, "1000"], cwd=Path(__file__).parents[1], check=True)
    assert output.read_bytes() == whole.read_bytes()
    # What was explained before the last whole chunk is never explained again: 10, 30 and 0 rows stood after the kills.
    explained = [int(line) for line in log.read_text().split()]
    assert explained == [*range(13), *range(10, 40), *range(40, 45), *range(40, 75)]
