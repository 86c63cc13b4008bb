"""The files on the page "Write an adapter", installed as their reader would install them, pass the conformance kit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FILE = re.compile(r"^```(?:python|py|toml)\n(# (\S+\.(?:py|toml))\n.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_adapter_of_the_page_passes_the_conformance_kit(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "adapters.md").read_text(encoding="utf-8")
    files = {name: text for text, name in FILE.findall(page)}
    assert '\n--8<-- "examples/macem-catboost/macem_catboost.py:among"\n' in page  # a formatter once took it for code
    assert list(files) == ["acorn.py", "macem_acorn.py", "pyproject.toml", "test_acorn.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    # what pip would make of the pyproject.toml
    project = tomllib.loads(files["pyproject.toml"])["project"]
    metadata = tmp_path / "macem_acorn-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    (group, entries), *_ = project["entry-points"].items()
    lines = [f"{name} = {value}\n" for name, value in entries.items()]
    (metadata / "entry_points.txt").write_text(f"[{group}]\n" + "".join(lines))

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_acorn.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
