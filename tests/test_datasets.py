"""The data sets are what their docstrings say."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest

from macem import datasets
from macem.errors import DataError


def test_german_credit() -> None:
    X, y = datasets.load_german_credit()
    assert X.shape == (1000, 20)
    assert X.iloc[0, :5].tolist() == ["<0", 6, "critical/other existing credit", "radio/tv", 1169]
    assert sum(pd.api.types.is_integer_dtype(dtype) for dtype in X.dtypes) == 7
    assert sum(pd.api.types.is_string_dtype(dtype) for dtype in X.dtypes) == 13
    assert not X.isna().any(axis=None)
    assert y.name == "target"
    assert y.value_counts().to_dict() == {"good": 700, "bad": 300}


def test_german_credit_names_its_source() -> None:
    head = files("macem.datasets").joinpath("german_credit.csv").read_text(encoding="utf-8").splitlines()[:3]
    assert all(line.startswith("#") for line in head)
    assert all(word in " ".join(head) for word in ("Hans Hofmann", "1994", "UCI", "CC BY 4.0"))


@pytest.mark.parametrize(
    ("load", "shape", "classes"),
    [
        (datasets.load_breast_cancer, (569, 30), {"malignant": 212, "benign": 357}),
        (datasets.load_wine, (178, 13), {"class_0": 59, "class_1": 71, "class_2": 48}),
    ],
)
def test_scikit_learn(load, shape, classes) -> None:
    X, y = load()
    assert X.shape == shape
    assert y.value_counts().to_dict() == classes


FOLDER = [
    (datasets.load_heloc, (10459, 23), {"Bad": 5459, "Good": 5000}),
    (datasets.load_olfaction, (476, 4869), {"not_pleasant": 304, "pleasant": 172}),
    (datasets.load_sdss, (10000, 17), {"GALAXY": 4998, "STAR": 4152, "QSO": 850}),
    (datasets.load_vertebral, (310, 6), {"SL": 150, "NO": 100, "DH": 60}),
]


@pytest.mark.usefixtures("shared_data")
@pytest.mark.parametrize(("load", "shape", "classes"), FOLDER)
def test_folder(load, shape, classes) -> None:
    X, y = load()
    assert X.shape == shape
    assert all(pd.api.types.is_numeric_dtype(dtype) for dtype in X.dtypes)
    assert y.value_counts().to_dict() == classes


@pytest.mark.parametrize("load", [load for load, _, _ in FOLDER])
def test_folder_not_named(load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MACEM_DATA", raising=False)
    with pytest.raises(DataError, match=r"csv.*MACEM_DATA is not set.*set MACEM_DATA to its folder"):
        load()


def test_folder_without_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACEM_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"heloc\.csv\.gz is not bundled.*holds no such file"):
        datasets.load_heloc()
