"""The tables of the README and the docs come from the result files, and never lose a row."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.readme import KINDS, METRICS, REPOSITORY, RESULTS, TABLES, rewritten

EMPTY = "".join(
    f"<!-- begin {name} -->\n<!-- end {name} -->\n" for name, table in TABLES.items() if table.page == "README.md"
)


def write(folder: Path, models: list[str], methods: list[str]) -> None:
    """Result files with these models."""
    speed = [("step", model, 50, 12.345, "predict_proba") for model in models]
    pd.DataFrame(speed, columns=["what", "model", "rows", "ratio", "baseline"]).to_csv(folder / "speed.csv")
    paper = [("wine", *key, 0.5) for key in product(models, METRICS, KINDS, methods)]
    pd.DataFrame(paper, columns=["dataset", "model", "metric", "kind", "method", "mean"]).to_csv(folder / "paper.csv")


@pytest.mark.parametrize("page", sorted({table.page for table in TABLES.values()}))
def test_page_is_fresh(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    assert rewritten(text, RESULTS, page) == text


def test_tables(tmp_path: Path) -> None:
    write(tmp_path, ["forest", "tree"], ["macem", "lime"])
    lines = rewritten(EMPTY, tmp_path).splitlines()
    assert "| step | forest | 50 | predict_proba | 12.3 |" in lines
    assert "| wine | tree | 0 / 0 | 0 / 0 | 0.50 / 0.50 | 0.50 / 0.50 | 0 / 0 | 0 / 0 |" in lines


def test_a_lost_row_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ["forest", "tree"], ["macem", "lime"])
    full = rewritten(EMPTY, tmp_path)
    write(tmp_path, ["forest"], ["macem", "lime"])
    with pytest.raises(LookupError, match=r"speed\.csv lacks rows.*tree"):
        rewritten(full, tmp_path)


def test_a_missing_method_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ["forest"], ["macem"])
    with pytest.raises(LookupError, match=r"no row .*lime.*run benchmarks/paper\.py"):
        rewritten(EMPTY, tmp_path)
