"""Write the README's tables from the result files, so that no number in it is typed by hand.

``python benchmarks/readme.py`` writes them, ``--check`` only fails where they are stale. A table may gain rows; one
that would lose a row is refused, since a benchmark that did not run must not look like one that was never there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results"
UNMEASURED = "Not yet measured."
METRICS = ["CCP", "CFR", "CFIP"]
KINDS = ["positive", "negative"]


def speed_table(results: pd.DataFrame) -> list[str]:
    """Ratios of time within one run, from speed.csv: what, model, rows, ratio, baseline."""
    rows = [
        f"| {row.what} | {row.model} | {row.rows} | {row.baseline} | {row.ratio:.3g} |" for row in results.itertuples()
    ]
    return ["| what | model | rows | against | times faster |", "|---|---|--:|---|--:|", *rows]


def quality_table(results: pd.DataFrame) -> list[str]:
    """The paper's metrics for macem and, after the slash, for LIME, from paper.csv."""
    means = results.set_index(["dataset", "model", "metric", "kind", "method"])["mean"]
    lines = ["| data | model | " + " | ".join(f"{metric} {kind}" for metric in METRICS for kind in KINDS) + " |"]
    lines.append("|---|---|" + "--:|" * len(METRICS) * len(KINDS))
    for dataset, model in results[["dataset", "model"]].drop_duplicates().itertuples(index=False):
        cells = []
        for metric in METRICS:
            for kind in KINDS:
                pair = [(dataset, model, metric, kind, method) for method in ("macem", "lime")]
                if lost := [key for key in pair if key not in means.index]:
                    raise LookupError(f"paper.csv has no row {lost[0]}; run benchmarks/paper.py to its end")
                cells.append(" / ".join(_figure(metric, float(means[key])) for key in pair))
        lines.append(f"| {dataset} | {model} | {' | '.join(cells)} |")
    return lines


def _figure(metric: str, value: float) -> str:
    return f"{value:.2f}" if metric == "CFR" else f"{value:.0f}"


class Table(NamedTuple):
    """A table of the README."""

    file: str
    lines: Callable[[pd.DataFrame], list[str]]
    n_labels: int  # leading cells that identify a row


TABLES = {"speed": Table("speed.csv", speed_table, 4), "quality": Table("paper.csv", quality_table, 2)}


def rewritten(text: str, folder: Path) -> str:
    """Put the tables of the result files in a folder between their markers.

    Raises
    ------
    LookupError
        If a table would lose a row that the text has.
    """
    for name, table in TABLES.items():
        path = folder / table.file
        lines = table.lines(pd.read_csv(path)) if path.is_file() else [UNMEASURED]
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, found, rest = text.partition(begin)
        old, found_end, after = rest.partition(end)
        if not (found and found_end):
            raise LookupError(f"README.md lacks a marker; write {begin.strip()} and {end}")
        if lost := _labels(old.splitlines(), table.n_labels) - _labels(lines, table.n_labels):
            raise LookupError(
                f"{table.file} lacks rows that README.md has: {sorted(lost)}; run its benchmark to the end"
            )
        text = before + begin + "\n".join([*lines, end]) + after
    return text


def _labels(lines: list[str], n_labels: int) -> set[tuple[str, ...]]:
    """Label cells of the rows of a table, without its head."""
    rows = [line for line in lines if line.startswith("|")][2:]
    return {tuple(cell.strip() for cell in row.split("|")[1 : n_labels + 1]) for row in rows}


def main() -> None:
    """Write or check README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if README.md is stale, and write nothing")
    check = parser.parse_args().check
    readme = REPOSITORY / "README.md"
    old = readme.read_text(encoding="utf-8")
    new = rewritten(old, RESULTS)
    if check and new != old:
        sys.exit("README.md is stale: run python benchmarks/readme.py")
    readme.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
