"""Models behind HTTP: the Open Inference Protocol v2 (KServe, Triton, MLServer) and MLflow's /invocations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from macem.adapters.connection import Connection, address_parts, shown_address
from macem.errors import OptionError, OracleError

if TYPE_CHECKING:
    import httpx

__all__ = ["RemoteModel", "shown_address"]

PROBABILITY_OUTPUTS = ("predict_proba", "probabilities", "output_probability")
CHOOSE_OUTPUT = "Say with output= (--output-name) which one holds the probabilities."

DATATYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
NAMES = {np.dtype(dtype): name for name, dtype in DATATYPES.items()}


class RemoteModel:
    """A classifier that answers over HTTP.

    Explain it as any other model: ``macem.Explainer(RemoteModel(url), X_train)``. It is asked in batches; a request
    that finds the service busy (429 or 503) is repeated after a while, any other failure is an error at once.

    Parameters
    ----------
    url : str
        Of the model (``…/v2/models/NAME`` or ``…/v2/models/NAME/infer``, ``…/invocations``), or of the server, with
        `model_name` or `protocol`. User info and a query go with every request; messages show the address without
        them (``…/invocations?code=…``).
    protocol : {"v2", "mlflow"}, optional
        By default told from the path.
    model_name : str, optional
        For v2, where `url` is the server's.
    classes : array-like, shape (n_classes,), optional
        Labels of the probability columns; 0 … n_classes - 1 by default. Where the service answers with objects
        (``{"good": 0.3, "bad": 0.7}``), these are the names in them, as text, and columns are taken by name.
    columns : sequence of str, optional
        Names of the columns, for arrays sent to a model that knows columns by name.
    output : str, optional
        For v2, the output that holds probabilities; by default found in the model's metadata, else "predict_proba",
        else the only output of floating-point numbers.
    batch_size : int
        Rows per request.
    timeout : float
        Seconds for one request and the whole of its answer.
    retries : int
        How often a request is repeated while the service is busy.
    headers : mapping, optional
        Sent with every request, such as ``{"Authorization": …}``.
    sleep : callable
        Waits a number of seconds.
    transport : httpx.BaseTransport, optional
        How requests travel.

    Raises
    ------
    OptionError
        If the protocol cannot be told, or an option is not possible.
    """

    def __init__(
        self,
        url: str,
        *,
        protocol: str | None = None,
        model_name: str | None = None,
        classes: ArrayLike | None = None,
        columns: Sequence[str] | None = None,
        output: str | None = None,
        batch_size: int = 1000,
        timeout: float = 30.0,
        retries: int = 4,
        headers: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.protocol = _protocol(url, protocol, model_name)
        self.url = _endpoint(url, self.protocol, model_name)
        for name, number, least in (("batch_size", batch_size, 1), ("retries", retries, 0)):
            if not isinstance(number, (int, float, np.number)) or not number >= least or number % 1 != 0:
                raise OptionError(f"{name}={number}. Give a whole number of at least {least}.")
        if not isinstance(timeout, (int, float, np.number)) or not timeout > 0.0:
            raise OptionError(f"timeout={timeout}. Give seconds above zero.")
        self.columns = None if columns is None else list(columns)
        self.output = output
        self.batch_size = int(batch_size)
        self._http = Connection(self.url, dict(headers or {}), timeout, int(retries), sleep, transport)
        self._metadata: dict[str, Any] | None = None
        self._has_answered = False
        if classes is not None:
            self.classes_ = _labels(classes)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Ask the service for class probabilities.

        Parameters
        ----------
        X : DataFrame or array, shape (n, d)
            Numbers alone are sent as one tensor, a table with text as one named input per column (v2); MLflow gets a
            DataFrame with its columns, or a tensor for an array without. A missing value is sent as null.

        Returns
        -------
        ndarray, shape (n, n_classes), or (n,) where the service gives the probability of the second class alone

        Raises
        ------
        OracleError
            If the service cannot be reached, refuses the request, stays busy, or answers with anything but numbers.
        OptionError
            If its first answer does not fit `classes` or `output`.
        """
        table = self._table(X)
        if len(table) == 0:
            return np.empty((0, len(getattr(self, "classes_", ()))))
        rows = getattr(table, "iloc", table)
        parts = [rows[first : first + self.batch_size] for first in range(0, len(table), self.batch_size)]
        answer = np.concatenate([self._ask(part) for part in parts])
        self._has_answered = True
        return answer

    def close(self) -> None:
        """Close the connections; they open again with the next request."""
        self._http.close()

    def __enter__(self) -> RemoteModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def n_requests(self) -> int:
        """How many requests were sent."""
        return self._http.n_requests

    # Asking

    def _table(self, X: Any) -> Any:
        """Make the table a DataFrame where it has names or text, and an array of numbers otherwise."""
        if isinstance(X, pd.DataFrame):
            return X
        array = np.asarray(X)
        if self.columns is not None:
            if array.shape[1:] != (len(self.columns),):
                raise OracleError(
                    f"The table has shape {array.shape}, but columns= names {len(self.columns)}. Name each column once."
                )
            return pd.DataFrame(array, columns=self.columns).infer_objects()
        return array if array.dtype.kind in "biuf" else pd.DataFrame(array).infer_objects()

    def _ask(self, table: Any) -> NDArray[Any]:
        numbers = self._ask_by_protocol(table)
        n_columns, n_classes = numbers.size // len(table), len(getattr(self, "classes_", ())) or None
        if n_classes not in (None, n_columns) and (n_columns, n_classes) != (1, 2):
            answered = f"answered {n_columns} number{'' if n_columns == 1 else 's'} per row"
            self._misfit(
                f"{answered}, and classes= (--classes) names {self.classes_.tolist()}",
                "Name one class per column, in the order of the columns.",
            )
        return numbers

    def _ask_by_protocol(self, table: Any) -> NDArray[Any]:
        if self.protocol == "mlflow":
            return self._from_mlflow(self._http.post(_mlflow_request(table)), len(table))
        request = {"inputs": list(self._inputs(table)), "outputs": [{"name": self._output()}]}
        if len(request["inputs"]) > 1:
            request["parameters"] = {"content_type": "pd"}  # type: ignore[assignment]  # MLServer: one input per column
        return self._from_v2(self._http.post(request), len(table))

    def _misfit(self, what: str, remedy: str) -> NoReturn:
        """Refuse an option that the first answer does not fit; a later one that does not is the service's fault."""
        self._http.fail(what, remedy, kind=OracleError if self._has_answered else OptionError)

    # Open Inference Protocol v2

    def _model(self) -> dict[str, Any]:
        """The model's metadata, asked once; empty where the service has none."""
        if self._metadata is None:
            parts = urlsplit(self.url)
            answer = self._http.request("GET", urlunsplit(parts._replace(path=parts.path.removesuffix("/infer"))))
            self._metadata = _metadata(answer)
        return self._metadata

    def _output(self) -> str:
        if self.output is not None:
            return self.output
        names = [output["name"] for output in self._model()["outputs"]]
        known = [name for name in PROBABILITY_OUTPUTS if name in names]
        if not known and len(names) > 1:
            self._misfit(f"has the outputs {self._http.quote(names)}", CHOOSE_OUTPUT)
        return (known or names or ["predict_proba"])[0]

    def _inputs(self, table: Any) -> Iterator[dict[str, Any]]:
        declared = self._model()["inputs"]
        is_array = isinstance(table, np.ndarray)
        if not is_array:  # categories by their values
            table = table.astype({n: object for n in table if table[n].dtype.name == "category"}).infer_objects()
        numeric = is_array or all(dtype.kind in "biuf" for dtype in table.dtypes)
        if numeric and len(declared) < 2:
            numbers = table if is_array else _numbers(table)
            name, datatype = (declared[0]["name"], declared[0].get("datatype")) if declared else ("input-0", None)
            yield self._tensor(name, numbers, datatype)
            return
        if is_array:
            if table.shape[1] > len(declared):
                self._http.fail(
                    f"declares {len(declared)} inputs, and the table has {table.shape[1]} columns",
                    "Give the columns that the model takes.",
                )
            table = pd.DataFrame(table, columns=[tensor["name"] for tensor in declared[: table.shape[1]]])
        datatypes = {tensor["name"]: tensor.get("datatype") for tensor in declared}
        for name in table.columns:
            yield self._column(str(name), table[name], datatypes.get(str(name)))

    def _column(self, name: str, column: pd.Series[Any], datatype: str | None) -> dict[str, Any]:
        if column.dtype.kind in "biuf":
            return self._tensor(name, _numbers(column.to_frame()), datatype)
        values = column.astype(object).where(column.notna(), None).tolist()
        other = next((value for value in values if not isinstance(value, str | None)), None)
        if other is not None:
            self._http.fail(f"cannot be asked with {other!r} in column {name!r}", "Make the column text or numbers.")
        return {
            "name": name,
            "shape": [len(values), 1],
            "datatype": "BYTES",
            "data": values,
            "parameters": {"content_type": "str"},
        }

    def _tensor(self, name: str, numbers: NDArray[Any], datatype: str | None) -> dict[str, Any]:
        """A tensor of the declared type, which must hold what is there: a model asked with 0 says nothing of 0.7."""
        if numbers.dtype.itemsize > 8:
            self._http.fail(f"cannot be asked with numbers of type {numbers.dtype}", "Give them as float64.")
        values, missing = numbers, np.isnan(numbers)
        if datatype in DATATYPES:
            with np.errstate(all="ignore"):
                values = np.where(missing, 0, numbers).astype(DATATYPES[datatype])
            lost = numbers[(values != numbers) & ~missing] if values.dtype.kind != "f" else numbers[:0]
            if lost.size:
                self._http.fail(
                    f"declares {datatype} for input {name!r}, which cannot hold {lost.flat[0]}",
                    "Declare a type in the service that holds the numbers, or give a table of that type.",
                )
        return {
            "name": name,
            "shape": list(numbers.shape),
            "datatype": NAMES[values.dtype.newbyteorder("=")],
            "data": np.where(missing, np.array(None), values.astype(object)).ravel().tolist(),
        }

    def _from_v2(self, answer: Any, n_rows: int) -> NDArray[Any]:
        outputs = answer.get("outputs") if isinstance(answer, dict) else None
        if not outputs or not _are_dicts(outputs):
            self._http.fail(f"answered without outputs: {self._http.quote(answer)}", "Check the address.")
        output = self._chosen(outputs)
        datatype, shape = str(output.get("datatype")), output.get("shape")
        if datatype not in DATATYPES or not datatype.startswith("FP"):
            self._http.fail(
                f"answered with {datatype} in output {output.get('name')!r}, not with probabilities",
                "Say with output= which output holds them.",
            )
        numbers = self._answer(output.get("data"), n_rows)
        if isinstance(shape, list) and len(shape) == 2 and shape[0] != n_rows:  # classes by rows, say
            self._http.fail(
                f"answered {n_rows} rows with shape {shape} in output {output.get('name')!r}",
                "Let it hold one row of probabilities per row, or say with output= which output does.",
            )
        numbers = numbers.reshape(n_rows, -1)
        name = output.get("name")
        if numbers.shape[1] == 1 and hasattr(self, "classes_") and name in _texts(self.classes_.tolist()[0]):
            self._misfit(
                f"answered one number per row in output {name!r}, which bears the name of the first class",
                "Such a number is read as the probability of the second class: give classes= (--classes) in the other "
                "order.",
            )
        return numbers

    def _chosen(self, outputs: list[dict[str, Any]]) -> dict[str, Any]:
        """The output of probabilities: by its name, else the only one that can be."""
        names = [output.get("name") for output in outputs]
        wanted = [self.output] if self.output is not None else [self._output(), *PROBABILITY_OUTPUTS]
        for name in wanted:
            if name in names:
                return outputs[names.index(name)]
        if self.output is not None:
            self._misfit(f"has no output {self.output!r}; it answered with {self._http.quote(names)}", CHOOSE_OUTPUT)
        able = [output for output in outputs if str(output.get("datatype")).startswith("FP")] or outputs[:1]
        if len(able) > 1:
            names = [output.get("name") for output in able]
            self._misfit(f"answered with the outputs {self._http.quote(names)}", CHOOSE_OUTPUT)
        return able[0]

    # MLflow

    def _from_mlflow(self, answer: Any, n_rows: int) -> NDArray[Any]:
        predictions = answer.get("predictions") if isinstance(answer, dict) else None
        if not isinstance(predictions, list) or len(predictions) != n_rows:
            self._http.fail(
                f"answered without one prediction per row: {self._http.quote(answer)}", "Check the address."
            )
        return self._answer(self._by_name(predictions) if _are_dicts(predictions) else predictions, n_rows)

    def _by_name(self, records: list[dict[str, Any]]) -> list[list[Any]]:
        """Probabilities in the order of the classes, which the names must be: an object has no order of its own."""
        labels = getattr(self, "classes_", np.arange(max(len(records[0]), 2))).tolist()
        place = {text: position for position, label in enumerate(labels) for text in _texts(label)}
        rows = []
        for row, record in enumerate(records):
            if set(record) != set(records[0]):
                self._http.fail(
                    f"answered with the names {self._http.quote(list(records[0]))} in its first row, and "
                    f"{self._http.quote(list(record))} in row {row}",
                    "Let it give every row the same names, those of the classes.",
                )
            found = {place.get(name): number for name, number in record.items()}
            complete = set(found) == set(range(len(labels))) or (list(found) == [1] and len(labels) == 2)
            if not complete or len(found) < len(record):
                self._misfit(
                    f"answered with the names {self._http.quote(list(record))}, and the classes are {labels}",
                    "Name the classes as it does, in the order that you want (classes=, --classes), or let it answer "
                    "with lists of numbers.",
                )
            rows.append([found[position] for position in range(len(labels)) if position in found])
        return rows

    def _answer(self, data: Any, n_rows: int) -> NDArray[Any]:
        try:
            numbers = np.array(data, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            numbers = None
        are_labels = numbers is not None and ((numbers >= 2) | (numbers <= -1)).any()
        if numbers is None or numbers.size == 0 or numbers.size % n_rows or are_labels:
            self._http.fail(
                f"does not answer with probabilities but with {self._http.quote(data)[:100]}",
                'Serve predict_proba; MLflow does so for models logged with pyfunc_predict_fn="predict_proba".',
            )
        return numbers


def _protocol(url: str, protocol: str | None, model_name: str | None) -> str:
    if protocol is not None:
        if protocol not in ("v2", "mlflow"):
            raise OptionError(f"protocol={protocol!r}. Give 'v2' or 'mlflow'.")
        return protocol
    path = address_parts(url).path
    if "/v2/models/" in path or model_name is not None:
        return "v2"
    if path.rstrip("/").endswith("/invocations"):
        return "mlflow"
    server = shown_address(url).partition("?")[0].rstrip("/")
    raise OptionError(
        f"The protocol of {shown_address(url)} cannot be told from its path. Give the model's own address, such as "
        f"{server}/v2/models/NAME or {server}/invocations, or protocol='v2' or 'mlflow'."
    )


def _endpoint(url: str, protocol: str, model_name: str | None) -> str:
    parts = address_parts(url)  # a query, such as ?api-version=2, stays behind the path
    path = parts.path.rstrip("/")
    if protocol == "v2" and "/v2/models/" not in path:
        if model_name is None:
            raise OptionError(f"{shown_address(url)} names no model. Give model_name=, or an address …/v2/models/NAME.")
        path = f"{path.removesuffix('/v2')}/v2/models/{model_name}"
    end = "/invocations" if protocol == "mlflow" else "/infer"
    return urlunsplit(parts._replace(path=path if path.endswith(end) else path + end))


def _labels(classes: ArrayLike) -> NDArray[Any]:
    labels = np.asarray(classes)
    if labels.ndim != 1 or labels.size == 0 or len(set(labels.tolist())) != labels.size:
        raise OptionError(f"classes={labels.tolist()} (--classes). Name each class once, in the order of the columns.")
    return labels


def _texts(label: Any) -> set[str]:
    """A class as an answer may write it for a name."""
    return {str(label), str(label).lower()} if isinstance(label, bool) else {str(label)}


def _are_dicts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, dict) for value in values)


def _metadata(answer: httpx.Response) -> dict[str, Any]:
    """What a model declares of its inputs and outputs; nothing where the service has no word of it, or a broken one."""
    found: Any = {}
    with suppress(ValueError):
        found = answer.json() if answer.status_code == 200 else {}
    known: dict[str, Any] = {"inputs": [], "outputs": []}
    for part in known:
        tensors: Any = found.get(part) if isinstance(found, dict) else None
        if _are_dicts(tensors) and all("name" in tensor for tensor in tensors):
            known[part] = tensors
    return known


def _numbers(frame: pd.DataFrame) -> NDArray[Any]:
    """Numeric columns as one array; nullable ones with NaN where something is missing."""
    if frame.isna().to_numpy().any():
        return frame.to_numpy(dtype=np.float64, na_value=np.nan)
    dtypes = [getattr(dtype, "numpy_dtype", dtype) for dtype in frame.dtypes]
    return frame.to_numpy(dtype=np.result_type(*dtypes))


def _mlflow_request(table: Any) -> dict[str, Any]:
    if isinstance(table, np.ndarray):
        return {"inputs": [_without_nan(row) for row in table.tolist()]}
    values = table.astype(object).where(table.notna(), None)
    return {"dataframe_split": {"columns": list(table.columns), "data": values.to_numpy().tolist()}}


def _without_nan(numbers: list[Any]) -> list[Any]:
    return [None if number != number else number for number in numbers]
