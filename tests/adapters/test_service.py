"""Remote models: what is sent, what is understood, when a request is repeated; and the real servers."""

import gzip
import json
import os
import pickle
import re
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest

import macem
from macem.adapters import ensemble, oracle_for
from macem.adapters.check import check_table
from macem.adapters.service import RemoteModel
from macem.errors import LabelsWarning, OptionError, OracleError

httpx = pytest.importorskip("httpx")

NUMBERS = np.array([[0.5, 1.0], [-0.25, np.nan], [2.0, 3.0]])
TABLE = pd.DataFrame(
    {
        "amount": [0.5, np.nan, 2.0],
        "months": [1, 2, 3],
        "own": [True, False, True],
        "purpose": pd.Categorical(["car", None, "radio"]),
    }
)
V2, MLFLOW = "http://host/v2/models/credit", "http://host/invocations"


class Server:
    """Answers 0.25 and 0.75 to every row, after the statuses that it was told; keeps what it was asked."""

    def __init__(self, *statuses, headers=None, metadata=None, answer=None):
        self.statuses = list(statuses)
        self.headers = headers or {}
        self.metadata = metadata
        self.answer = answer
        self.text = "not now"
        self.asked = []
        self.waits = []

    def __call__(self, request):
        if request.method == "GET":
            return httpx.Response(404) if self.metadata is None else httpx.Response(200, json=self.metadata)
        body = json.loads(request.content)
        self.asked.append((request, body))
        if self.statuses:
            status = self.statuses.pop(0)
            if status != 200:
                return httpx.Response(status, headers=self.headers, text=self.text)
        return httpx.Response(200, json=self.respond(body) if self.answer is None else self.answer)

    def respond(self, body):
        if "inputs" in body and isinstance(body["inputs"][0], dict):
            n_rows = body["inputs"][0]["shape"][0]
            name = body["outputs"][0]["name"]
            data = [0.25, 0.75] * n_rows
            return {"outputs": [{"name": name, "shape": [n_rows, 2], "datatype": "FP64", "data": data}]}
        rows = body["inputs"] if "inputs" in body else body["dataframe_split"]["data"]
        return {"predictions": [[0.25, 0.75]] * len(rows)}

    def model(self, url=V2, **options):
        return RemoteModel(url, transport=httpx.MockTransport(self), sleep=self.waits.append, **options)


@pytest.fixture
def server():
    return Server()


# What is sent


@pytest.mark.parametrize("url", [V2, MLFLOW])
@pytest.mark.parametrize("table", [NUMBERS, TABLE], ids=["array", "frame"])
def test_answers_become_probabilities(server, url, table):
    with server.model(url) as model:
        np.testing.assert_array_equal(model.predict_proba(table), [[0.25, 0.75]] * 3)


def test_numbers_are_one_tensor(server):
    server.model().predict_proba(NUMBERS)
    request, body = server.asked[0]
    assert str(request.url) == f"{V2}/infer"
    assert body == {
        "inputs": [{"name": "input-0", "shape": [3, 2], "datatype": "FP64", "data": [0.5, 1.0, -0.25, None, 2.0, 3.0]}],
        "outputs": [{"name": "predict_proba"}],
    }


@pytest.mark.parametrize(
    ("table", "datatype", "data"),
    [
        (np.array([[1, 2]]), "INT64", [1, 2]),
        (np.array([[1, 2]], dtype=np.float32), "FP32", [1.0, 2.0]),
        (np.array([[1, 2]], dtype=">f4"), "FP32", [1.0, 2.0]),
        (pd.DataFrame({"a": np.array([1, 2], dtype=">i8")}), "INT64", [1, 2]),
        (pd.DataFrame({"a": [1], "b": [2.5]}), "FP64", [1.0, 2.5]),
        (pd.DataFrame({"a": pd.array([1], dtype="Int64"), "b": [2]}), "INT64", [1, 2]),
        (pd.DataFrame({"a": pd.array([None], dtype="Int64"), "b": [2]}), "FP64", [None, 2.0]),
        (pd.DataFrame({"a": pd.Categorical([3]), "b": [2]}), "INT64", [3, 2]),
    ],
)
def test_dtypes_of_a_tensor(server, table, datatype, data):
    server.model().predict_proba(table)
    (tensor,) = server.asked[0][1]["inputs"]
    assert (tensor["datatype"], tensor["data"]) == (datatype, data)


def test_a_mixed_table_has_one_named_input_per_column(server):
    server.model().predict_proba(TABLE)
    body = server.asked[0][1]
    assert body["parameters"] == {"content_type": "pd"}
    assert [(i["name"], i["shape"], i["datatype"], i["data"]) for i in body["inputs"]] == [
        ("amount", [3, 1], "FP64", [0.5, None, 2.0]),
        ("months", [3, 1], "INT64", [1, 2, 3]),
        ("own", [3, 1], "BOOL", [True, False, True]),
        ("purpose", [3, 1], "BYTES", ["car", None, "radio"]),
    ]


def test_metadata_names_inputs_outputs_and_types():
    tensors = [{"name": name, "datatype": "FP32", "shape": [-1, 1]} for name in ("amount", "months")]
    outputs = [{"name": "label", "datatype": "INT64"}, {"name": "probabilities", "datatype": "FP32"}]
    server = Server(metadata={"inputs": tensors, "outputs": outputs})
    for table in (TABLE[["amount", "months"]], NUMBERS):
        server.model().predict_proba(table)
        body = server.asked[-1][1]
        assert [(i["name"], i["datatype"]) for i in body["inputs"]] == [("amount", "FP32"), ("months", "FP32")]
        assert body["outputs"] == [{"name": "probabilities"}]


def test_one_declared_input_gets_all_numbers():
    server = Server(metadata={"inputs": [{"name": "X", "datatype": "FP32"}], "outputs": [{"name": "scores"}]})
    server.model().predict_proba(NUMBERS)
    body = server.asked[0][1]
    assert [(i["name"], i["datatype"], i["shape"]) for i in body["inputs"]] == [("X", "FP32", [3, 2])]
    assert body["outputs"] == [{"name": "scores"}]


def test_several_unknown_outputs_must_be_chosen():
    server = Server(metadata={"outputs": [{"name": "a"}, {"name": "b"}]})
    with pytest.raises(OptionError, match=r"outputs \['a', 'b'\].*output= \(--output-name\)"):
        server.model().predict_proba(NUMBERS)
    server.model(output="b").predict_proba(NUMBERS)
    assert server.asked[0][1]["outputs"] == [{"name": "b"}]


def test_mlflow_gets_a_split_frame(server):
    server.model(MLFLOW).predict_proba(TABLE)
    assert server.asked[0][1] == {
        "dataframe_split": {
            "columns": ["amount", "months", "own", "purpose"],
            "data": [[0.5, 1, True, "car"], [None, 2, False, None], [2.0, 3, True, "radio"]],
        }
    }


def test_mlflow_gets_a_tensor_for_an_array_without_names(server):
    server.model(MLFLOW).predict_proba(NUMBERS)
    assert server.asked[0][1] == {"inputs": [[0.5, 1.0], [-0.25, None], [2.0, 3.0]]}


def test_given_columns_name_an_array(server):
    server.model(MLFLOW, columns=["a", "b"]).predict_proba(NUMBERS)
    assert server.asked[0][1]["dataframe_split"]["columns"] == ["a", "b"]
    with pytest.raises(OracleError, match=r"shape \(3, 2\), but columns= names 1"):
        server.model(MLFLOW, columns=["a"]).predict_proba(NUMBERS)


def test_rows_go_in_batches(server):
    rows = np.arange(14.0).reshape(7, 2)
    model = server.model(batch_size=3)
    assert model.predict_proba(rows).shape == (7, 2)
    assert [body["inputs"][0]["shape"][0] for _, body in server.asked] == [3, 3, 1]
    assert [value for _, body in server.asked for value in body["inputs"][0]["data"]] == list(np.arange(14.0))
    assert model.n_requests == 4  # one for the metadata


def test_no_rows_no_request(server):
    assert server.model(classes=["a", "b"]).predict_proba(NUMBERS[:0]).shape == (0, 2)
    assert server.asked == []


def test_headers_are_sent_and_not_told():
    server = Server(500)
    with pytest.raises(OracleError) as error:
        server.model(headers={"Authorization": "Bearer secret"}).predict_proba(NUMBERS)
    assert server.asked[0][0].headers["Authorization"] == "Bearer secret"
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["X-é", "Bad Name", "", "A:", "A\n", 3, b"A"])
def test_a_name_of_a_header_that_cannot_be_sent(name):
    with pytest.raises(
        OptionError, match=rf"The header {re.escape(repr(name))} has a name that cannot be sent\. Write"
    ):
        RemoteModel(V2, headers={name: "secret"})


@pytest.mark.parametrize("value", ["secrét", "secret\n", "secret\r\nB: c", " secret", "secret ", b"secret", None])
def test_a_value_of_a_header_that_cannot_be_sent(value):
    with pytest.raises(OptionError, match=r"The header 'A' holds a value that cannot be sent\. Make") as error:
        RemoteModel(V2, headers={"A": value})
    assert "secr" not in str(error.value)


def test_headers_of_all_that_can_be_sent(server):
    headers = {"X_a.b-C1!#$%&'*+^`|~": "", "Authorization": 'Basic a+/=\t"~!"', "A": "b"}
    server.model(headers=headers).predict_proba(NUMBERS)
    assert {name: server.asked[0][0].headers[name] for name in headers} == headers


# When it is repeated


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_service_is_asked_again_after_longer_and_longer_waits(status):
    server = Server(status, status, status)
    server.model().predict_proba(NUMBERS)
    assert len(server.asked) == 4
    assert server.waits == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("86400", 30.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("soon", 0.5),
        ("-3", 0.0),
        ("nan", 30.0),
    ],
)
def test_retry_after_is_honoured_within_reason(header, wait):
    server = Server(503, headers={"Retry-After": header})
    server.model().predict_proba(NUMBERS)
    assert server.waits == [wait]


def test_a_service_that_stays_busy_is_an_error():
    server = Server(*[503] * 9)
    with pytest.raises(OracleError, match=r"stayed busy: 503 after 3 requests.*batch_size="):
        server.model(retries=2).predict_proba(NUMBERS)
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422, 500])
def test_anything_else_is_not_repeated(status):
    server = Server(status)
    with pytest.raises(OracleError, match=rf"{V2}/infer answered {status} .*not now.*Check the address"):
        server.model().predict_proba(NUMBERS)
    assert len(server.asked) == 1
    assert server.waits == []


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/other/invocations", "http://host/other/invocations"),
        ("https://other/invocations?version=2", "https://other/invocations?version=2"),
        ("https://me:hidden@other/login?token=hidden&version=2#hidden", "https://other/login?token=…&version=2"),
        ("/login/not-to-be-seen", "http://host/login/…"),
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_tells_where_to(status, location, shown):
    server = Server(status, headers={"Location": location})
    server.text = location
    with pytest.raises(OracleError) as error:
        server.model("http://me:not-to-be-seen@host/invocations").predict_proba(NUMBERS)
    assert f", a redirect to {shown}. It is not followed" in str(error.value)
    assert f"answered {status} " in str(error.value)
    assert "hidden" not in str(error.value)
    assert "not-to-be-seen" not in str(error.value)
    assert len(server.asked) == 1


def test_a_service_that_is_not_there():
    model = RemoteModel(f"http://127.0.0.1:{free_port()}/invocations")
    with model, pytest.raises(OracleError, match=r"cannot be reached: ConnectError"):
        model.predict_proba(NUMBERS)


def test_time_out():
    def slow(request):
        raise httpx.ReadTimeout("timed out", request=request)

    model = RemoteModel(MLFLOW, transport=httpx.MockTransport(slow), timeout=0.1)
    with pytest.raises(OracleError, match=r"ReadTimeout: timed out.*timeout=0\.1"):
        model.predict_proba(NUMBERS)


class Drip(httpx.BaseTransport):
    """Sends its answer byte by byte, in so many seconds each."""

    def __init__(self, seconds, coding=None):
        self.seconds, self.coding = seconds, coding
        self.now = 0.0
        self.closed = 0

    def handle_request(self, request):
        content = json.dumps(Server().respond(json.loads(request.content))).encode()
        content = gzip.compress(content) if self.coding else content
        headers = {"Content-Encoding": "gzip"} if self.coding else {}
        return httpx.Response(200, headers=headers, stream=Bytes(self, content))


class Bytes(httpx.SyncByteStream):
    def __init__(self, drip, content):
        self.drip, self.content = drip, content

    def __iter__(self):
        for byte in self.content:
            self.drip.now += self.drip.seconds
            yield bytes([byte])

    def close(self):
        self.drip.closed += 1


@pytest.mark.parametrize("coding", [None, "gzip"])
def test_the_time_is_for_the_whole_answer(coding, monkeypatch):
    drip = Drip(0.75, coding)
    monkeypatch.setattr(time, "monotonic", lambda: drip.now)
    model = RemoteModel(MLFLOW, transport=drip, timeout=2)
    with pytest.raises(OracleError, match=r"did not answer wholly within 2 s\. Give it more time \(timeout=\)"):
        model.predict_proba(NUMBERS)
    assert (drip.now, drip.closed) == (2.25, 1)
    drip.seconds = 2.0**-8
    np.testing.assert_array_equal(model.predict_proba(NUMBERS), [[0.25, 0.75]] * 3)
    assert (model.n_requests, drip.closed) == (2, 2)


def test_the_time_before_an_answer_counts(monkeypatch):
    now = [0.0]

    def slow(request):
        now[0] += 3.0
        return Server()(request)

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with pytest.raises(OracleError, match="within 2 s"):
        RemoteModel(MLFLOW, transport=httpx.MockTransport(slow), timeout=2).predict_proba(NUMBERS)


# What is understood


def v2_answer(datatype, data):
    return {"outputs": [{"name": "p", "datatype": datatype, "shape": [len(data)], "data": data}]}


def test_probability_of_the_second_class_alone():
    server = Server(answer={"predictions": [0.1, 0.2, 0.3]})
    oracle = oracle_for(server.model(MLFLOW, classes=["bad", "good"]))
    np.testing.assert_allclose(oracle.predict_proba(NUMBERS)[:, 1], [0.1, 0.2, 0.3], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("url", "answer", "message"),
    [
        (MLFLOW, {"predictions": ["good", "bad", "good"]}, r"not answer with probabilities.*pyfunc_predict_fn"),
        (MLFLOW, {"predictions": [0, 2, 1]}, r"probabilities but with \[0, 2, 1\]\. .*pyfunc_predict_fn"),
        (MLFLOW, {"predictions": [1, -1, 1]}, r"probabilities but with \[1, -1, 1\]\. .*pyfunc_predict_fn"),
        (MLFLOW, {"predictions": [[0.5, 0.5]]}, "one prediction per row"),
        (MLFLOW, {"error": "?"}, "one prediction per row"),
        (MLFLOW, [1, 2, 3], "one prediction per row"),
        (V2, {"outputs": []}, "without outputs"),
        (V2, "text", "without outputs"),
        (V2, v2_answer("INT64", [0, 1, 0]), "INT64 in output 'p'"),
        (V2, v2_answer("BYTES", ["a", "b", "a"]), "BYTES in output 'p'"),
        (V2, v2_answer("FP64", [0.5]), "not answer with probabilities"),
        (V2, {"outputs": ["p"]}, "without outputs"),
        (V2, {"outputs": {"p": [0.5, 0.5, 0.5]}}, "without outputs"),
        (V2, {"outputs": [{"name": "p", "data": [0.5] * 3}]}, "None in output 'p'"),
        (V2, {"outputs": [{"name": "p", "datatype": "FP64", "parameters": {}}]}, "not answer with probabilities"),
        (
            V2,
            {"outputs": [{"name": "p", "datatype": "FP64", "shape": [2, 3], "data": [0.25] * 3 + [0.75] * 3}]},
            r"answered 3 rows with shape \[2, 3\]",
        ),
        (MLFLOW, {"predictions": [{"p": 0.5}, [0.5], [0.5]]}, "not answer with probabilities"),
        (MLFLOW, {"predictions": [10**400] * 3}, "not answer with probabilities"),
    ],
)
def test_answers_that_are_no_probabilities(url, answer, message):
    with pytest.raises(OracleError, match=message):
        Server(answer=answer).model(url).predict_proba(NUMBERS)


def test_an_answer_that_is_no_json():
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>login</html>"))
    with pytest.raises(OracleError, match=r"not JSON: <html>login"):
        RemoteModel(MLFLOW, transport=transport).predict_proba(NUMBERS)


def test_what_cannot_be_sent(server):
    with pytest.raises(OracleError, match="infinite"):
        server.model().predict_proba(np.array([[np.inf, 0.0]]))
    if np.dtype(np.longdouble).itemsize > 8:
        with pytest.raises(OracleError, match=r"cannot be asked with numbers of type .*\. Give them as float64"):
            server.model().predict_proba(NUMBERS.astype(np.longdouble))
    with pytest.raises(OracleError, match=r"cannot be asked with \(1, 2\) in column 'b'"):
        server.model().predict_proba(pd.DataFrame({"a": ["x"], "b": [(1, 2)]}))
    with pytest.raises(OracleError, match=r"cannot be asked with this table \(.*Timestamp"):
        server.model(MLFLOW).predict_proba(pd.DataFrame({"a": [pd.Timestamp("2020-01-01")]}))
    assert server.asked == []


@pytest.mark.parametrize(
    ("datatype", "row", "value"),
    [("INT64", [1.0, 0.7], r"0\.7"), ("UINT8", [256.0, 1.0], r"256\.0"), ("BOOL", [0, 2], "2")],
)
def test_a_declared_type_that_cannot_hold_a_number(datatype, row, value):
    server = Server(metadata={"inputs": [{"name": "x", "datatype": datatype}]})
    with pytest.raises(OracleError, match=rf"declares {datatype} for input 'x', which cannot hold {value}\."):
        server.model().predict_proba(np.array([row]))
    assert server.asked == []


def test_a_missing_value_is_null_in_a_type_of_integers():
    server = Server(metadata={"inputs": [{"name": "x", "datatype": "INT64"}]})
    server.model().predict_proba(np.array([[1.0, np.nan]]))
    assert server.asked[0][1]["inputs"][0]["data"] == [1, None]


def test_fewer_declared_inputs_than_columns():
    metadata = {"inputs": [{"name": "a", "datatype": "FP64"}, {"name": "b", "datatype": "FP64"}]}
    with pytest.raises(OracleError, match="declares 2 inputs, and the table has 3 columns"):
        Server(metadata=metadata).model().predict_proba(np.zeros((2, 3)))


@pytest.mark.parametrize("metadata", [[1], "x", {"inputs": ["a"], "outputs": [{"datatype": "FP64"}]}])
def test_metadata_that_say_nothing(metadata):
    server = Server(metadata=metadata)
    assert server.model().predict_proba(NUMBERS).shape == (3, 2)
    assert server.asked[0][1]["inputs"][0]["name"] == "input-0"


def test_metadata_that_are_no_json():
    def answer(request):
        return httpx.Response(200, text="<html>") if request.method == "GET" else Server()(request)

    assert RemoteModel(V2, transport=httpx.MockTransport(answer)).predict_proba(NUMBERS).shape == (3, 2)


# Names in an answer


@pytest.mark.parametrize(
    ("classes", "first", "second"),
    [
        (["bad", "good"], "bad", "good"),
        (["good", "bad"], "good", "bad"),
        (None, "0", "1"),
        ([0, 1], "0", "1"),
        ([1, 0], "1", "0"),
        (["0", "1"], "0", "1"),
        ([False, True], "false", "true"),
        ([False, True], "False", "True"),
    ],
)
def test_mlflow_records_are_read_by_the_names_of_the_classes(classes, first, second):
    records = [{second: 0.9, first: 0.1}, {first: 0.8, second: 0.2}, {second: 0.7, first: 0.3}]
    server = Server(answer={"predictions": records})
    answer = server.model(MLFLOW, classes=classes).predict_proba(NUMBERS)
    np.testing.assert_array_equal(answer, [[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])


@pytest.mark.parametrize(("classes", "name"), [(["bad", "good"], "good"), (None, "1")])
def test_mlflow_records_of_the_second_class_alone(classes, name):
    server = Server(answer={"predictions": [{name: 0.25}] * 3})
    oracle = oracle_for(server.model(MLFLOW, classes=classes))
    np.testing.assert_array_equal(oracle.predict_proba(NUMBERS), [[0.75, 0.25]] * 3)


@pytest.mark.parametrize(
    ("classes", "record", "names"),
    [
        (None, {"bad": 0.1, "good": 0.9}, r"\['bad', 'good'\], and the classes are \[0, 1\]"),
        (["bad", "good"], {"0": 0.1, "1": 0.9}, r"\['0', '1'\], and the classes are \['bad', 'good'\]"),
        (["bad", "good"], {"bad": 0.1, "okay": 0.9}, r"\['bad', 'okay'\]"),
        (["bad", "good"], {"bad": 0.1, "good": 0.8, "?": 0.1}, r"\['bad', 'good', '\?'\]"),
        (["bad", "fair", "good"], {"bad": 0.1, "good": 0.9}, r"\['bad', 'good'\]"),
        (["bad", "fair", "good"], {"fair": 0.1}, r"\['fair'\]"),
        (["bad", "good"], {"bad": 0.1}, r"\['bad'\]"),
        (None, {"0": 0.1}, r"\['0'\]"),
        (None, {"p": 0.1}, r"\['p'\]"),
        (["bad", "good"], {}, r"\[\]"),
        ([False, True], {"false": 0.1, "true": 0.1, "True": 0.8}, r"\['false', 'true', 'True'\]"),
    ],
)
def test_records_of_other_names_are_refused(classes, record, names):
    server = Server(answer={"predictions": [record] * 3})
    with pytest.raises(OptionError, match=rf"{MLFLOW} answered with the names {names}.* \(classes=, --classes\)"):
        server.model(MLFLOW, classes=classes).predict_proba(NUMBERS)


def test_records_whose_names_differ_between_rows():
    server = Server(answer={"predictions": [{"bad": 0.1, "good": 0.9}] * 2 + [{"bad": 1.0}]})
    with pytest.raises(OracleError, match=r"\['bad', 'good'\] in its first row, and \['bad'\] in row 2\."):
        server.model(MLFLOW, classes=["bad", "good"]).predict_proba(NUMBERS)


def output(name, datatype="FP64", data=(0.25, 0.75) * 3):
    return {"name": name, "datatype": datatype, "shape": [3, len(data) // 3], "data": list(data)}


LABELS = [output("label", "INT64", [1, 1, 1]), output("text", "BYTES", ["a", "b", "a"])]


@pytest.mark.parametrize(
    ("chosen", "outputs"),
    [
        (None, [output("scores")]),
        (None, [*LABELS, output("scores")]),
        (None, [output("noise", data=[0.5] * 6), output("probabilities")]),
        (None, [output("probabilities", data=[0.5] * 6), output("predict_proba")]),
        ("scores", [output("predict_proba", data=[0.5] * 6), output("scores")]),
    ],
)
def test_the_output_of_probabilities_is_found(chosen, outputs):
    answer = Server(answer={"outputs": outputs}).model(output=chosen).predict_proba(NUMBERS)
    np.testing.assert_array_equal(answer, [[0.25, 0.75]] * 3)


@pytest.mark.parametrize(
    ("chosen", "outputs", "message"),
    [
        ("probz", [output("noise"), output("probs")], r"no output 'probz'; it answered with \['noise', 'probs'\]"),
        ("probz", [output("probs")], r"no output 'probz'; it answered with \['probs'\]"),
        (None, [*LABELS, output("noise"), output("probs", "FP32")], r"with the outputs \['noise', 'probs'\]"),
    ],
)
def test_an_output_that_must_be_chosen(chosen, outputs, message):
    with pytest.raises(OptionError, match=rf"{message}\. Say with output= \(--output-name\)"):
        Server(answer={"outputs": outputs}).model(output=chosen).predict_proba(NUMBERS)


def test_a_single_output_by_the_name_of_a_class():
    server = Server(answer={"outputs": [output("bad", data=[0.25] * 3)]})
    with pytest.raises(OptionError, match=r"output 'bad', which bears the name of the first class.*--classes"):
        server.model(classes=["bad", "good"]).predict_proba(NUMBERS)
    for classes in (["good", "bad"], None):
        assert server.model(classes=classes).predict_proba(NUMBERS).tolist() == [[0.25]] * 3


@pytest.mark.parametrize("url", [V2, MLFLOW])
@pytest.mark.parametrize("classes", [["bad"], ["bad", "fair", "good"]])
def test_classes_that_are_not_as_many_as_the_columns(server, url, classes):
    with pytest.raises(OptionError, match=rf"answered 2 numbers per row, and classes= \(--classes\) names \{classes}"):
        server.model(url, classes=classes).predict_proba(NUMBERS)


def test_one_number_per_row_is_for_two_classes():
    server = Server(answer={"predictions": [0.1, 0.2, 0.3]})
    with pytest.raises(OptionError, match="answered 1 number per row"):
        server.model(MLFLOW, classes=["bad", "fair", "good"]).predict_proba(NUMBERS)


def test_what_fitted_the_first_answer_is_no_wrong_option_later(server):
    model = server.model(MLFLOW, classes=["bad", "good"])
    model.predict_proba(NUMBERS)
    server.answer = {"predictions": [[0.2, 0.3, 0.5]] * 3}
    with pytest.raises(OracleError, match="answered 3 numbers per row"):
        model.predict_proba(NUMBERS)


# Addresses and options


@pytest.mark.parametrize(
    ("url", "options", "endpoint"),
    [
        ("http://host/v2/models/m", {}, "http://host/v2/models/m/infer"),
        ("http://host/v2/models/m/infer", {}, "http://host/v2/models/m/infer"),
        ("http://host/v2/models/m/versions/3/", {}, "http://host/v2/models/m/versions/3/infer"),
        ("http://host", {"model_name": "m"}, "http://host/v2/models/m/infer"),
        ("http://host/v2/", {"model_name": "m"}, "http://host/v2/models/m/infer"),
        ("http://host/invocations", {}, "http://host/invocations"),
        ("http://host/", {"protocol": "mlflow"}, "http://host/invocations"),
        ("http://host/v2/models/m?version=2", {}, "http://host/v2/models/m/infer?version=2"),
        ("http://host/v2/models/m/infer?version=2", {}, "http://host/v2/models/m/infer?version=2"),
        ("http://host/invocations?version=2", {}, "http://host/invocations?version=2"),
    ],
)
def test_addresses(url, options, endpoint):
    assert RemoteModel(url, **options).url == endpoint


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("http://host", {}, "cannot be told from its path"),
        ("http://host", {"protocol": "v2"}, "names no model"),
        (V2, {"protocol": "grpc"}, "protocol='grpc'"),
        (V2, {"batch_size": 0}, "batch_size=0"),
        (V2, {"batch_size": 1.5}, r"batch_size=1\.5"),
        (V2, {"retries": -1}, "retries=-1"),
        (V2, {"timeout": 0}, "timeout=0"),
        (V2, {"batch_size": "many"}, "batch_size=many"),
        (V2, {"retries": float("nan")}, "retries=nan"),
        (V2, {"timeout": None}, "timeout=None"),
        (V2, {"classes": ["bad", "bad"]}, r"classes=\['bad', 'bad'\] \(--classes\)"),
        (V2, {"classes": []}, r"classes=\[\]"),
        (V2, {"classes": "bad"}, "classes=bad"),
        (None, {}, "url=None is no address"),
        ("http://[host/invocations", {}, "'http://\\[host/invocations' is no address"),
    ],
)
def test_impossible_options(url, options, message):
    with pytest.raises(OptionError, match=message):
        RemoteModel(url, **options)


# Secrets in the address


SECRET = "http://me:pass%2Fword@host/invocations?code=not-to-be%20seen&api-version=2&only-a-key"
SHOWN = "http://host/invocations?code=…&api-version=2&…"
HIDDEN = ("pass%2Fword", "pass/word", "not-to-be", "only-a-key")


def refused(request):
    raise httpx.ConnectError(f"refused by {request.url}", request=request)


def late(request):
    raise httpx.ReadTimeout(f"no answer of {request.url}", request=request)


def echo(status):
    def answer(request):
        return httpx.Response(status, text=f"{'x' * 250} see {request.url} {unquote(str(request.url))}")

    return answer


def records(request):
    return httpx.Response(200, json={"no": [str(request.url)]})


def texts(request):
    return httpx.Response(200, json={"predictions": [str(request.url)] * 3})


@pytest.mark.parametrize(
    "answer",
    [refused, late, records, texts, *(pytest.param(echo(n), id=f"echo {n}") for n in (200, 302, 401, 500, 503))],
)
def test_a_secret_in_the_address_is_sent_and_not_shown(answer):
    asked = []

    def transport(request):
        asked.append(request)
        return answer(request)

    model = RemoteModel(SECRET, transport=httpx.MockTransport(transport), retries=0)
    with pytest.raises(OracleError) as error:
        model.predict_proba(NUMBERS)
    assert asked[0].url.query == b"code=not-to-be%20seen&api-version=2&only-a-key"
    assert asked[0].headers["Authorization"] == "Basic bWU6cGFzcy93b3Jk"  # me:pass/word
    assert f"The service {SHOWN} " in str(error.value)
    assert not [secret for secret in HIDDEN if secret in str(error.value)]


@pytest.mark.parametrize(
    "url",
    [
        "http://me:pass%2Fword@host?code=not-to-be%20seen&only-a-key",  # no protocol
        "http://me:pass/word@host/invocations?code=not-to-be%20seen&only-a-key",  # no port
        "http://me:pass%2Fword@[host/invocations?code=not-to-be%20seen&only-a-key",
    ],
)
@pytest.mark.parametrize("options", [{}, {"protocol": "v2"}])
def test_a_refused_address_is_shown_without_its_secrets(url, options):
    with pytest.raises(OptionError) as error:
        RemoteModel(url, **options)
    assert "host" in str(error.value)
    assert error.value.__cause__ is None
    assert not [secret for secret in HIDDEN if secret in str(error.value)]


def with_the_secret_alone(request):
    assert request.url.query.startswith(b"code=not-to-be%20seen")
    return Server()(request)


def test_a_secret_reaches_workers_and_stands_in_no_result():
    model = RemoteModel(SECRET, transport=httpx.MockTransport(with_the_secret_alone), classes=["bad", "good"])
    options = macem.SearchOptions(n_steps=2, n_directions=2)
    explainer = macem.Explainer(model, np.nan_to_num(NUMBERS), options=options)
    explainer = pickle.loads(pickle.dumps(explainer))  # as it comes to joblib's workers
    explanations = explainer.explain(np.nan_to_num(NUMBERS))
    assert [explanation.error for explanation in explanations] == [None] * 3
    shown = [repr(model), repr(explainer), json.dumps(explanations.provenance), macem.report.render(explanations)]
    assert not [secret for secret in HIDDEN if secret in "".join(shown)]


# As a model


def test_is_a_black_box_with_its_classes(server):
    oracle = oracle_for(server.model(classes=["bad", "good"]))
    assert list(oracle.classes) == ["bad", "good"]
    assert oracle.ensemble is None
    assert check_table(oracle, NUMBERS) is None
    np.testing.assert_array_equal(oracle.predict(NUMBERS), [1, 1, 1])


def test_labels_that_pass_as_probabilities_are_told():
    model = Server(answer={"predictions": [0, 1, 1]}).model(MLFLOW, classes=["bad", "good"])
    with pytest.warns(LabelsWarning, match=r"RemoteModel\) answers each of 3 .* 0 or 1, .*pyfunc_predict_fn=") as told:
        macem.Explainer(model, np.nan_to_num(NUMBERS))
    assert told[0].filename == __file__


def test_may_be_part_of_an_ensemble(server):
    model = ensemble([(server.model(), 1.0), (lambda X: np.full(len(X), 0.25), 1.0)], classes=["bad", "good"])
    np.testing.assert_array_equal(model.predict_proba(NUMBERS), [[0.5, 0.5]] * 3)


def test_pickles_without_its_connections():
    with RemoteModel(f"http://127.0.0.1:{free_port()}/invocations") as model:
        with pytest.raises(OracleError):
            model.predict_proba(NUMBERS)
        copy = pickle.loads(pickle.dumps(model))
    assert copy._http._client is None
    assert copy.url == model.url


# The real servers


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def servers_python():
    python = os.environ.get("MACEM_SERVERS_PYTHON")
    if not python or not Path(python).exists():
        pytest.skip("MACEM_SERVERS_PYTHON names no Python with mlserver, mlserver-sklearn and mlflow")
    return Path(python)


@pytest.fixture(scope="module")
def models(servers_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("servers")
    script = Path(__file__).with_name("servers.py")
    subprocess.run([servers_python, script, folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def expected(models):
    answers = json.loads((models / "expected.json").read_text())
    return {
        "numeric": (np.array(answers["numbers"]), np.array(answers["numeric"])),
        "mixed": (pd.DataFrame(answers["table"]), np.array(answers["mixed"])),
    }


def serve(command, folder, ready):
    """Start a server, wait until it answers, and end it afterwards."""
    environment = {**os.environ, "PATH": f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}"}
    with (folder / "server.log").open("w+") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            for _ in range(1200):
                try:
                    if httpx.get(ready).status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                try:
                    process.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    continue
                log.seek(0)
                pytest.fail(f"the server ended: {log.read()[-2000:]}")
            else:
                pytest.fail("the server did not start within two minutes")
            yield
        finally:
            os.killpg(process.pid, 15)
            process.wait()


@pytest.fixture(scope="module")
def mlserver(servers_python, models):
    ports = dict(zip(("http_port", "grpc_port", "metrics_port"), [free_port() for _ in range(3)], strict=True))
    settings = {"host": "127.0.0.1", "parallel_workers": 0, "debug": False, **ports}
    folder = models / "mlserver"
    (folder / "settings.json").write_text(json.dumps(settings))
    url = f"http://127.0.0.1:{ports['http_port']}"
    for _ in serve([servers_python.with_name("mlserver"), "start", "."], folder, f"{url}/v2/health/ready"):
        yield url


@pytest.fixture(scope="module")
def mlflow(servers_python, models):
    port = free_port()
    options = ["--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)]
    command = [servers_python.with_name("mlflow"), "models", "serve", "--model-uri", "mixed", *options]
    for _ in serve(command, models / "mlflow", f"http://127.0.0.1:{port}/ping"):
        yield f"http://127.0.0.1:{port}/invocations"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numeric", "mixed"])
def test_mlserver_answers_as_the_model_itself(mlserver, expected, name):
    table, probabilities = expected[name]
    with RemoteModel(f"{mlserver}/v2/models/{name}", batch_size=25) as model:
        np.testing.assert_array_equal(model.predict_proba(table), probabilities)


@pytest.mark.slow
def test_mlserver_takes_missing_values_and_categories(mlserver, expected):
    table, probabilities = expected["mixed"]
    table = table.assign(purpose=table["purpose"].astype("category"))
    table.loc[0, "amount"] = np.nan
    with RemoteModel(mlserver, model_name="mixed") as model:
        answer = model.predict_proba(table)
    np.testing.assert_array_equal(answer[1:], probabilities[1:])


@pytest.mark.slow
def test_mlserver_refuses_an_unknown_model(mlserver, expected):
    model = RemoteModel(mlserver, model_name="nobody")
    with model, pytest.raises(OracleError, match=r"404.*Check the address"):
        model.predict_proba(expected["numeric"][0])


@pytest.mark.slow
def test_mlflow_answers_as_the_model_itself(mlflow, expected):
    table, probabilities = expected["mixed"]
    with RemoteModel(mlflow, batch_size=25) as model:
        np.testing.assert_array_equal(model.predict_proba(table), probabilities)


@pytest.mark.slow
def test_mlflow_refuses_a_wrong_table(mlflow, expected):
    with RemoteModel(mlflow) as model, pytest.raises(OracleError, match=r"answered 400"):
        model.predict_proba(expected["mixed"][0].drop(columns="amount"))


@pytest.mark.slow
def test_a_remote_model_is_explained(mlserver, expected):
    table, _ = expected["mixed"]
    options = macem.SearchOptions(n_steps=3, n_directions=5)
    with RemoteModel(f"{mlserver}/v2/models/mixed", classes=["refused", "granted"]) as model:
        explanation = macem.Explainer(model, table, options=options).explain(table[:1])[0]
        found = [contrast for contrast in (explanation.positive, explanation.negative) if contrast.values is not None]
        assert found
        for contrast in found:
            label = model.classes_[model.predict_proba(contrast.values.to_frame().T.infer_objects()).argmax()]
            assert label == contrast.prediction
