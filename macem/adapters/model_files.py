"""Model files: which library reads which suffix, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from macem.adapters import ensemble
from macem.errors import ModelError, OracleError, UnsupportedModelError, sentence

__all__ = ["OnnxModel", "feature_names", "load", "wants_categories", "with_classes"]


def load(
    path: str, *, trust_pickle: bool = False, trusted_types: Sequence[str] = (), classes: Sequence[Any] | None = None
) -> Any:
    """Read a model from a file.

    Parameters
    ----------
    path : str
        ``.json`` or ``.ubj`` (XGBoost), ``.txt`` (LightGBM), ``.skops`` (scikit-learn), ``.onnx``; ``.pkl``,
        ``.pickle`` or ``.joblib`` if trusted.
    trust_pickle : bool
        Unpickle, which runs whatever code the file holds.
    trusted_types : sequence of str
        Types beyond scikit-learn's own that a ``.skops`` file may create.
    classes : sequence of labels, optional
        Class labels of a model that does not know them.

    Raises
    ------
    ModelError
        If the file is not there or cannot be read.
    UnsupportedModelError
        If the suffix is unknown, or the file is a pickle and not trusted.
    """
    file = Path(path)
    readers: dict[str, Callable[[], Any]] = {
        ".json": lambda: _adapter("xgboost").load(path),
        ".ubj": lambda: _adapter("xgboost").load(path),
        ".txt": lambda: _adapter("lightgbm").load(path),
        ".skops": lambda: _from_skops(path, trusted_types),
        ".onnx": lambda: OnnxModel(file.read_bytes(), classes),
        **dict.fromkeys([".pkl", ".pickle", ".joblib"], lambda: _library("joblib").load(path)),
    }
    suffix = file.suffix.lower()
    if suffix not in readers:
        raise UnsupportedModelError(
            f"{path}: no model files end in {suffix!r}; save the model as .json or .ubj (XGBoost), .txt (LightGBM), "
            ".skops (scikit-learn) or .onnx, or give the URL of a service."
        )
    if not file.is_file():
        raise ModelError(f"There is no model file {path}; check the path.")
    if suffix in (".pkl", ".pickle", ".joblib") and not trust_pickle:
        raise UnsupportedModelError(
            f"{path} is a pickle, and loading a pickle runs whatever code its author put into it. Save the model as "
            ".skops (skops.io.dump), .json, .txt or .onnx; or, if you trust whoever made the file, add --trust-pickle."
        )
    try:
        return readers[suffix]()
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"{path} cannot be read as a {suffix} model: {type(error).__name__}: {sentence(error)} Save it again with "
            "the version of the library that is installed here."
        ) from error


def _library(name: str) -> ModuleType:
    """Import a library that a model file needs."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ModelError(f"This model file needs {package}; install it with: pip install {package}") from error


def _adapter(name: str) -> ModuleType:
    """The adapter of a library, which knows the library's own files."""
    _library(name)
    return import_module(f"macem.adapters.{name}")


def _from_skops(path: str, trusted_types: Sequence[str]) -> Any:
    skops = _library("skops.io")
    asked = skops.get_untrusted_types(file=path)
    unknown = sorted(name for name in asked if name not in trusted_types and not _is_scikit_learn_class(name))
    if unknown:
        raise UnsupportedModelError(
            f"{path} would create objects of {', '.join(unknown)}, which are not known to be harmless. If you trust "
            f"the file, allow them: {' '.join(f'--trust-type {name}' for name in unknown)}"
        )
    return skops.load(path, trusted=asked)


def _is_scikit_learn_class(name: str) -> bool:
    """Whether a type is a class of scikit-learn's own; skops does not list its private ones, such as trees."""
    module, _, attribute = name.rpartition(".")
    if module.partition(".")[0] != "sklearn":
        return False
    try:
        return isinstance(getattr(import_module(module), attribute, None), type)
    except ImportError:
        return False


def with_classes(model: Any, classes: Sequence[Any] | None) -> Any:
    """A model whose classes bear these labels, where its file kept none, as a booster's."""
    known = getattr(model, "classes_", None)
    if classes is None or (known is not None and list(map(str, known)) == list(map(str, classes))):
        return model
    return ensemble([(model, 1.0)], classes=list(classes))


def feature_names(model: Any) -> list[str] | None:
    """Names of the columns that a model takes, in its order, where it knows them."""
    for name in ("feature_names_in_", "feature_names", "feature_name", "feature_name_"):
        names = getattr(model, name, None)
        names = names() if callable(names) else names
        if names is not None:
            return [str(one) for one in names]
    return None


def wants_categories(model: Any) -> bool:
    """Whether a model takes texts as pandas categories only, as the boosters do."""
    return type(model).__module__.partition(".")[0] in ("xgboost", "lightgbm")


class OnnxModel:
    """An ONNX classifier as a model with ``predict_proba``; it pickles.

    Parameters
    ----------
    data : bytes
        The model, serialised.
    classes : sequence of labels, optional
        In the order of the probability columns; needed where the model gives no labels of its own.
    """

    def __init__(self, data: bytes, classes: Sequence[Any] | None = None) -> None:
        self._data = data
        self._session: Any = None
        inputs = self._run_session().get_inputs()
        self._types = {one.name: one.type for one in inputs}
        self._single = len(inputs) == 1 and len(inputs[0].shape) == 2 and inputs[0].shape[1] != 1
        if not self._single:
            self.feature_names_in_ = np.array([one.name for one in inputs], dtype=object)
        outputs = [one.name for one in self._run_session().get_outputs()]
        if len(outputs) != 2:
            raise UnsupportedModelError(
                f"The ONNX model has the outputs {outputs}; export a classifier, which gives a label and probabilities."
            )
        self._label, self._probabilities = outputs
        known = self._named_classes(inputs) if classes is None else classes
        if known is not None:
            self.classes_ = np.asarray(known)

    def _named_classes(self, inputs: Any) -> list[Any] | None:
        """Labels that the model names its probabilities with, read off its answer to an empty row."""
        try:
            shapes = {one.name: (1, one.shape[1] if isinstance(one.shape[1], int) else 1) for one in inputs}
            row = {name: np.zeros(shapes[name], _dtype(kind)) for name, kind in self._types.items()}
            row = {name: np.full(value.shape, "") if value.dtype == object else value for name, value in row.items()}
            answer = self._run_session().run([self._probabilities], row)[0]
        except Exception:  # a model that refuses such a row may still answer real ones
            return None
        return list(answer[0]) if isinstance(answer, list) else None

    def _run_session(self) -> Any:
        if self._session is None:
            runtime = _library("onnxruntime")
            options = runtime.SessionOptions()
            options.log_severity_level = 3
            self._session = runtime.InferenceSession(self._data, options, providers=["CPUExecutionProvider"])
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities, shape (n, n_classes)."""
        answer = self._run_session().run([self._probabilities], self._feed(X))[0]
        if isinstance(answer, list):  # skl2onnx's ZipMap: one dictionary a row
            return np.array([list(row.values()) for row in answer], dtype=float).reshape(len(answer), -1)
        return np.asarray(answer, dtype=float)

    def predict(self, X: Any) -> NDArray[Any]:
        """Class labels, as the model itself gives them."""
        return np.asarray(self._run_session().run([self._label], self._feed(X))[0])

    def _feed(self, X: Any) -> dict[str, Any]:
        if self._single:
            ((name, kind),) = self._types.items()
            return {name: np.ascontiguousarray(X, dtype=_dtype(kind))}
        if not isinstance(X, pd.DataFrame):
            raise OracleError(
                f"The ONNX model takes the columns {list(self._types)}; give it a table with those names."
            )
        return {name: X[name].to_numpy().astype(_dtype(kind)).reshape(-1, 1) for name, kind in self._types.items()}


def _dtype(kind: str) -> Any:
    """The numpy dtype of an ONNX tensor type."""
    names = {
        "float": np.float32,
        "double": np.float64,
        "int64": np.int64,
        "int32": np.int32,
        "bool": np.bool_,
        "string": object,
    }
    name = kind.removeprefix("tensor(").removesuffix(")")
    if name not in names:
        raise UnsupportedModelError(
            f"An input of the ONNX model is a {kind}; export it with float, integer or text inputs."
        )
    return names[name]
