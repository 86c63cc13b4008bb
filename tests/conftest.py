"""What many tests share: the kernel in both modes, and data."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

from macem import kernel as compiled_kernel
from macem.datasets import load_german_credit

REPOSITORY = Path(__file__).parents[1]

settings.register_profile("seeded", derandomize=True)
settings.load_profile("seeded")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed what models without a `random_state` draw from, before a fixture fits one."""
    np.random.seed(0)  # the global state is what they draw from


@pytest.fixture(scope="session")
def plain_kernel() -> ModuleType:
    """`macem.kernel` imported a second time with the JIT off: the same lines as plain Python."""
    spec = importlib.util.spec_from_file_location("macem_kernel_plain", compiled_kernel.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", True)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", params=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """`macem.kernel`, compiled and as plain Python."""
    return compiled_kernel if request.param == "compiled" else request.getfixturevalue("plain_kernel")


@pytest.fixture(scope="session")
def german_credit() -> tuple[pd.DataFrame, pd.Series]:
    """German Credit as (X, y); to be read only."""
    return load_german_credit()


@pytest.fixture(scope="session")
def shared_data() -> Iterator[Path]:
    """Folder of the data sets that are not bundled, with ``MACEM_DATA`` set to it."""
    folder = Path(os.environ.get("MACEM_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (folder / "heloc.csv.gz").is_file():
        pytest.skip(f"no data sets in {folder}; name their folder in MACEM_DATA")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MACEM_DATA", str(folder))
        yield folder
