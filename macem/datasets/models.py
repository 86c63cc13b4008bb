"""Fitted models for demonstrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

__all__ = ["credit_forest"]


def credit_forest(X: pd.DataFrame, y: pd.Series) -> Pipeline:
    """Fit a random forest of 100 trees on raw strings and integers, one-hot encoded in a Pipeline."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    texts = make_column_selector(dtype_exclude="number")
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), remainder="passthrough")
    return make_pipeline(columns, RandomForestClassifier(n_estimators=100, random_state=0)).fit(X, y)
