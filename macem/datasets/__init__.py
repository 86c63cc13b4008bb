"""The data sets of the paper and two more, each as a table ``X`` and its labels ``y``.

German Credit is bundled and the two of scikit-learn come with it. The others are not ours to distribute: they are read
from the folder that the environment variable ``MACEM_DATA`` names.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from macem.errors import DataError

__all__ = [
    "load_breast_cancer",
    "load_german_credit",
    "load_heloc",
    "load_olfaction",
    "load_sdss",
    "load_vertebral",
    "load_wine",
]

Table = tuple[pd.DataFrame, pd.Series]


def load_german_credit() -> Table:
    """Thousand credit applications of the Statlog project (bundled).

    Source: Hans Hofmann, Statlog (German Credit Data), UCI Machine Learning Repository, 1994, licensed under CC BY 4.0.

    Returns
    -------
    X : DataFrame, shape (1000, 20)
        13 columns of strings and 7 of integers; nothing is missing.
    y : Series of str, shape (1000,)
        "good" (700 rows) or "bad" (300 rows).
    """
    with files(__name__).joinpath("german_credit.csv").open(encoding="utf-8") as file:
        return _split(pd.read_csv(file, comment="#", keep_default_na=False))


def load_heloc() -> Table:
    """Home equity lines of credit, of FICO's Explainable Machine Learning Challenge (from ``MACEM_DATA``).

    Returns
    -------
    X : DataFrame of int, shape (10459, 23)
        -9, -8 and -7 are codes for "no information".
    y : Series of str, shape (10459,)
        "Good" or "Bad".

    Raises
    ------
    DataError
        If ``MACEM_DATA`` does not name a folder that holds the file.
    """
    return _from_folder("heloc.csv.gz", "FICO's Explainable Machine Learning Challenge, 2018 (heloc_dataset_v1)")


def load_vertebral() -> Table:
    """Biomechanical measures of patients' spines, UCI Vertebral Column (from ``MACEM_DATA``).

    Returns
    -------
    X : DataFrame of float, shape (310, 6)
    y : Series of str, shape (310,)
        "DH" (disk hernia), "SL" (spondylolisthesis) or "NO" (normal).

    Raises
    ------
    DataError
        If ``MACEM_DATA`` does not name a folder that holds the file.
    """
    return _from_folder("vertebral_column_3c.csv", "UCI Machine Learning Repository, Vertebral Column (column_3C)")


def load_sdss() -> Table:
    """Ten thousand objects of the Sloan Digital Sky Survey, release 14 (from ``MACEM_DATA``).

    Returns
    -------
    X : DataFrame of int and float, shape (10000, 17)
    y : Series of str, shape (10000,)
        "STAR", "GALAXY" or "QSO".

    Raises
    ------
    DataError
        If ``MACEM_DATA`` does not name a folder that holds the file.
    """
    return _from_folder(
        "sdss_dr14.csv.gz", "Sloan Digital Sky Survey DR14, the 10,000-object query published on Kaggle"
    )


def load_olfaction() -> Table:
    """Molecules of the DREAM olfaction challenge and their descriptors (from ``MACEM_DATA``).

    The descriptors are Mordred's and RDKit's, since the paper's (Dragon 6) are not free.

    Returns
    -------
    X : DataFrame of int and float, shape (476, 4869)
        Some descriptors are missing.
    y : Series of str, shape (476,)
        "pleasant" or "not_pleasant".

    Raises
    ------
    DataError
        If ``MACEM_DATA`` does not name a folder that holds the file.
    """
    return _from_folder("olfaction_rdkit_4869.csv.gz", "DREAM olfaction challenge, with Mordred and RDKit descriptors")


def load_breast_cancer() -> Table:
    """Breast cancer Wisconsin (diagnostic), as scikit-learn ships it.

    Returns
    -------
    X : DataFrame of float, shape (569, 30)
    y : Series of str, shape (569,)
        "malignant" or "benign".
    """
    from sklearn.datasets import load_breast_cancer as load

    return _named(load(as_frame=True))


def load_wine() -> Table:
    """Chemical measures of wines from three growers, as scikit-learn ships it.

    Returns
    -------
    X : DataFrame of float, shape (178, 13)
    y : Series of str, shape (178,)
        "class_0", "class_1" or "class_2".
    """
    from sklearn.datasets import load_wine as load

    return _named(load(as_frame=True))


def _split(table: pd.DataFrame) -> Table:
    """The features, and the last column, which is the label."""
    return table.drop(columns="target"), table["target"]


def _named(bunch: Any) -> Table:
    """A data set of scikit-learn with its class names as labels."""
    return bunch["data"], bunch["target"].map(dict(enumerate(bunch["target_names"])))


def _from_folder(name: str, source: str) -> Table:
    """A data set that the user keeps."""
    folder = os.environ.get("MACEM_DATA")
    if not folder:
        found = "MACEM_DATA is not set"
    elif (path := Path(folder) / name).is_file():
        return _split(pd.read_csv(path))
    else:
        found = f"MACEM_DATA={folder!r} holds no such file"
    raise DataError(
        f"{name} is not bundled with macem, and {found}. Get it from its source ({source}), save it under this name "
        "with its label as the last column, 'target', and set MACEM_DATA to its folder."
    )
