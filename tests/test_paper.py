"""What the paper's benchmark does with scores, on a few that are made up."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import ttest_rel

from benchmarks import paper


def scores(method: str, by_split: list[list[float]]) -> pd.DataFrame:
    lines = [
        {"dataset": "FICO", "model": "tree", "metric": "CFR", "kind": "positive", "method": method}
        | {"split": split, "row": row, "score": score}
        for split, theirs in enumerate(by_split)
        for row, score in enumerate(theirs)
    ]
    return pd.DataFrame(lines)


def test_a_sampled_method_is_paired_with_the_rows_it_explained() -> None:
    ours = scores("macem", [[0.9, 0.1], [0.8, 0.2], [0.4, 0.9]])
    search = scores("macem-search", [[0.5, 0.3], [0.4, 0.4], [0.3, 0.3]])
    lime = scores("lime", [[0.3], [0.4], [0.5]])
    table = paper.summary(pd.concat([ours, search, lime])).set_index("method")
    assert table["mean"].to_dict() == pytest.approx({"macem": 0.55, "macem-search": 1.1 / 3, "lime": 0.4})
    assert table["n"].to_dict() == {"macem": 6, "macem-search": 6, "lime": 3}
    assert table["p_value"]["lime"] == pytest.approx(ttest_rel([0.3, 0.4, 0.5], [0.9, 0.8, 0.4]).pvalue)
    assert table["p_value"]["macem-search"] == pytest.approx(ttest_rel([0.4, 0.4, 0.3], [0.5, 0.5, 0.65]).pvalue)
    assert pd.isna(table["p_value"]["macem"])


def test_a_run_continues_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "EXPLAINED", ["macem"])
    data = {"Vertebral Column": paper.WINE}
    first = paper.measured(data, 1, 3, tmp_path)
    parts = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {path.suffix for path in parts} == {".csv"}
    next(iter(parts)).unlink()
    again = paper.measured(data, 1, 3, tmp_path)
    assert sum(path.stat().st_mtime_ns == parts[path] for path in tmp_path.iterdir()) == len(parts) - 1
    kept = ~first["metric"].isin(["seconds", "total"])
    pd.testing.assert_frame_equal(first[kept], again[kept])
