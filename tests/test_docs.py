"""Every Python example of the README and the docs runs, in order, with warnings as errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = {
    "plots": "matplotlib",
    "report": "jinja2",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "parquet": "pyarrow",
    "distributed": "distributed",
}
PAGES = [
    page
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))
    if BLOCK.search(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    for word, package in NEEDS.items():
        if any(word in block[1] for block in BLOCK.finditer(text)):
            pytest.importorskip(package)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        lines_before = text.count("\n", 0, block.start(1))
        exec(compile("\n" * lines_before + block[1], str(page), "exec"), namespace)


def test_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    path = REPOSITORY / "docs" / "german_credit.ipynb"
    assert path.stat().st_size < 400_000
    code = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    # As it is checked in, it was run from top to bottom.
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert sum("image/png" in output.get("data", {}) for cell in code for output in cell["outputs"]) == 3
    namespace: dict[str, object] = {"__name__": "__main__"}
    for cell in code:
        exec(compile("".join(cell["source"]), f"{path}, cell {cell['execution_count']}", "exec"), namespace)
    pyplot.close("all")
    assert (tmp_path / "report.html").exists()


def test_the_site_loads_nothing_from_another_server() -> None:
    assert "http" not in (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
