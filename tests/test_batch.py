"""A night's batch: chunks, errors, kills and resumptions."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from macem import batch, files, result_files
from macem.errors import MacemError, OptionError, OracleError
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


def test_bad_rows_are_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    frame = rows(30)
    frame.loc[4, "amount"] = -1.0
    frame.loc[17, "age"] = 95
    source = write(frame, tmp_path / "rows.csv")
    lines = source.read_text().splitlines()
    lines[1 + 9] += ",one too many"
    lines[1 + 12] = lines[1 + 12].replace(lines[1 + 12].split(",")[0], "twelve", 1)
    source.write_text("\n".join(lines) + "\n")
    outcome = run(source, tmp_path / "out.csv")
    assert (outcome.n_explained, outcome.n_errors) == (26, 4)
    assert outcome.errors is not None
    errors = pd.read_csv(outcome.errors).set_index("row")["reason"]
    assert sorted(errors.index) == [4, 9, 12, 17]
    for label, words in {4: "below zero", 9: "5 fields", 12: "'twelve', which is no number", 17: "too old"}.items():
        assert words in errors[label]
    table = files.read_table(outcome.output)
    assert sorted(set(range(30)) - set(table["macem_row"])) == [4, 9, 12, 17]


def test_a_dead_model_ends_the_run_and_it_resumes(tmp_path: Path) -> None:
    source = write(rows(40), tmp_path / "rows.csv")
    whole = run(source, tmp_path / "whole.csv").output
    with pytest.raises(batch.BatchError, match=r"does not answer any more: no connection.*--resume"):
        run(source, tmp_path / "out.csv", ThresholdExplainer(dead_after=25))
    outcome = run(source, tmp_path / "out.csv", resume=True)
    assert outcome.n_resumed == 20
    assert outcome.output.read_bytes() == whole.read_bytes()


def test_refused_rows_are_none_of_those_explained_earlier(tmp_path: Path) -> None:
    frame = rows(20)
    frame.loc[3, "amount"] = -1.0
    source = write(frame, tmp_path / "rows.csv")
    with pytest.raises(batch.BatchError):
        run(source, tmp_path / "out.csv", ThresholdExplainer(dead_after=12))
    for n_resumed in (9, 19):  # in the first chunk, and in the finished run
        outcome = run(source, tmp_path / "out.csv", resume=True)
        assert (outcome.n_explained, outcome.n_errors, outcome.n_resumed) == (19, 1, n_resumed)
        assert outcome.errors == tmp_path / "out.csv.errors.csv"


def test_a_full_disk_ends_the_run_and_it_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(rows(40), tmp_path / "rows.csv")
    save, saved = result_files.save_table, []

    def full(path: Path, table: Any) -> None:
        if len(saved) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        saved.append(path)
        save(path, table)

    with monkeypatch.context() as patch:
        patch.setattr(batch, "save_table", full)
        with pytest.raises(batch.BatchError, match="disk is full"):
            run(source, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    assert run(source, tmp_path / "out.csv", resume=True).n_resumed == 20


def test_an_unfinished_run_is_not_overwritten(tmp_path: Path) -> None:
    source = write(rows(40), tmp_path / "rows.csv")
    with pytest.raises(batch.BatchError):
        run(source, tmp_path / "out.csv", ThresholdExplainer(dead_after=15))
    with pytest.raises(OptionError, match="unfinished run"):
        run(source, tmp_path / "out.csv")
    with pytest.raises(OptionError, match=r"other settings \(chunk_rows"):
        run(source, tmp_path / "out.csv", chunk_rows=7, resume=True)


def test_two_runs_do_not_write_one_output(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    source = write(rows(20), tmp_path / "rows.csv")
    refused = []

    class Meanwhile(ThresholdExplainer):
        def explain(self, frame: pd.DataFrame) -> Any:
            for resume in (False, True):
                with pytest.raises(
                    OptionError, match=rf"being written by another run \(process {os.getpid()} on "
                ) as told:
                    run(source, tmp_path / "out.csv", resume=resume)
                refused.append(told)
            return super().explain(frame)

    for _ in range(2):  # without an earlier output, and with one
        assert run(source, tmp_path / "out.csv", Meanwhile()).n_explained == 20
    assert len(refused) == 8
    (tmp_path / "out.csv").unlink()
    # Nothing is left of the lock, neither now nor where a run has ended.
    with pytest.raises(batch.BatchError):
        run(source, tmp_path / "out.csv", ThresholdExplainer(dead_after=15))
    assert run(source, tmp_path / "out.csv", resume=True).n_resumed == 10


def test_without_locks_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    assert run(write(rows(20), tmp_path / "rows.csv"), tmp_path / "out.csv").n_explained == 20


def test_labels_are_plain_values_in_every_file(tmp_path: Path) -> None:
    frame = rows(6)
    frame["amount"] = frame["amount"].where(frame.index % 3 != 0, -1.0)
    frame["key"] = pd.array([None, None, 2**53 + 1, 4, 5, 6], dtype="Int64")
    source = write(frame, tmp_path / "rows.parquet")
    known = files.RowFile(source, rows(50), "key")
    outcome = batch.run(ThresholdExplainer(), known, tmp_path / "out.csv", classes=CLASSES, identity=IDENTITY)
    text = outcome.output.read_text()
    assert [line.partition(",")[0] for line in text.splitlines()[1::3]] == ["", "9007199254740993", "5", "6"]
    assert outcome.errors is not None
    assert [line.partition(",")[0] for line in outcome.errors.read_text().splitlines()] == ["row", "", "4"]

    pairs = pd.MultiIndex.from_product([["a", "b"], [1, 2, 3]])
    source = write(rows(6).set_axis(pairs), tmp_path / "rows.parquet")
    labels = files.read_table(run(source, tmp_path / "pairs.csv").output)["macem_row"]
    assert list(labels.unique()) == [str(pair) for pair in [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]]


def test_texts_that_look_like_numbers_are_read_back_as_texts(tmp_path: Path) -> None:
    known = rows(50).assign(purpose=[["007", "1e5", "TRUE", "1.50"][place % 4] for place in range(50)])
    known["purpose"] = known["purpose"].astype("category")
    source = write(known.head(8).assign(key=[f"0{place}" for place in range(8)]), tmp_path / "rows.parquet")
    for suffix in (".csv", ".parquet", ".jsonl"):
        output = tmp_path / f"out{suffix}"
        batch.run(
            ThresholdExplainer(),
            files.RowFile(source, known, "key"),
            output,
            classes=["0", "1"],
            identity=IDENTITY,
        )
        back = result_files.read_explanations(output)
        assert [one.original["purpose"] for one in back] == known["purpose"].tolist()[:8]
        assert [one.index for one in back] == [f"0{place}" for place in range(8)]


def test_a_file_in_the_place_of_the_parts_is_named(tmp_path: Path) -> None:
    source = write(rows(20), tmp_path / "rows.csv")
    (tmp_path / "out.csv.parts").touch()
    with pytest.raises(OptionError, match=r"out\.csv\.parts is a file, where chunks would be kept; move it"):
        run(source, tmp_path / "out.csv", resume=True)


@pytest.mark.parametrize("error", [OptionError("kinds=['neg']"), OracleError("no connection")])
def test_a_run_that_ends_with_nothing_done_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    class Refusing(ThresholdExplainer):
        def explain(self, frame: pd.DataFrame) -> Any:
            raise error

    source = write(rows(20), tmp_path / "rows.csv")
    with pytest.raises(MacemError):
        run(source, tmp_path / "out.csv", Refusing())
    assert list(tmp_path.iterdir()) == [source]
    with pytest.raises(batch.BatchError):
        run(source, tmp_path / "out.csv", ThresholdExplainer(dead_after=15))
    with pytest.raises(MacemError):
        run(source, tmp_path / "out.csv", Refusing(), resume=True)
    assert run(source, tmp_path / "out.csv", resume=True).n_resumed == 10


def test_resuming_a_finished_run_does_nothing(tmp_path: Path) -> None:
    source = write(rows(20), tmp_path / "rows.csv")
    first = run(source, tmp_path / "out.csv")
    before = first.output.stat().st_mtime_ns
    dead = ThresholdExplainer(dead_after=0)
    assert run(source, tmp_path / "out.csv", dead, resume=True).n_resumed == 20
    assert first.output.stat().st_mtime_ns == before


def test_a_finished_run_of_other_settings_is_not_written_over(tmp_path: Path) -> None:
    source = write(rows(20), tmp_path / "rows.csv")
    before = run(source, tmp_path / "out.csv", chunk_rows=5).output.read_bytes()
    with pytest.raises(OptionError, match=r"out\.csv is of a run with other settings \(chunk_rows: then 5, now 6\)"):
        run(source, tmp_path / "out.csv", chunk_rows=6, resume=True)
    assert (tmp_path / "out.csv").read_bytes() == before
    assert not (tmp_path / "out.csv.parts").exists()
    assert run(source, tmp_path / "out.csv", chunk_rows=6).n_resumed == 0


def test_a_run_over_a_finished_one_resumes_where_it_was_killed(tmp_path: Path) -> None:
    source = write(rows(20), tmp_path / "rows.csv")
    run(source, tmp_path / "out.csv", chunk_rows=5)
    with pytest.raises(batch.BatchError):
        run(source, tmp_path / "out.csv", ThresholdExplainer(dead_after=15), chunk_rows=6)
    assert run(source, tmp_path / "out.csv", chunk_rows=6, resume=True).n_resumed == 12


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_record_is_told_or_is_of_another_run(tmp_path: Path, text: str) -> None:
    source = write(rows(20), tmp_path / "rows.csv")
    run(source, tmp_path / "out.csv")
    (tmp_path / "out.csv.provenance.json").write_text(text, encoding="utf-8")
    with pytest.raises(OptionError, match=r"out\.csv"):
        run(source, tmp_path / "out.csv", resume=True)


def test_a_kill_while_the_folder_is_removed_explains_nothing_again(tmp_path: Path) -> None:
    source = write(rows(20), tmp_path / "rows.csv")
    whole = run(source, tmp_path / "whole.csv").output.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch.shutil, "rmtree", lambda folder, **_: (folder / "00000000.arrow").unlink())
        run(source, tmp_path / "out.csv")
    run(source, tmp_path / "out.csv", ThresholdExplainer(dead_after=0), resume=True)
    assert (tmp_path / "out.csv").read_bytes() == whole
    assert not (tmp_path / "out.csv.parts").exists()


def test_chunks_do_not_change_the_output(tmp_path: Path) -> None:
    frame = rows(33)
    frame["age"] = frame["age"].astype(float)
    frame.loc[20, "age"] = float("nan")
    source = write(frame, tmp_path / "rows.csv")
    outputs = {run(source, tmp_path / f"{size}.csv", chunk_rows=size).output.read_bytes() for size in (1, 10, 100)}
    assert len(outputs) == 1


def test_no_rows(tmp_path: Path) -> None:
    source = write(rows(0), tmp_path / "rows.csv")
    outcome = run(source, tmp_path / "out.parquet")
    assert outcome.n_explained == 0
    assert "macem_row" in files.read_table(outcome.output)


def test_results_read_back(tmp_path: Path) -> None:
    source = write(rows(6), tmp_path / "rows.csv")
    for suffix in (".csv", ".parquet", ".jsonl"):
        back = result_files.read_explanations(run(source, tmp_path / f"out{suffix}").output)
        assert len(back) == 6
        assert back.provenance["counts"] == {"explained": 6, "errors": 0, "queries": 1440}
        fresh = ThresholdExplainer().explain(next(files.RowFile(source, rows(50)).chunks(10)).frame)
        assert [one.reason() for one in back] == [one.reason() for one in fresh]
        assert json.dumps(str(back)) == json.dumps(str(fresh))
        for one in back:
            assert one.positive is not None
            assert one.positive.reference["duration"] == fresh[0].base["duration"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_labels_may_be_dates(tmp_path: Path, suffix: str) -> None:
    source = write(rows(3).set_axis(pd.date_range("2026-11-01", periods=3)), tmp_path / "rows.parquet")
    back = result_files.read_explanations(run(source, tmp_path / f"out.{suffix}").output)
    assert [str(one.index)[:10] for one in back] == ["2026-11-01", "2026-11-02", "2026-11-03"]


def test_categories_keep_their_order_and_their_unused_levels(tmp_path: Path) -> None:
    levels = ["used car", "radio/tv", "new car", 'a "quoted", one', ""]
    frame = rows(25).astype({"purpose": pd.CategoricalDtype(levels, ordered=True)})
    source = write(frame, tmp_path / "rows.parquet")
    output = tmp_path / "out.parquet"
    batch.run(
        ThresholdExplainer(), files.RowFile(source, frame), output, classes=CLASSES, identity=IDENTITY, chunk_rows=10
    )
    table = pd.read_parquet(output)
    assert table["purpose"].dtype == frame["purpose"].dtype
    own = table.loc[table["macem_kind"] == "row", "purpose"].reset_index(drop=True)
    assert own.tolist() == frame["purpose"].tolist()


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_dtypes_that_know_missing_cells_are_kept(tmp_path: Path, suffix: str) -> None:
    frame = rows(25)
    frame["duration"] = pd.array([None, *frame["duration"][1:]], dtype="Int64")
    frame["amount"] = frame["amount"].astype("Float64")
    frame["age"] = frame["age"].astype("Int16")
    frame["purpose"] = frame["purpose"].astype("string")
    source = write(frame, tmp_path / f"rows.{suffix}")
    output = tmp_path / "out.parquet"
    known = files.RowFile(source, frame)
    batch.run(ThresholdExplainer(), known, output, classes=CLASSES, identity=IDENTITY, chunk_rows=10)
    table = pd.read_parquet(output)
    own = table.loc[table["macem_kind"] == "row", list(frame)].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, frame.reset_index(drop=True))
