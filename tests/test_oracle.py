"""Oracles: what a black box is asked with, what it may answer, and how a table's raw outputs become probabilities."""

import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from macem.errors import MacemError, ModelError, OracleError, UnsupportedModelError
from macem.oracle import BlackBoxOracle, Oracle, _exp_of_c

X = np.random.default_rng(0).normal(size=(40, 3))
FRAME = pd.DataFrame(X, columns=["a", "b", "c"], index=np.arange(100, 140))


class Model:
    """An estimator of no library, which keeps what it was asked with."""

    def __init__(self, answer, *, classes=None, predict=None, names=None):
        self.answer = answer
        self.asked = []
        if classes is not None:
            self.classes_ = classes
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        if predict is not None:
            self.predict = predict

    def predict_proba(self, X):
        self.asked.append(X)
        return self.answer(X) if callable(self.answer) else self.answer


def first_column(X):
    numbers = np.asarray(X)[:, 0].astype(float)
    return 1.0 / (1.0 + np.exp(-numbers))


def two_columns(X):
    return np.column_stack([1.0 - first_column(X), first_column(X)])


def column_vector(X):
    return first_column(X)[:, None]


def three_columns(X):
    return np.full((len(X), 3), [0.2, 0.3, 0.5])


def constant(answer):
    return lambda X: np.full((len(X), 2), answer)


# What it answers


@pytest.mark.parametrize("function", [first_column, column_vector, two_columns])
def test_function_of_one_or_two_columns(function):
    oracle = BlackBoxOracle(function)
    np.testing.assert_array_equal(oracle.predict_proba(X), two_columns(X))
    assert oracle.predict_proba(X).dtype == np.float64
    np.testing.assert_array_equal(oracle.classes, [0, 1])
    np.testing.assert_array_equal(oracle.predict(X), two_columns(X).argmax(axis=1))
    assert oracle.ensemble is None
    assert oracle.live is oracle


def test_function_of_three_columns():
    oracle = BlackBoxOracle(three_columns, classes=["low", "middle", "high"])
    assert oracle.predict_proba(X).shape == (40, 3)
    assert list(oracle.classes[oracle.predict(X)]) == ["high"] * 40


def test_one_row_and_one_class():
    assert BlackBoxOracle(first_column).predict_proba(X[:1]).shape == (1, 2)
    oracle = BlackBoxOracle(Model(lambda X: np.ones((len(X), 1)), classes=np.array(["only"])))
    np.testing.assert_array_equal(oracle.predict_proba(X), np.ones((40, 1)))


def test_float32_answers_become_float64():
    oracle = BlackBoxOracle(lambda X: two_columns(X).astype(np.float32))
    assert oracle.predict_proba(X).dtype == np.float64


def test_classes_of_a_function_are_known_after_its_first_answer():
    oracle = BlackBoxOracle(three_columns)
    assert not oracle.knows_classes
    with pytest.raises(ModelError, match=r"three_columns.* no classes_.*classes="):
        _ = oracle.classes
    oracle.predict(X)
    assert oracle.knows_classes
    assert list(oracle.classes) == [0, 1, 2]


def test_is_an_oracle():
    assert isinstance(BlackBoxOracle(first_column, classes=[0, 1]), Oracle)


@pytest.mark.parametrize(
    "labels", [["bad", "good"], [1, 2], [-1, 1], [False, True], [1.5, 2.5], np.array(["b", "a"], dtype=object)]
)
def test_labels_keep_value_and_type(labels):
    classes = np.asarray(labels)
    model = Model(two_columns, classes=classes, predict=lambda X: classes[two_columns(X).argmax(axis=1)])
    oracle = BlackBoxOracle(model)
    assert oracle.classes.dtype == classes.dtype
    np.testing.assert_array_equal(oracle.predict(X), two_columns(X).argmax(axis=1))


def test_ties_are_decided_by_the_models_own_predict():
    classes = np.array(["bad", "good"])
    tie = constant(0.5)
    assert list(BlackBoxOracle(Model(tie, classes=classes)).predict(X[:2])) == [0, 0]
    says_good = Model(tie, classes=classes, predict=lambda X: np.array([["good"]] * len(X)))  # (n, 1), as CatBoost does
    assert list(BlackBoxOracle(says_good).predict(X[:2])) == [1, 1]


def test_given_classes_rename_the_models_own():
    model = Model(two_columns, classes=np.array([0, 1]), predict=lambda X: two_columns(X).argmax(axis=1))
    oracle = BlackBoxOracle(model, classes=["no", "yes"])
    assert set(oracle.classes[oracle.predict(X)]) == {"no", "yes"}


# What is refused


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (constant([-0.2, 1.2]), r"row 0 got -0\.2 for class bad"),
        (constant([0.0, np.nan]), r"row 0 got nan for class good"),
        (constant([np.inf, 0.0]), r"row 0 got inf for class bad"),
        (constant([0.5, 0.6]), r"row 0 sum to 1\.1"),
        (lambda X: np.full((len(X), 3), 1 / 3), r"shape \(40, 3\), not \(40, 2\)"),
        (lambda X: np.full((1, 2), 0.5), r"shape \(1, 2\), not \(40, 2\)"),
        (lambda X: [np.full((len(X), 2), 0.5)] * 2, r"shape \(2, 40, 2\)"),
        (lambda X: 0.5, r"shape \(\)"),
        (lambda X: None, r"row|shape"),
        (lambda X: ["good"] * len(X), r"no table of numbers but list, \['good', 'good'"),
        (lambda X: X[:, 0] * 10.0, r"row 0 got "),
    ],
)
def test_answers_that_are_no_probabilities(answer, message):
    oracle = BlackBoxOracle(answer, classes=["bad", "good"])
    with pytest.raises(OracleError, match=message) as error:
        oracle.predict_proba(X)
    assert "Return one row per row asked" in str(error.value)
    assert isinstance(error.value, RuntimeError)


def test_rows_are_named_by_their_index():
    def one_bad(X):
        answer = two_columns(X)
        answer[7] = np.nan
        return answer

    with pytest.raises(OracleError, match="row 107 got nan"):
        BlackBoxOracle(one_bad).predict_proba(FRAME)


def test_every_answer_is_checked():
    answers = iter([two_columns(X), two_columns(X) * 2.0])
    oracle = BlackBoxOracle(lambda X: next(answers))
    oracle.predict_proba(X)
    with pytest.raises(OracleError):
        oracle.predict_proba(X)


def test_float32_noise_is_accepted_and_more_is_not():
    noise = BlackBoxOracle(constant([-1e-7, 1.0 + 1e-7])).predict_proba(X)
    assert noise.min() == 0.0
    BlackBoxOracle(constant([0.5, 0.50009])).predict_proba(X)
    with pytest.raises(OracleError):
        BlackBoxOracle(constant([0.5, 0.5002])).predict_proba(X)


def test_scores_of_one_class_against_all_need_not_sum_to_one():
    oracle = BlackBoxOracle(constant([0.9, 0.8]), one_vs_all=True)
    np.testing.assert_array_equal(oracle.predict_proba(X), constant([0.9, 0.8])(X))
    with pytest.raises(OracleError, match=r"got 1\.8"):
        BlackBoxOracle(constant([0.9, 1.8]), one_vs_all=True).predict_proba(X)


def test_width_may_not_change():
    oracle = BlackBoxOracle(lambda X: three_columns(X) if len(X) > 5 else two_columns(X))
    oracle.predict_proba(X)
    with pytest.raises(OracleError, match=r"shape \(2, 2\), not \(2, 3\)"):
        oracle.predict_proba(X[:2])


def test_the_models_own_error_is_told_and_kept():
    def fails(X):
        raise KeyError("income")

    told = r"fails\) failed on a table of 40 rows: KeyError: 'income'\. Check.*asked directly"
    with pytest.raises(OracleError, match=told) as error:
        BlackBoxOracle(fails).predict_proba(X)
    assert isinstance(error.value.__cause__, KeyError)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_a_macem_error_of_the_model_passes_unchanged():
    def fails(X):
        raise OracleError("The service is down. Start it.")

    with pytest.raises(OracleError, match=r"^The service is down\. Start it\.$"):
        BlackBoxOracle(fails).predict_proba(X)


def test_an_interrupt_passes():
    def interrupted(X):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BlackBoxOracle(interrupted).predict_proba(X)


@pytest.mark.parametrize("labels", [[], ["a", "a"], [["a", "b"]]])
def test_classes_must_be_distinct(labels):
    with pytest.raises(ModelError, match="one distinct label per class"):
        BlackBoxOracle(two_columns, classes=labels)


def test_several_outputs_are_refused():
    model = Model(two_columns)
    model.classes_ = [np.array([0, 1]), np.array([0, 1])]
    with pytest.raises(UnsupportedModelError, match="several outputs"):
        BlackBoxOracle(model)


def test_labels_that_are_no_classes():
    model = Model(two_columns, classes=np.array([0, 1]), predict=lambda X: ["yes"] * len(X))
    with pytest.raises(OracleError, match=r"predict answered 'yes', but its classes are \[0, 1\]"):
        BlackBoxOracle(model).predict(X)


def test_too_few_labels():
    model = Model(two_columns, classes=np.array([0, 1]), predict=lambda X: [0])
    with pytest.raises(OracleError, match=r"predict answered 40 rows with shape \(1,\)"):
        BlackBoxOracle(model).predict(X)


@pytest.mark.parametrize("model", [3, None, "model.pkl", object()])
def test_no_model(model):
    with pytest.raises(UnsupportedModelError, match=r"no predict_proba and is not a function.*Give"):
        BlackBoxOracle(model)


def test_a_class_is_no_model():
    with pytest.raises(UnsupportedModelError, match=r"\(Model\) is a class\. Give a fitted instance"):
        BlackBoxOracle(Model)


# What it is asked with


def test_empty_batch_never_reaches_the_model():
    model = Model(two_columns, classes=np.array([0, 1]), predict=lambda X: pytest.fail("asked"))
    oracle = BlackBoxOracle(model)
    assert oracle.predict_proba(X[:0]).shape == (0, 2)
    assert oracle.predict_proba(FRAME[:0]).shape == (0, 2)
    assert oracle.predict(X[:0]).shape == (0,)
    assert model.asked == []
    assert BlackBoxOracle(two_columns).predict_proba([]).shape == (0, 0)


@pytest.mark.parametrize("table", [X, FRAME, X.tolist()], ids=["array", "frame", "list"])
def test_functions_get_the_form_that_is_given(table):
    model = Model(two_columns)
    BlackBoxOracle(model).predict_proba(table)
    assert type(model.asked[0]) is type(table)


def test_columns_come_by_name_in_the_models_order():
    model = Model(two_columns, names=["a", "b", "c"])
    oracle = BlackBoxOracle(model)
    reordered = oracle.predict_proba(FRAME.assign(other=1.0)[["other", "c", "b", "a"]])
    np.testing.assert_array_equal(reordered, two_columns(X))
    assert list(model.asked[0]) == ["a", "b", "c"]


def test_arrays_get_the_names_that_the_model_knows():
    model = Model(two_columns, names=["a", "b", "c"])
    BlackBoxOracle(model).predict_proba(X.astype(np.float32))
    assert list(model.asked[0]) == ["a", "b", "c"]
    assert set(model.asked[0].dtypes) == {np.dtype(np.float32)}


def test_objects_in_an_array_get_their_dtypes_back():
    model = Model(lambda X: three_columns(X), names=["number", "name"])
    BlackBoxOracle(model).predict_proba(np.array([[1.5, "a"], [2, "b"]], dtype=object))
    assert model.asked[0]["number"].dtype == np.float64


@pytest.mark.parametrize("table", [X, FRAME], ids=["array", "frame"])
@pytest.mark.parametrize("names", [None, ["a", "b", "c"]])
def test_a_model_that_writes_into_its_input_reaches_nobody(table, names):
    def careless(X):
        if isinstance(X, pd.DataFrame):
            X.loc[:, "a"] = 0.0
            X["new"] = 1.0
        else:
            X[:] = 0.0
        return np.full((len(X), 2), 0.5)

    before = table.copy()
    BlackBoxOracle(Model(careless, names=names)).predict_proba(table)
    if isinstance(table, pd.DataFrame):
        pd.testing.assert_frame_equal(table, before)
    else:
        np.testing.assert_array_equal(table, before)


def test_read_only_input_is_writable_for_the_model():
    frozen = X.copy()
    frozen.flags.writeable = False
    model = Model(two_columns)
    BlackBoxOracle(model).predict_proba(frozen)
    assert model.asked[0].flags.writeable


# Serving


def test_pickles_before_and_after_the_first_answer():
    oracle = BlackBoxOracle(first_column, note="why")
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(oracle))
        assert copy.note == "why"
        np.testing.assert_array_equal(copy.predict_proba(X), oracle.predict_proba(X))


def test_threads_share_one_oracle():
    barrier = threading.Barrier(4)

    def waits(X):
        barrier.wait(timeout=30)
        return two_columns(X)

    oracle = BlackBoxOracle(waits)  # its classes are counted by all four at once
    with ThreadPoolExecutor(4) as threads:
        for answer in threads.map(oracle.predict_proba, [X] * 4):
            np.testing.assert_array_equal(answer, two_columns(X))
    assert list(oracle.classes) == [0, 1]


def test_global_random_state_is_untouched():
    before = np.random.get_state()[1].copy()
    BlackBoxOracle(two_columns).predict(X)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_errors_are_macem_errors():
    for error in (OracleError, ModelError, UnsupportedModelError):
        assert issubclass(error, MacemError)


def test_the_exponential_is_the_c_librarys() -> None:
    numbers = np.concatenate([np.random.default_rng(0).normal(size=20000) * 3.0, [0.0, -708.5, -745.2, -1e4, -np.inf]])
    np.testing.assert_array_equal(_exp_of_c(numbers), [math.exp(number) for number in numbers])
    single = _exp_of_c(numbers.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single[:20001], np.exp(numbers.astype(np.float32).astype(float))[:20001], rtol=1e-7)
