"""Model files that cannot be loaded are refused in words that say what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from macem.adapters import model_files
from macem.errors import ModelError, OracleError, UnsupportedModelError

X = pd.DataFrame({"wood": ["oak", "beech", "birch"] * 20, "height": np.arange(60.0)})
Y = np.where(X["height"] > 30.0, "tall", "small")


def test_an_unknown_suffix_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"no model files end in '\.h5'; save the model as"):
        model_files.load("model.h5")


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(ModelError, match=r"There is no model file absent\.onnx"):
        model_files.load("absent.onnx")


def test_a_pickle_is_loaded_only_if_it_is_trusted(tmp_path: Path) -> None:
    path = str(tmp_path / "model.joblib")
    joblib.dump(RandomForestClassifier(3, random_state=0).fit(X[["height"]], Y), path)
    with pytest.raises(UnsupportedModelError, match="runs whatever code its author put into it"):
        model_files.load(path)
    assert list(model_files.load(path, trust_pickle=True).classes_) == ["small", "tall"]


@pytest.mark.parametrize(("suffix", "library"), [(".joblib", "joblib"), (".onnx", "onnxruntime"), (".skops", "skops")])
def test_a_broken_file_is_refused(suffix: str, library: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"no model")
    with pytest.raises(ModelError, match=rf"cannot be read as a {suffix} model: .* Save it again"):
        model_files.load(str(path), trust_pickle=True)


def test_a_library_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match="needs onnxruntime; install it with: pip install onnxruntime"):
        model_files.load(str(path))


def onnx(model: Any, columns: dict[str, str], tmp_path: Path) -> str:
    """Save a model as ONNX whose inputs are the columns of a table."""
    skl2onnx = pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    types = {"text": skl2onnx.common.data_types.StringTensorType, "number": skl2onnx.common.data_types.FloatTensorType}
    inputs = [(name, types[kind]([None, 1])) for name, kind in columns.items()]
    path = tmp_path / "model.onnx"
    path.write_bytes(skl2onnx.convert_sklearn(model, initial_types=inputs).SerializeToString())
    return str(path)


def test_an_onnx_model_of_columns_wants_a_table_that_names_them(tmp_path: Path) -> None:
    encoder = make_column_transformer((OneHotEncoder(), ["wood"]), ("passthrough", ["height"]))
    pipeline = make_pipeline(encoder, RandomForestClassifier(5, random_state=0)).fit(X, Y)
    model = model_files.load(onnx(pipeline, {"wood": "text", "height": "number"}, tmp_path))
    assert list(model.predict(X)) == list(pipeline.predict(X))
    np.testing.assert_allclose(model.predict_proba(X[["height", "wood"]]), pipeline.predict_proba(X), atol=1e-6)
    with pytest.raises(OracleError, match=r"takes the columns \['wood', 'height'\]"):
        model.predict_proba(X.to_numpy())


def test_an_onnx_model_without_probabilities_is_refused(tmp_path: Path) -> None:
    model = LinearRegression().fit(X[["height"]], X["height"])
    with pytest.raises(UnsupportedModelError, match="export a classifier"):
        model_files.load(onnx(model, {"height": "number"}, tmp_path))
