"""Write the tables of the README and the docs from the result files, so that no number in them is typed by hand.

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


ASKED = "table asked, times faster"  # what speed.csv calls the comparison of runtimes


def asked_table(results: pd.DataFrame) -> list[str]:
    """How many times faster than each runtime a table answers, from speed.csv."""
    asked = results[results["what"] == ASKED]
    wide = asked.pivot(index=["model", "rows"], columns="baseline", values="ratio")
    wide = wide.reindex(asked[["model", "rows"]].drop_duplicates())[asked["baseline"].unique()]
    lines = ["| model | rows | " + " | ".join(wide) + " |", "|---|--:|" + "--:|" * wide.shape[1]]
    for (model, rows), ratios in wide.iterrows():
        lines.append(f"| {model} | {rows} | {' | '.join(f'{ratio:.3g}' for ratio in ratios)} |")
    return lines


def speed_table(results: pd.DataFrame) -> list[str]:
    """All other ratios, from speed.csv: what, model, rows, ratio, baseline."""
    rows = [
        f"| {row.what} | {row.model} | {row.rows} | {row.baseline} | {row.ratio:.3g} |"
        for row in results[results["what"] != ASKED].itertuples()
    ]
    return ["| what, in which unit | model | rows | against | value |", "|---|---|--:|---|--:|", *rows]


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


def plain_table(results: pd.DataFrame) -> list[str]:
    """The rows of a result file as they are."""
    head = "| " + " | ".join(results.columns) + " |"
    rows = [
        "| "
        + " | ".join("" if cell != cell else f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row)
        + " |"
        for row in results.itertuples(index=False)
    ]
    return [head, "|" + "---|" * results.shape[1], *rows]


def nearness_table(results: pd.DataFrame) -> list[str]:
    """How far each method's counterfactuals are over the nearest known, and its milliseconds a row, from peers.csv."""
    results = results[~results["method"].str.contains("beam of")]
    cells = results["l1_over_best"].map("{:.2f}".format) + " / " + (1000 * results["seconds"]).map("{:.0f}".format)
    wide = results.assign(cell=cells).pivot(index=["dataset", "model"], columns="method", values="cell")
    wide = wide.reindex(results[["dataset", "model"]].drop_duplicates())[results["method"].unique()]
    lines = ["| data | model | " + " | ".join(wide) + " |", "|---|---|" + "--:|" * wide.shape[1]]
    return lines + [f"| {' | '.join(row)} |" for row in wide.reset_index().to_numpy()]


def defaults_table(results: pd.DataFrame) -> list[str]:
    """Rows found of 30 and their mean distance, one line a setting of the search alone."""
    pairs = list(results[["model", "kind"]].drop_duplicates().itertuples(index=False, name=None))
    lines = ["| c | μ | α | " + " | ".join(f"{model}, {kind}" for model, kind in pairs) + " |"]
    lines.append("|--:|--:|--:|" + "--:|" * len(pairs))
    for setting, rows in results.groupby(["loss_weight", "smoothing", "step_size"], sort=True):
        of_pair = rows.set_index(["model", "kind"])
        cells = [f"{of_pair.loc[pair, 'found']} ({of_pair.loc[pair, 'distance']:.2f})" for pair in pairs]
        lines.append(f"| {' | '.join(f'{value:g}' for value in setting)} | {' | '.join(cells)} |")
    return lines


def optimum_table(results: pd.DataFrame) -> list[str]:
    """How near to the exact optimum macem comes, and the search without refinement, from exact.csv."""
    head = ["data", "kind", "found, of those that exist"]
    head += ["cost over the optimum: macem", "cost over the optimum: search alone"]
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|---|---|--:|--:|--:|")
    for (dataset, kind), rows in results[results["encoding"] == "fma"].groupby(["dataset", "kind"], sort=False):
        refined, alone = (rows[rows["method"] == method].squeeze() for method in ("refined", "search"))
        cells = f"{refined['found']} of {refined['exist']} | {refined['cost_over_exact']:.3f}"
        lines.append(f"| {dataset} | {kind} | {cells} | {alone['cost_over_exact']:.1f} |")
    return lines


class Table(NamedTuple):
    """A table of a page."""

    page: str
    file: str
    lines: Callable[[pd.DataFrame], list[str]]
    n_labels: int  # leading cells that identify a row


TABLES = {
    "asked": Table("README.md", "speed.csv", asked_table, 2),
    "speed": Table("README.md", "speed.csv", speed_table, 4),
    "nearness": Table("README.md", "peers.csv", nearness_table, 2),
    "optimum": Table("README.md", "exact.csv", optimum_table, 2),
    "quality": Table("README.md", "paper.csv", quality_table, 2),
    "peers": Table("docs/results.md", "peers.csv", plain_table, 3),
    "exact": Table("docs/method.md", "exact.csv", plain_table, 4),
    "encodings": Table("docs/method.md", "encodings.csv", plain_table, 5),
    "densities": Table("docs/method.md", "densities.csv", plain_table, 4),
    "night": Table("docs/results.md", "night.csv", plain_table, 2),
    "readings": Table("docs/results.md", "readings.csv", plain_table, 2),
    "beam": Table("docs/method.md", "beam.csv", plain_table, 3),
    "defaults": Table("docs/method.md", "defaults.csv", defaults_table, 3),
}


def rewritten(text: str, folder: Path, page: str = "README.md") -> str:
    """Put the tables of the result files in a folder between their markers on a page.

    Raises
    ------
    LookupError
        If a table would lose a row that the text has.
    """
    for name, table in TABLES.items():
        if table.page != page:
            continue
        path = folder / table.file
        lines = table.lines(pd.read_csv(path)) if path.is_file() else [UNMEASURED]
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, found, rest = text.partition(begin)
        old, found_end, after = rest.partition(end)
        if not (found and found_end):
            raise LookupError(f"{page} lacks a marker; write {begin.strip()} and {end}")
        if lost := _labels(old.splitlines(), table.n_labels) - _labels(lines, table.n_labels):
            raise LookupError(f"{table.file} lacks rows that {page} has: {sorted(lost)}; run its benchmark to the end")
        text = before + begin + "\n".join([*lines, end]) + after
    return text


def _labels(lines: list[str], n_labels: int) -> set[tuple[str, ...]]:
    """Label cells of the rows of a table, without its head."""
    rows = [line for line in lines if line.startswith("|")][2:]
    return {tuple(cell.strip() for cell in row.split("|")[1 : n_labels + 1]) for row in rows}


def main() -> None:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a page is stale")
    check = parser.parse_args().check
    for page in sorted({table.page for table in TABLES.values()}):
        path = REPOSITORY / page
        old = path.read_text(encoding="utf-8")
        new = rewritten(old, RESULTS, page)
        if check and new != old:
            sys.exit(f"{page} is stale: run python benchmarks/readme.py")
        path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
