"""A night's batch through the command: ``python benchmarks/night.py`` writes results/night.csv.

German Credit rows, drawn again with a jitter on their numbers, are explained by a pipeline on raw columns. Each run is
a process of its own, so that its peak memory is its own. Then the largest batch is killed three times, at moments drawn
with a seed, and resumed; its output and errors file are compared byte for byte with those of the uninterrupted run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import macem

RESULTS = Path(__file__).resolve().parent / "results" / "night.csv"
SIZES = (1000, 5000, 20_000)
KILLS = 3
NAMES = ("out.csv", "out.csv.errors.csv")


def night_rows(X: pd.DataFrame, n: int, random: np.random.Generator) -> pd.DataFrame:
    """Rows like those of X: drawn with replacement, whole numbers moved by up to a tenth; one in 100 cannot be read."""
    rows = X.iloc[random.integers(0, len(X), n)].reset_index(drop=True)
    for name in rows.select_dtypes("number"):
        rows[name] = np.round(rows[name] * random.uniform(0.9, 1.1, n)).astype(int)
    rows = rows.astype({"duration": object})
    rows.loc[99::100, "duration"] = "a year"
    return rows


def start(folder: Path, rows: Path, output: Path, *options: str) -> subprocess.Popen[bytes]:
    command = ["explain", "model.joblib", rows.name, "--background", "train.csv", "--output", str(output)]
    return subprocess.Popen(
        [sys.executable, "-m", "macem", *command, "--trust-pickle", "--quiet", *options],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def measured(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Wait for a run: its seconds and its peak memory in MiB."""
    began = time.perf_counter()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 3:  # done, with rows that could not be read
        raise RuntimeError(f"the run ended with {process.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> None:
    """Measure, kill, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows; writes nothing")
    quick = parser.parse_args().quick
    sizes = [size // (10 if quick else 1) for size in SIZES]
    random = np.random.default_rng(0)
    X, y = macem.datasets.load_german_credit()
    one_hot = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")), remainder="passthrough"
    )
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X.to_csv(folder / "train.csv", index=False)
        joblib.dump(
            make_pipeline(one_hot, RandomForestClassifier(10, max_depth=5, random_state=0)).fit(X, y),
            folder / "model.joblib",
        )
        for size in sizes:
            rows = folder / f"rows-{size}.csv"
            night_rows(X, size, random).to_csv(rows, index=False)
            whole = folder / str(size)
            whole.mkdir()
            lines.append((size, "whole", *measured(start(folder, rows, whole / "out.csv")), 0, ""))
            print(*lines[-1], flush=True)
        seconds = lines[-1][2]
        killed = folder / "killed"
        killed.mkdir()
        for after in random.uniform(0.15, 0.3, KILLS) * seconds:
            process = start(folder, rows, killed / "out.csv", "--resume")
            try:
                process.wait(timeout=after)
                raise RuntimeError("the run was done before its kill")
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            parts = len(list((killed / "out.csv.parts").glob("*.arrow")))
            print(f"killed after {after:.1f} s, with {parts} chunks whole", flush=True)
        spent = measured(start(folder, rows, killed / "out.csv", "--resume"))
        same = all((killed / name).read_bytes() == (whole / name).read_bytes() for name in NAMES)
        lines.append((size, "killed and resumed", *spent, KILLS, same))
        print(*lines[-1], flush=True)
    columns = ["rows", "what", "seconds", "peak_mib", "kills", "same_bytes"]
    if not quick:
        pd.DataFrame(lines, columns=columns).to_csv(RESULTS, index=False, float_format="%.4g", lineterminator="\n")
    if not same:
        sys.exit("The resumed output differs from the uninterrupted one.")


if __name__ == "__main__":
    main()
