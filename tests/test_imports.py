"""`import macem` is cheap, and every public name is there when it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import macem

HEAVY = {
    "catboost",
    "httpx",
    "jinja2",
    "joblib",
    "lightgbm",
    "matplotlib",
    "numba",
    "numpy",
    "pandas",
    "sklearn",
    "xgboost",
}


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh process has loaded after a statement."""
    program = (
        f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


def test_import_loads_nothing_heavy() -> None:
    loaded = modules_after("import macem")
    assert "macem" in loaded
    assert not loaded & HEAVY


def test_an_explainer_loads_no_model_library() -> None:
    loaded = modules_after("import macem; macem.Explainer; macem.SearchOptions; macem.oracle_for; macem.Status")
    assert "numba" in loaded
    assert not loaded & {"catboost", "httpx", "jinja2", "lightgbm", "matplotlib", "sklearn", "xgboost"}


@pytest.mark.parametrize("name", macem.__all__)
def test_public_name(name: str) -> None:
    assert getattr(macem, name) is not None
    assert name in dir(macem)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Explaner'.*Explainer"):
        macem.Explaner  # noqa: B018
