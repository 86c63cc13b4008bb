"""The explainer from end to end: what people run into, each with the input that shows it."""

from __future__ import annotations

import copy
import io
import os
import pickle
import random
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_series_equal
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier

from macem import Explainer, SearchOptions, Status, oracle_for
from macem import model as models
from macem.errors import DataError, ModelChangedError, OptionError, OracleError, TableMismatchWarning
from macem.results import Explanations, cells_of, rows_of

QUICK = SearchOptions(n_steps=4, n_directions=6)


def mixed(n: int = 120) -> tuple[pd.DataFrame, pd.Series]:
    """An integer, a decimal and a text column, and a label that depends on all of them."""
    generator = np.random.default_rng(3)
    X = pd.DataFrame(
        {
            "age": generator.integers(18, 75, n),
            "amount": np.round(generator.gamma(2.0, 2000.0, n), 2),
            "purpose": generator.choice(["car", "radio", "school"], n, p=[0.5, 0.3, 0.2]),
        },
        index=[f"row {at}" for at in range(n)],
    )
    risky = X["amount"] / 100 - X["age"] + 20 * (X["purpose"] == "school") > 5
    return X, risky.map({True: "bad", False: "good"})


def credit_model(X: pd.DataFrame, y: Any, n_trees: int = 8) -> Any:
    columns = make_column_transformer((OneHotEncoder(), ["purpose"]), remainder="passthrough")
    return make_pipeline(columns, RandomForestClassifier(n_trees, max_depth=5, random_state=0)).fit(X, y)


@pytest.fixture(scope="module")
def credit() -> tuple[Any, pd.DataFrame]:
    X, y = mixed()
    return credit_model(X, y), X


@pytest.fixture(scope="module", params=["table", "black box"])
def explainer(request: pytest.FixtureRequest, credit: tuple[Any, pd.DataFrame]) -> Explainer:
    model, X = credit
    return Explainer(model if request.param == "table" else model.predict_proba, X, options=QUICK)


@pytest.fixture(scope="module")
def rows(credit: tuple[Any, pd.DataFrame]) -> pd.DataFrame:
    return credit[1].iloc[:4]


def step(threshold: float = 0.5, feature: int = 0, labels: Any = (0, 1)) -> DecisionTreeClassifier:
    """A stump on one of two columns: the second label beyond a threshold."""
    X = np.zeros((2, 2))
    X[:, feature] = threshold - 0.5, threshold + 0.5
    return DecisionTreeClassifier().fit(X, np.array(labels))


def assert_same(one: Explanations, other: Explanations) -> None:
    """Bit for bit the same explanations."""
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        assert (mine.index, mine.prediction, mine.error) == (theirs.index, theirs.prediction, theirs.error)
        assert_series_equal(mine.original, theirs.original, check_exact=True)
        for a, b in zip(mine.contrasts, theirs.contrasts, strict=True):
            assert (a.kind, a.status, a.distance, a.n_queries) == (b.kind, b.status, b.distance, b.n_queries)
            assert_series_equal(a.importance, b.importance, check_exact=True)
            assert_series_equal(a.sensitivity, b.sensitivity, check_exact=True)
            assert (a.values is None) == (b.values is None)
            if a.values is not None:
                assert_series_equal(a.values, b.values, check_exact=True)
                assert_series_equal(a.probabilities, b.probabilities, check_exact=True)


def shown(explanations: Explanations, kind: str, like: pd.DataFrame) -> tuple[pd.DataFrame, list[Any]]:
    """The examples found, as a table with the user's dtypes, and the classes of their rows."""
    found = [e for e in explanations if getattr(e, kind).status is Status.FOUND]
    table = pd.DataFrame([getattr(e, kind).values for e in found], columns=like.columns)
    return table.astype(dict(like.dtypes)), [e.prediction for e in found]


def test_row_alone_in_a_batch_and_shuffled(explainer: Explainer, rows: pd.DataFrame) -> None:
    together = explainer.explain(rows)
    order = [3, 0, 2, 1]
    shuffled = explainer.explain(rows.iloc[order])
    for at in range(len(rows)):
        assert_same(together[at : at + 1], explainer.explain(rows.iloc[[at]]))
        assert_same(together[at : at + 1], shuffled[order.index(at) : order.index(at) + 1])


def test_two_jobs(explainer: Explainer, rows: pd.DataFrame) -> None:
    assert_same(explainer.explain(rows), explainer.explain(rows, n_jobs=2))


def test_threads_leave_the_warning_filters_as_they_were() -> None:
    X = np.random.default_rng(0).standard_normal((200, 3))
    explainer = Explainer(RandomForestClassifier(100, random_state=0).fit(X, X[:, 0] > 0.0), X, options=QUICK)
    before = list(warnings.filters)
    with ThreadPoolExecutor(4) as pool:  # a server's own threads, whose filters nobody brings back
        list(pool.map(lambda at: explainer.explain(X[at : at + 1]), range(40)))
    assert list(warnings.filters) == before


def test_a_black_box_that_changes_the_warning_filters_in_threads(rows: pd.DataFrame) -> None:
    X, _ = mixed()

    def careless(X: pd.DataFrame) -> Any:
        warnings.simplefilter("ignore", ResourceWarning)
        positive = (X["amount"] > 4000.0).to_numpy(float)
        return np.column_stack([1.0 - positive, positive])

    explainer = Explainer(careless, X, options=QUICK)
    before = list(warnings.filters)
    warnings.filters.remove(("ignore", None, ResourceWarning, None, 0))
    without = list(warnings.filters)
    explainer.explain(rows, n_jobs=2)
    assert list(warnings.filters) == without != before


def test_same_seed_twice_and_random_state_untouched(explainer: Explainer, rows: pd.DataFrame) -> None:
    before = np.random.get_state()[1].copy(), random.getstate()
    first = explainer.explain(rows, seed=7)
    kept = copy.deepcopy(first)
    assert_same(first, explainer.explain(rows, seed=7))
    explainer.explain(rows.iloc[::-1], seed=8)
    assert_same(first, kept)
    assert_array_equal(before[0], np.random.get_state()[1])
    assert random.getstate() == before[1]


def test_two_threads(explainer: Explainer, rows: pd.DataFrame) -> None:
    alone = explainer.explain(rows)
    with ThreadPoolExecutor(2) as pool:
        for theirs in pool.map(explainer.explain, [rows] * 4):
            assert_same(alone, theirs)


@pytest.mark.parametrize("as_array", [False, True])
def test_a_level_that_the_model_refuses_is_named_before_any_work(as_array: bool) -> None:
    X = pd.DataFrame(
        {"age": np.arange(1200) % 50, "job": ["clerk", "smith", "smith"] * 400, "rate": np.arange(1200) / 8}
    )
    X.loc[601, "job"] = "rare"

    def refusing(table: Any) -> Any:
        job, rate = np.asarray(table)[:, 1], np.asarray(table)[:, 2].astype(float)
        if (job == "rare").any():
            raise ValueError("nothing is known of it")
        positive = (rate > 70) * 0.5 + (job == "smith") * 0.3
        return np.column_stack([1.0 - positive, positive])

    background = X.to_numpy(object) if as_array else X
    name = 1 if as_array else "job"
    with pytest.raises(OracleError) as caught:
        Explainer(refusing, background, options=QUICK)
    assert f"It fails where column {name!r} is 'rare', and all else" in str(caught.value)
    assert "categories by a background without them" in str(caught.value)
    known = background[np.arange(1200) != 601]
    assert all(one.error is None for one in Explainer(refusing, known, options=QUICK).explain(known[:5]))
    X.loc[601, "job"] = None  # no level, which a model that takes no missing value need not answer
    asked: list[Any] = []

    def listening(table: Any) -> Any:
        asked.append(pd.isna(np.asarray(table, dtype=object)[:, 1]).any())
        return refusing(table)

    Explainer(listening, X.to_numpy(object) if as_array else X, options=QUICK)
    assert not any(asked)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_does_not_wait_for_a_thread_that_it_has_not() -> None:
    with models.ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, since Python 3.12
        child = os.fork()
        if child == 0:
            os._exit(0 if models.ONE_AT_A_TIME.acquire(blocking=False) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_pickled_before_and_after_in_a_fresh_process(
    credit: tuple[Any, pd.DataFrame], rows: pd.DataFrame, tmp_path: Path
) -> None:
    model, X = credit
    explainer = Explainer(model, X, options=QUICK)
    before = pickle.dumps(explainer)
    here = explainer.explain(rows)
    (tmp_path / "in").write_bytes(pickle.dumps((before, pickle.dumps(explainer), here, rows)))
    program = (
        "import pickle, sys\n"
        "before, after, here, rows = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(here)\n"
        "there = [pickle.loads(one).explain(rows) for one in (before, after)]\n"
        "pickle.dump(there, open(sys.argv[2], 'wb'))\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "in", tmp_path / "out"], check=True, capture_output=True)
    for there in pickle.loads((tmp_path / "out").read_bytes()):
        assert_same(here, there)


@pytest.mark.parametrize("kind", ["positive", "negative"])
def test_class_holds_after_csv_and_json(credit: tuple[Any, pd.DataFrame], kind: str) -> None:
    model, X = credit
    table, classes = shown(Explainer(model, X, options=QUICK).explain(X.iloc[:25]), kind, X)
    assert len(table) > 20
    dtypes = dict(X.dtypes)
    lines = table.to_json(orient="records", lines=True, double_precision=15)
    for same in (
        table,
        table.astype({"amount": np.float32}),
        pd.read_csv(io.StringIO(table.to_csv(index=False)), dtype=dtypes),
        pd.read_json(io.StringIO(lines), orient="records", lines=True, dtype=dtypes),
    ):
        assert_array_equal(model.predict(same) == np.array(classes), kind == "positive")
    assert_array_equal(table["amount"], table["amount"].round(2))


def test_ties_are_decided_by_the_model() -> None:
    generator = np.random.default_rng(0)
    X = generator.integers(0, 10, (80, 3)).astype(float)
    model = RandomForestClassifier(2, random_state=1).fit(X, np.where(X[:, 0] + X[:, 1] > 9, "b", "a"))
    tied = X[(model.predict_proba(X) == 0.5).all(axis=1)]
    assert len(tied)
    explanations = Explainer(model, X).explain(np.vstack([tied, X[:10]]))
    for explanation in explanations:
        assert explanation.prediction == model.predict(explanation.original.to_numpy()[None])[0]
        for contrast in explanation.contrasts:
            if contrast.values is not None:
                says = model.predict(contrast.values.to_numpy()[None])[0]
                assert says == contrast.prediction
                assert (says == explanation.prediction) == (contrast.kind == "positive")


@pytest.mark.parametrize("labels", [("good", "bad"), (1, 2), (-1, 1), (False, True)], ids=str)
def test_labels_are_the_users(labels: tuple[Any, Any]) -> None:
    model = step(labels=labels)
    background = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 3.0], [1.0, 2.0]])
    explanation = Explainer(model, background).explain([0.0, 0.0], target=labels[1])[0]
    assert explanation.prediction == labels[0]
    assert explanation.negative.prediction == labels[1]
    assert list(explanation.negative.changes) == [0]
    assert set(explanation.probabilities.index) == set(labels)


def test_target_is_reached_or_already_there() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(0.0, 3.0, (60, 2)).round(2)
    model = DecisionTreeClassifier(random_state=0).fit(X, np.array(["a", "b", "c"])[X[:, 0].astype(int)])
    options = SearchOptions(away_from_base=False)
    explanations = Explainer(model, X, options=options).explain(X[:12], target="c")
    for explanation in explanations:
        if explanation.prediction == "c":
            assert explanation.negative.status is Status.NONE_EXISTS
        else:
            assert explanation.negative.prediction == "c"
    assert {explanation.prediction for explanation in explanations} == {"a", "b", "c"}


BACKGROUND = np.array([[1.0, 0.0], [2.0, 1.0], [2.0, 2.0], [3.0, 3.0], [9.0, 4.0]])  # bases 2 and 2


def undecided(X: Any) -> np.ndarray:
    """A model of two classes that always says the same."""
    return np.tile([0.75, 0.25], (len(X), 1))


def rising(X: Any) -> np.ndarray:
    """The second class beyond 5 in the first column."""
    return np.column_stack([1.0 - (X[:, 0] > 5.0), X[:, 0] > 5.0]).astype(float)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (undecided, Status.NOT_FOUND),
        (DecisionTreeClassifier().fit(BACKGROUND, [0, 0, 0, 0, 0]), Status.NONE_EXISTS),
        (RandomForestClassifier(3).fit(BACKGROUND, ["a"] * 5), Status.NONE_EXISTS),
    ],
    ids=["function", "tree of one class", "forest of one class"],
)
def test_constant_model(model: Any, expected: Status) -> None:
    explanation = Explainer(model, BACKGROUND, options=QUICK).explain([9.0, 4.0])[0]
    assert explanation.negative.status is expected
    assert explanation.positive.status is Status.FOUND
    assert explanation.positive.n_changed == 0


@pytest.mark.parametrize("model", [step(5.0), rising], ids=["tree", "function"])
def test_everything_frozen(model: Any) -> None:
    explanation = Explainer(model, BACKGROUND, frozen=[0, 1], options=QUICK).explain([9.0, 4.0])[0]
    assert explanation.negative.status is Status.NONE_EXISTS
    assert explanation.positive.status is Status.FOUND
    assert_array_equal(explanation.positive.values, [9.0, 4.0])


@pytest.mark.parametrize(("model", "expected"), [(step(5.0), Status.NONE_EXISTS), (rising, Status.NOT_FOUND)])
def test_only_an_irrelevant_feature_is_free(model: Any, expected: Status) -> None:
    explainer = Explainer(model, BACKGROUND, frozen=[0], options=QUICK)
    assert explainer.explain([9.0, 1.0])[0].negative.status is expected


@pytest.mark.parametrize(("model", "expected"), [(step(5.0), Status.NONE_EXISTS), (rising, Status.NOT_FOUND)])
def test_negative_that_exists_only_nearer_to_the_base(model: Any, expected: Status) -> None:
    explainer = Explainer(model, BACKGROUND, options=QUICK)
    assert explainer.explain([9.0, 1.0])[0].negative.status is expected
    free = Explainer(model, BACKGROUND, options=SearchOptions(away_from_base=False))
    assert free.explain([9.0, 1.0])[0].negative.values[0] == 5.0


def both(X: Any) -> np.ndarray:
    """Sure of itself, and of one class but where two conditions hold: no single change is seen."""
    cells = np.asarray(X, float)
    return np.eye(2)[((cells[:, 0] == 1) & (cells[:, 1] == 1)).astype(int)]


BOTH = np.column_stack([np.tile([0.0, 0.0, 1.0, 1.0], 10), np.tile([0.0, 1.0], 20), np.arange(40.0) % 5])
FOREST_OF_BOTH = RandomForestClassifier(2, bootstrap=False, max_features=None, random_state=0)


@pytest.mark.parametrize("model", [both, FOREST_OF_BOTH.fit(BOTH, both(BOTH)[:, 1])])
@pytest.mark.parametrize("categorical", [(), (0, 1)])
def test_two_changes_are_found_where_none_of_them_is_seen_alone(model: Any, categorical: Any) -> None:
    explainer = Explainer(model, BOTH, categorical=categorical, options=SearchOptions(away_from_base=False))
    rows = BOTH[both(BOTH)[:, 0] == 1]
    for row, explanation in zip(rows, explainer.explain(rows, kinds=("negative",)), strict=True):
        example = explanation.negative
        assert example is not None
        assert example.status is Status.FOUND
        assert example.changes == {at: (row[at], 1.0) for at in (0, 1) if row[at] != 1.0}


@pytest.mark.parametrize("seed", [2, 5, 8, 21, 36, 46])  # of each a search alone, or a beam that needs gains, lost some
@pytest.mark.parametrize("as_function", [False, True])
def test_no_example_on_a_small_grid_is_lost(seed: int, as_function: bool) -> None:
    random = np.random.default_rng(seed)
    n_columns, n_values = random.integers(2, 5, 2)
    grid = np.stack(np.meshgrid(*[np.arange(float(n_values))] * n_columns), axis=-1).reshape(-1, n_columns)
    X = random.choice(grid, 60)
    forest = RandomForestClassifier(5, max_depth=4, random_state=seed).fit(X, random.random(60) < 0.2)
    assert np.unique(forest.predict(grid)).size == 2
    model = (lambda rows: np.eye(2)[forest.predict(np.asarray(rows, float)).astype(int)]) if as_function else forest
    explainer = Explainer(model, X, options=SearchOptions(away_from_base=False))
    for one in explainer.explain(grid[:40], kinds=("negative",)):
        assert one.negative is not None
        assert one.negative.status is Status.FOUND


def test_budgets_end_the_search() -> None:
    explainer = Explainer(undecided, BACKGROUND)
    limited = explainer.explain([9.0, 4.0], max_queries=60)[0].negative
    assert limited.status is Status.OUT_OF_BUDGET
    assert limited.n_queries <= 60 + 51
    assert explainer.explain([9.0, 4.0], time_limit=0.0)[0].negative.status is Status.OUT_OF_BUDGET


def test_rows_that_a_time_limit_left_are_answered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    model, asked = RandomForestClassifier(5, random_state=0).fit(X, X[:, 0] > 0), []
    explainer = Explainer(model, X)
    answer = RandomForestClassifier.predict_proba

    def counted(self: Any, rows: Any) -> Any:
        asked.append(len(rows))
        return answer(self, rows)

    monkeypatch.setattr(RandomForestClassifier, "predict_proba", counted)
    explanations = explainer.explain(X, time_limit=0.0)
    assert [one.prediction for one in explanations] == model.predict(X).tolist()
    assert {contrast.status for one in explanations for contrast in one.contrasts} == {Status.OUT_OF_BUDGET}
    assert sorted(asked[:-1]) == [72, 128]  # parts of a batch; the last is the line above


def test_other_options_are_those_of_a_new_explainer(credit: tuple[Any, pd.DataFrame], explainer: Explainer) -> None:
    model, X = credit
    explainer.explain(X[:3])  # draws the schedule of its own options
    options = SearchOptions(n_steps=7, n_directions=5, refine=False)
    asked = model if explainer._model.copy is not None else model.predict_proba
    found = explainer.with_options(options).explain(X[:3])
    assert_same(found, Explainer(asked, X, options=options).explain(X[:3]))
    assert explainer.options == QUICK
    with pytest.raises(OptionError, match="needs a density"):
        explainer.with_options(SearchOptions(density_weight=1.0))


def test_frozen_range_and_direction_hold(credit: tuple[Any, pd.DataFrame]) -> None:
    model, X = credit
    explainer = Explainer(
        model, X, frozen=["purpose"], directions={"age": "increase"}, ranges={"amount": (500, 4000)}, options=QUICK
    )
    n_found = 0
    for explanation in explainer.explain(X.iloc[:20]):
        row = explanation.original
        for contrast in explanation.contrasts:
            if contrast.values is None:
                continue
            n_found += 1
            assert contrast.values["purpose"] == row["purpose"]
            assert contrast.values["age"] >= row["age"]
            assert 500 <= contrast.values["amount"] <= 4000 or contrast.values["amount"] == row["amount"]
    assert n_found > 15


def test_special_values_stay_and_stand_at_base() -> None:
    X = np.array([[-9.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0], [8.0, 5.0]])
    model = DecisionTreeClassifier(random_state=0).fit(X, [0, 0, 0, 1, 1])
    explainer = Explainer(model, X, special_values={"*": [-9]})
    assert_array_equal(explainer.features.base, [3.0, 3.0])
    for contrast in explainer.explain([-9.0, 4.0])[0].contrasts:
        assert contrast.values is None or contrast.values[0] == -9.0
        assert 0 not in contrast.changes


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA], ids=repr)
def test_missing_cells_stay_missing(missing: Any) -> None:
    X = pd.DataFrame(
        {
            "count": pd.array([1, 2, 3, 8, 9], dtype="Int64"),
            "colour": pd.Series(["red", "red", None, "blue", "red"], dtype=object),
            "size": [1.0, 2.0, 3.0, 4.0, 5.5],
        }
    )

    def large(table: pd.DataFrame) -> np.ndarray:
        assert table.dtypes.equals(X.dtypes)
        positive = (table["size"] + table["count"].fillna(0).astype(float) > 4.0).to_numpy(float)
        return np.column_stack([1.0 - positive, positive])

    row = X.iloc[[0]].copy()
    row["count"] = pd.array([missing], dtype="Int64")
    row["colour"] = pd.Series([missing], dtype=object)
    explanation = Explainer(large, X, options=SearchOptions(away_from_base=False)).explain(row)[0]
    assert explanation.negative.status is Status.FOUND
    for contrast in explanation.contrasts:
        assert pd.isna(contrast.values["count"])
        assert contrast.values["colour"] is row["colour"].iloc[0]
        assert set(contrast.changes) <= {"size"}


def test_refitted_model_is_noticed() -> None:
    X, y = mixed()
    X = X[["age", "amount"]]
    model = RandomForestClassifier(5, random_state=0).fit(X, y)
    explainer = Explainer(model, X, options=QUICK)
    model.fit(X, y.to_numpy()[::-1])
    with pytest.raises(ModelChangedError, match="Make a new Explainer"):
        explainer.explain(X.iloc[:20])


@pytest.mark.parametrize("kind", [DecisionTreeClassifier, KNeighborsClassifier])
def test_classes_that_were_renamed_are_noticed(kind: Any) -> None:
    X = np.arange(20.0).reshape(10, 2)
    model = kind().fit(X, [0, 1] * 5)
    explainer = Explainer(model, X)
    model.fit(X, ["p", "q"] * 5)
    with pytest.raises(ModelChangedError, match=r"were \[.*0.*1.*\] and are \[.*p.*q"):
        explainer.explain(X[:1])


def test_a_model_that_answers_by_the_batch_is_noticed() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))

    def drifting(asked: np.ndarray) -> np.ndarray:
        positive = np.where(asked[:, 0] > 0.0, 0.7, 0.3) + 1e-4 * len(asked)
        return np.column_stack([1.0 - positive, positive])

    with pytest.raises(ModelChangedError, match="with other probabilities now"):
        Explainer(drifting, X, options=QUICK).explain(X[:3])


def test_rows_that_fail_lose_no_others() -> None:
    def moody(X: np.ndarray) -> np.ndarray:
        if (X[:, 1] == 4.5).any():
            raise ValueError("no such branch")
        return rising(X)

    explainer = Explainer(moody, BACKGROUND, frozen=[1], options=QUICK)
    good = np.array([[1.0, 0.0], [9.0, 1.0], [3.0, 2.0]])
    explanations = explainer.explain(np.insert(good, 1, [7.0, 4.5], axis=0))
    assert "no such branch" in explanations[1].error
    assert explanations[1].positive is None
    alone = explainer.explain(good)
    for mine, theirs in zip((0, 2, 3), range(3), strict=True):
        assert explanations[mine].error is None
        for a, b in zip(explanations[mine].contrasts, alone[theirs].contrasts, strict=True):
            assert (a.status, a.distance) == (b.status, b.distance)


class Failing:
    """A function that fails where told once it is armed, and keeps what it was asked since then."""

    def __init__(self, fails: Callable[[list[np.ndarray]], bool]) -> None:
        self.fails, self.armed, self.asked = fails, False, list[np.ndarray]()

    def __call__(self, X: Any) -> np.ndarray:
        X = np.asarray(X)
        self.asked += [X] * self.armed
        if self.armed and self.fails(self.asked):
            raise ValueError("no such branch")
        return rising(X)


def failure(fails: Callable[[list[np.ndarray]], bool], **call: Any) -> tuple[str, list[np.ndarray]]:
    """The error of one row, and all that the model was asked about it."""
    model = Failing(fails)
    explainer = Explainer(model, pd.DataFrame(BACKGROUND, columns=["a", "b"]), options=QUICK)
    model.armed = True
    (explanation,) = explainer.explain([{"a": 7.0, "b": 4.0}], **call)
    assert explanation.error is not None
    assert "no such branch" in explanation.error
    return explanation.error, model.asked


def test_the_error_of_a_row_names_the_values_that_fail() -> None:
    error, asked = failure(lambda asked: bool((asked[-1][:, 0] < 5.0).any()))
    told = re.search(r" It fails where column 'a' is (.*?), and all else is as in the row\.", error)
    assert told is not None, error
    assert float(told[1]) < 5.0
    first = next(at for at, X in enumerate(asked) if (X[:, 0] < 5.0).any())
    # the row, the halves, each of two columns, and what is left of them
    assert len(asked) - first - 1 <= np.log2(len(asked[first])) + 5


@pytest.mark.parametrize(
    ("fails", "told", "n_more"),
    [
        (lambda asked: True, "It fails on the row as it stands", 0),
        (lambda asked: len(asked) > 2, "It fails on the row as it stands", 1),
        (lambda asked: len(asked) == 3, "Asked again in smaller batches it answers", None),
        (lambda asked: len(asked[-1]) > 3, "Asked again in smaller batches it answers", None),
    ],
    ids=["from the start", "from now on", "once", "on large batches"],
)
def test_no_value_is_blamed_for_a_model_that_is_down_or_fails_at_times(
    fails: Any, told: str, n_more: int | None
) -> None:
    error, asked = failure(fails)
    assert told in error
    assert "column" not in error
    if n_more is not None:
        assert len(asked) - next(n for n in range(1, len(asked) + 1) if fails(asked[:n])) == n_more


def test_a_failure_after_the_time_limit_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def late(asked: list[np.ndarray]) -> bool:
        now[0] += 10.0 * (len(asked) == 3)
        return len(asked) >= 3

    error, asked = failure(late, time_limit=5.0)
    assert len(asked) == 3
    assert "It fails" not in error


def test_an_error_pickles_without_the_function_that_was_asked() -> None:
    def broken(X: Any) -> Any:
        raise ValueError("no such branch")

    with pytest.raises(OracleError) as error:
        Explainer(broken, BACKGROUND)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@pytest.mark.parametrize("number", [1e308, -1.7e308])
def test_numbers_near_the_largest(number: float) -> None:
    X = np.arange(20.0).reshape(10, 2)
    X[3, 1] = number
    boosting = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=1).fit(X, X[:, 0] > 8.0)
    assert Explainer(boosting, X).explain(X[3:4])[0].negative.status == Status.FOUND
    forest = RandomForestClassifier(3, random_state=0).fit(X[:3], [0, 1, 1])
    (explanation,) = Explainer(forest, X[:3]).explain(X[3:4])
    assert f"Column 1 holds {number}" in explanation.error


def test_a_wrong_copy_of_a_composite_is_not_used() -> None:
    X = np.random.default_rng(0).normal(size=(100, 2)).round(1)
    members = [("a", RandomForestClassifier(3, random_state=0)), ("b", LogisticRegression())]
    model = VotingClassifier(members, voting="soft").fit(X, X[:, 0] > 0.0)
    oracle = oracle_for(model)
    explainer = Explainer(oracle, X)
    oracle.through_tables.model.estimators_[0].oracle.ensemble.values[:] = 0.5
    with pytest.warns(TableMismatchWarning, match="by its copy"):
        fallen_back = Explainer(oracle, X)
    assert "differs" in fallen_back.describe()
    assert explainer.describe().startswith("lockstep: the model is asked in batches, because it is a black box")


class Moody:
    """Its predict contradicts its probabilities where no background row lies."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X: Any) -> Any:
        return rising(X)

    def predict(self, X: Any) -> Any:
        answer = rising(X).argmax(axis=1)
        return np.where(np.isin(X[:, 0], GAP), 1 - answer, answer)


GAP = [4.0, 5.0, 6.0, 7.0]


def test_examples_that_fail_the_models_predict_are_dropped() -> None:
    X = np.array([[x, y] for x in range(11) if x not in GAP for y in range(3)], dtype=float)
    explainer = Explainer(Moody(), X, options=SearchOptions(refine=False), base={0: 4.0})
    base_fails, missing = explainer.explain(np.array([[2.0, 2.0], [np.nan, 2.0]]), kinds="positive")
    assert base_fails.positive.status == Status.NOT_FOUND
    assert np.isnan(missing.positive.values[0])
    assert missing.positive.changes == {}


def test_examples_that_fail_the_models_predict_are_searched_again_by_it() -> None:
    X = np.array([[x, y] for x in range(11) if x not in GAP for y in range(3)], dtype=float)
    explanations = Explainer(Moody(), X, base={0: 0.0}).explain(X)
    for explanation in explanations:
        assert explanation.positive.found
        (shown,) = Moody().predict(explanation.positive.values.to_numpy(float)[None])
        assert shown == explanation.prediction
        assert not any(np.signbit(value) for value in explanation.positive.values)


def test_a_second_search_has_what_the_first_left_of_the_budget() -> None:
    X = np.array([[x, y] for x in range(11) if x not in GAP for y in range(3)], dtype=float)
    explainer = Explainer(Moody(), X, base={0: 0.0}, options=SearchOptions(n_steps=1, n_directions=4))
    free, limited = ([one.negative for one in explainer.explain(X, max_queries=most)] for most in (None, 16))
    most_of_a_round = 4 * 8  # states, and what is asked about each at most
    assert max(one.n_queries for one in free) > 16 + most_of_a_round
    assert max(one.n_queries for one in limited) < 16 + most_of_a_round
    assert {one.status for one in limited} == {Status.FOUND, Status.OUT_OF_BUDGET}


def test_a_positive_is_found_where_many_features_must_move_together() -> None:
    generator = np.random.default_rng(2)
    X = generator.normal(size=(60, 300)).round(2)
    model = RandomForestClassifier(random_state=2).fit(X, generator.random(60) < 0.15)
    explainer = Explainer(model, X, base=dict.fromkeys(range(300), 0.0))
    explanations = explainer.explain(X[:30])
    assert {one.positive.status for one in explanations} == {Status.FOUND}  # the row itself is one
    assert max(one.positive.n_changed for one in explanations) > 12


def test_a_negative_is_found_where_twelve_rounds_do_not_reach_it() -> None:
    generator = np.random.default_rng(5)
    X = generator.normal(size=(40, 100)).round(2)
    model = RandomForestClassifier(50, random_state=5).fit(X, generator.random(40) < 0.15)
    explainer = Explainer(model, X, base=dict.fromkeys(range(100), 0.0), options=SearchOptions(margin=0.3))
    for explanation in explainer.explain(X[[8, 14, 17]], kinds="negative"):  # lost without the second, long beam
        assert explanation.negative.found


@pytest.mark.parametrize("n_trees", [1, 2])
@pytest.mark.parametrize(("base", "own"), [(8.0, 2.2), (0.0, 2.7)])
def test_a_number_between_those_of_the_data_is_its_own_positive(base: float, own: float, n_trees: int) -> None:
    X = np.array([[x, y] for x in range(10) for y in range(4)], dtype=float)
    model = RandomForestClassifier(n_trees, bootstrap=False, random_state=0).fit(X, X[:, 0] > 2.0)  # beyond 2.5
    (explanation,) = Explainer(model, X, base={0: base}).explain([[own, 1.0]])
    assert explanation.positive.status == Status.FOUND
    assert explanation.positive.values[0] == own
    assert explanation.positive.lower_bound == (explanation.positive.distance if n_trees == 1 else None)


def test_no_rows(explainer: Explainer, rows: pd.DataFrame) -> None:
    explanations = explainer.explain(rows.iloc[:0])
    assert len(explanations) == 0
    assert len(explanations.to_frame()) == len(explanations.summary()) == 0


@pytest.mark.parametrize(
    "form",
    [
        lambda row: row.iloc[0],
        lambda row: row.iloc[0].to_dict(),
        lambda row: row.to_dict("records"),
        lambda row: row.iloc[0].to_numpy(),
        lambda row: row[["purpose", "amount", "age"]],
    ],
    ids=["Series", "dict", "list of dicts", "1-D array", "columns reordered"],
)
def test_every_form_of_a_row(credit: tuple[Any, pd.DataFrame], form: Callable[[pd.DataFrame], Any]) -> None:
    model, X = credit
    explainer = Explainer(model, X, options=QUICK)
    expected, found = explainer.explain(X.iloc[[4]])[0], explainer.explain(form(X.iloc[[4]]))[0]
    for mine, theirs in zip(found.contrasts, expected.contrasts, strict=True):
        assert (mine.status, mine.changes) == (theirs.status, theirs.changes)
        assert list(mine.values.index) == list(X.columns)


@pytest.mark.parametrize("kind", ["tree", "black box"])
def test_background_in_another_order_than_the_model(kind: str) -> None:
    X, y = mixed()
    X = X[["age", "amount"]]
    model = RandomForestClassifier(5, random_state=0) if kind == "tree" else LogisticRegression(max_iter=1000)
    model.fit(X, y)
    straight = Explainer(model, X, options=QUICK).explain(X.iloc[:5])
    turned = Explainer(model, X[["amount", "age"]], options=QUICK).explain(X.iloc[:5])
    for mine, theirs in zip(turned, straight, strict=True):
        assert mine.prediction == theirs.prediction
        assert_array_equal(mine.probabilities, theirs.probabilities)
        for contrast in mine.contrasts:
            if contrast.values is not None:
                says = model.predict(contrast.values[["age", "amount"]].to_frame().T.astype(X.dtypes))[0]
                assert (says == mine.prediction) == (contrast.kind == "positive")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"freeze": ["age"]}, TypeError, "freeze"),
        ({"frozen": ["aeg"]}, OptionError, "age"),
        ({"ranges": {"amonut": (0, 1)}}, OptionError, "amount"),
        ({"ranges": {"age": (60, 20)}}, OptionError, "age"),
        ({"directions": {"age": "up"}}, OptionError, "increase"),
        ({"base": {"agee": 1}}, OptionError, "age"),
        ({"categorical": ["purpos"]}, OptionError, "purpose"),
        ({"options": {"n_steps": 3}}, OptionError, "SearchOptions"),
        ({"encoding": "onehot"}, OptionError, "fma"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(
    credit: tuple[Any, pd.DataFrame], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Explainer(*credit, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"target": "worse"}, OptionError, "its classes are"),
        ({"target": pd.NA}, OptionError, "its classes are"),
        ({"kinds": ("negativ",)}, OptionError, "negative"),
        ({"kinds": ()}, OptionError, "kinds"),
        ({"seed": -1}, OptionError, "seed"),
        ({"seed": 1.5}, OptionError, "seed"),
        ({"max_queries": 0}, OptionError, "max_queries"),
        ({"time_limit": -1.0}, OptionError, "time_limit"),
        ({"budget": 1}, TypeError, "budget"),
    ],
    ids=str,
)
def test_wrong_questions_are_refused(
    explainer: Explainer, rows: pd.DataFrame, call: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        explainer.explain(rows, **call)


def test_wrong_tables_are_refused(explainer: Explainer, rows: pd.DataFrame) -> None:
    with pytest.raises(DataError, match="amount"):
        explainer.explain(rows.drop(columns="amount"))
    with pytest.raises(DataError, match="extra"):
        explainer.explain(rows.assign(extra=1))
    with pytest.raises(DataError, match="amount"):
        explainer.explain(rows.assign(amount=np.inf))


def test_a_row_that_is_in_the_target_class_says_so(credit: tuple[Any, pd.DataFrame]) -> None:
    model, X = credit
    explainer = Explainer(model, X)
    for explanation in explainer.explain(X[:6], target="good"):
        assert explanation.negative.target == "good"
        assert explanation.negative.found == (explanation.prediction != "good")
        assert ("It is good already." in explanation.reason()) == (explanation.prediction == "good")
    assert {one.prediction for one in explainer.explain(X[:6])} == {"bad", "good"}


def test_a_row_is_the_same_beside_one_without_a_result() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((300, 4))
    model = RandomForestClassifier(10, max_depth=4, random_state=0).fit(X, X[:, 0] + X[:, 1] > 0)
    explainer = Explainer(model, X, options=SearchOptions(n_steps=5), directions={0: "increase", 1: "increase"})
    together = explainer.explain(X[:12])
    assert {one.negative.found for one in together} == {True, False}
    for at, one in enumerate(together):
        alone = explainer.explain(pd.DataFrame(X[at : at + 1], index=[at]))
        assert_same(Explanations([one]), alone)


def test_a_deep_tree_and_its_budget() -> None:
    n = 4200  # a path of more than 4096 nodes once wrote beyond its room
    X = np.column_stack([np.arange(n, dtype=float), np.full(n, 0.5)])
    model = DecisionTreeClassifier(random_state=0).fit(X, np.arange(n) % 2)
    explainer = Explainer(model, X)
    assert all(one.negative.found and one.negative.lower_bound is not None for one in explainer.explain(X[2000:2003]))
    short = explainer.explain(X[2000:2003], max_queries=1)
    assert all(one.negative.n_queries <= 2 and one.negative.lower_bound is None for one in short)


@pytest.mark.parametrize("dtype", [">f8", np.longdouble])
def test_a_background_of_another_byte_order_or_width(dtype: Any) -> None:
    X = np.random.default_rng(0).standard_normal((60, 2))
    model = step(0.0)
    assert_same(Explainer(model, X.astype(dtype)).explain(X[:2]), Explainer(model, X).explain(X[:2]))


def test_more_queries_than_can_be_counted_are_no_limit() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    tree = RandomForestClassifier(3, random_state=0).fit(X, X[:, 0] > 0.0)
    for model in (tree, lambda X: tree.predict_proba(X)):
        explainer = Explainer(model, X)
        many, free = explainer.explain(X[:2], max_queries=10**30), explainer.explain(X[:2])
        pd.testing.assert_frame_equal(many.to_frame(), free.to_frame())


@pytest.mark.parametrize("refine", [True, False])
def test_the_values_of_a_float32_column_obey_the_rules_as_shown(refine: bool) -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(90, 3)).astype("float32"), columns=list("abc"))
    model = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, X["a"] + X["b"] > 0.0)
    explainer = Explainer(model, X, options=SearchOptions(refine=refine))
    for explanation in explainer.explain(X.head(40)):
        own, base = explanation.original.astype(float), explanation.base.astype(float)
        for contrast in explanation.contrasts:
            assert all(start != end for start, end in contrast.changes.values())
            if contrast.values is None:
                continue
            distance = (contrast.values.astype(float) - base).abs() - (own - base).abs()
            assert (distance <= 0.0).all() if contrast.kind == "positive" else (distance >= 0.0).all()


@pytest.mark.parametrize("as_frame", [True, False])
def test_results_do_not_follow_what_is_written_into_the_table_later(as_frame: bool) -> None:
    """Their Series are made when somebody asks for them, maybe long after."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    answer = np.empty((0, 2))

    def model(table: Any) -> Any:
        """A classifier that writes into what it answered before."""
        nonlocal answer
        answer[:] = 0.5
        right = 1.0 / (1.0 + np.exp(-np.asarray(table, float)[:, 0]))
        answer = np.column_stack([1.0 - right, right])
        return answer

    explainer = Explainer(model, X, options=QUICK)
    table = X[:3].copy()
    given: Any = pd.DataFrame(table, copy=False) if as_frame else table
    at_once = [(one.original.copy(), one.probabilities.copy(), one.base.copy()) for one in explainer.explain(given)]
    later = explainer.explain(given)
    if as_frame:
        given.iloc[:] = 9.0
    table[:] = 9.0
    model(X)
    for one, (original, probabilities, base) in zip(later, at_once, strict=True):
        assert_series_equal(one.original, original)
        assert_series_equal(one.probabilities, probabilities)
        assert_series_equal(one.base, base)


def test_a_series_of_a_result_is_one_and_the_same(explainer: Explainer, rows: pd.DataFrame) -> None:
    explanations = explainer.explain(rows)
    untouched = pickle.loads(pickle.dumps(explanations))
    for one in explanations:
        assert one.original is one.original
        assert one.negative is not None
        assert one.negative.reference is one.original
        assert one.negative.importance is one.negative.importance
    assert_same(explanations, untouched)
    assert_same(explanations, pickle.loads(pickle.dumps(explanations)))


def test_cells_are_those_of_the_series_made_or_not(explainer: Explainer, rows: pd.DataFrame) -> None:
    for one in explainer.explain(rows):
        for result, names in [(one, ["original", "base", "probabilities"])] + [
            (contrast, ["values", "importance", "sensitivity", "probabilities", "reference"])
            for contrast in one.contrasts
            if contrast.found
        ]:
            for name in names:
                before = cells_of(result, name)
                assert before == getattr(result, name).to_dict() == cells_of(result, name)


NEAR = SearchOptions(away_from_base=False)


def test_a_single_tree_is_solved_over_all_levels() -> None:
    """A change that 300 more frequent levels hide is no proof that there is none."""
    level = np.r_[np.repeat(np.arange(300), 6), np.arange(300, 400)]
    X = pd.DataFrame({"shop": pd.Categorical([f"s{number:03d}" for number in level])})
    model = make_pipeline(make_column_transformer((OrdinalEncoder(), ["shop"])), DecisionTreeClassifier())
    model.fit(X, level >= 300)
    explainer = Explainer(model, X, options=NEAR)
    assert explainer.describe().startswith("compiled")
    negative = explainer.explain(X.iloc[:1])[0].negative
    assert negative is not None
    assert negative.status is Status.FOUND
    assert negative.sensitivity["shop"] == 1.0


@pytest.mark.parametrize("model", [DecisionTreeClassifier(), RandomForestClassifier(20, random_state=0)])
def test_a_number_that_float32_moves_over_a_threshold(model: Any) -> None:
    """20240117 is read as 20240116, on the other side: the next day that is read beyond is 20240118."""
    X = pd.DataFrame({"opened": np.tile(np.arange(20240101, 20240129), 20)})
    model.fit(X, X["opened"] > 20240116)
    explanation = Explainer(model, X, options=NEAR).explain(pd.DataFrame({"opened": [20240117]}))[0]
    assert not explanation.prediction
    assert explanation.negative is not None
    assert explanation.negative.changes == {"opened": (20240117, 20240118)}


def test_a_result_keeps_no_other_row() -> None:
    X = np.random.default_rng(0).normal(size=(60, 50))
    explainer = Explainer(DecisionTreeClassifier().fit(X, X[:, 0] > 0), X, options=QUICK)
    for result in (kept := explainer.explain(X)[0], *kept.contrasts):
        rows = [row for row in vars(result).values() if hasattr(row, "by_name")]
        assert rows
        assert all(row._cells.base is None for row in rows)


def test_threads_get_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    row = rows_of(np.zeros((1, 3)), pd.Index(list("abc")))[0]
    both = threading.Barrier(2, timeout=30)

    class Slow(pd.Series):
        """A Series that is made by two threads at once."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            both.wait()
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(pd, "Series", Slow)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: row.series, range(2))
    assert one is other
