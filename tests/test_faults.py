"""What users of such tools run into: one test for each kind of fault, on small models."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from macem import Explainer, MacemError, Status
from macem.errors import ModelChangedError

pytest.importorskip("sklearn")
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder


def background(n: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "amount": random.normal(size=n).round(2),
            "months": random.integers(0, 20, n),
            "score": random.normal(size=n),
            "home": pd.Series(random.choice(["own", "rent", "nan"], n), dtype=object),
        }
    )
    total = table["amount"] + table["months"] / 10 + table["score"] + (table["home"] == "nan")
    return table, np.where(total > 1.2, "good", "bad")


TABLE, CLASSES = background()


def fitted(n_trees: int) -> Any:
    one_hot = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        remainder="passthrough",
    )
    forest = RandomForestClassifier(n_trees, max_depth=4, random_state=0)
    return make_pipeline(one_hot, forest).fit(TABLE, CLASSES)


@pytest.fixture(scope="module")
def model() -> Any:
    return fitted(4)


@pytest.fixture(scope="module")
def explainer(model: Any) -> Explainer:
    return Explainer(model, TABLE)


def shown(values: pd.Series) -> pd.DataFrame:
    return pd.DataFrame([values.tolist()], columns=values.index).astype(TABLE.dtypes)


def round_trips(table: pd.DataFrame) -> list[pd.DataFrame]:
    """The table as it comes back from CSV, from JSON, and through float32."""
    csv = pd.read_csv(io.StringIO(table.to_csv(index=False)), keep_default_na=False)
    cells = {name: column.tolist() for name, column in table.items()}
    narrow = table.astype({"amount": "float32", "score": "float32"})
    return [csv.astype(table.dtypes), pd.DataFrame(json.loads(json.dumps(cells))).astype(table.dtypes), narrow]


@pytest.mark.parametrize("n_trees", [1, 2, 5])
def test_class_holds_by_the_models_own_predict_after_every_round_trip(n_trees: int) -> None:
    model = fitted(n_trees)
    for row in Explainer(model, TABLE).explain(TABLE.head(12)):
        for contrast in row.contrasts:
            assert contrast.status is Status.FOUND
            assert contrast.values is not None
            for table in [shown(contrast.values), *round_trips(shown(contrast.values))]:
                predicted = model.predict(table)[0]
                assert predicted == contrast.prediction
                assert (predicted == row.prediction) == (contrast.kind == "positive")


@pytest.mark.parametrize(
    "rules",
    [
        {"frozen": []},
        {"frozen": ["amount", "home"]},
        {"frozen": ["amount"], "ranges": {"amount": (0.0, 0.5)}},
        {"ranges": {"months": (3.5, 9.2)}},
        {"directions": {"months": "increase", "amount": "decrease"}},
    ],
)
def test_rules_hold_exactly(model: Any, rules: dict[str, Any]) -> None:
    found = 0
    for row in Explainer(model, TABLE, **rules).explain(TABLE.head(10)):
        for contrast in row.contrasts:
            if contrast.values is None:
                continue
            found += 1
            for name in rules.get("frozen", ()):
                assert contrast.values[name] == row.original[name]
            for name in ("amount", "months", "score"):
                own, value, base = row.original[name], contrast.values[name], row.base[name]
                if value == own:
                    continue
                nearer = contrast.kind == "positive"
                assert abs(value - base) <= abs(own - base) if nearer else abs(value - base) >= abs(own - base)
                low, high = rules.get("ranges", {}).get(name, (-np.inf, np.inf))
                assert low <= value <= high
                assert {"increase": value > own, "decrease": value < own}.get(
                    rules.get("directions", {}).get(name, ""), True
                )
    assert found


def test_categories_come_back_as_they_went_in(explainer: Explainer) -> None:
    rows = TABLE.head(10).assign(home=["own", "nan", "castle", "rent", "own"] * 2)
    for row in explainer.explain(rows):
        for contrast in row.contrasts:
            assert contrast.values is not None
            assert contrast.values["home"] in {"own", "rent", "nan", row.original["home"]}
            assert type(contrast.values["home"]) is str


CODES = np.random.default_rng(1).choice([2, 17, 300], len(TABLE))


def with_codes(cells: Any, dtype: Any) -> pd.DataFrame:
    return TABLE[["amount", "score"]].assign(code=pd.Series(cells, dtype=dtype))


def coded_classes() -> np.ndarray:
    return np.where((TABLE["amount"] > 0.0) ^ (CODES == 17), "good", "bad")


def judge(model: Any, X: pd.DataFrame, **options: Any) -> None:
    """Explain some rows: the column of codes keeps its levels and its dtype, and the model confirms every class."""
    explainer = Explainer(model, X, **options)
    assert explainer.describe().startswith("compiled")
    changed = 0
    for row in explainer.explain(X.head(12)):
        assert row.error is None
        for contrast in row.contrasts:
            if contrast.values is None:
                continue
            level = contrast.values["code"]
            changed += "code" in contrast.changes
            known = X["code"].dropna().tolist()
            assert pd.isna(level) or (level in known and type(level) in set(map(type, known)))
            assert model.predict(pd.DataFrame([contrast.values.to_dict()]).astype(X.dtypes))[0] == contrast.prediction
    assert changed


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(4, random_state=0),
        HistGradientBoostingClassifier(max_iter=4, categorical_features=None),
    ],
)
@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (CODES, "category"),
        (CODES.astype(str), pd.CategoricalDtype(["2", "17", "300"])),
        (CODES.astype(str), "str"),
        (CODES.astype(str), "string"),
        (CODES.astype(str), object),
        (np.where(CODES == 2, None, CODES), pd.CategoricalDtype([17, 300])),
    ],
)
def test_categories_that_the_model_takes_as_numbers(model: Any, cells: Any, dtype: Any) -> None:
    X = with_codes(cells, dtype)
    judge(model.fit(X, coded_classes()), X)


@pytest.mark.parametrize("levels", [[b"a", b"b", b"c"], list(pd.to_datetime(["2020", "2021", "2022"]))])
def test_categories_of_which_no_other_is_made_up(levels: list[Any]) -> None:
    X = with_codes([levels[[2, 17, 300].index(code)] for code in CODES], None)
    one_hot = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["code"]), remainder="passthrough")
    model = make_pipeline(one_hot, RandomForestClassifier(4, random_state=0)).fit(X, coded_classes())
    judge(model, X, categorical=["code"])


def test_a_search_without_a_way_ends_with_a_status(model: Any) -> None:
    stuck = Explainer(model, TABLE, frozen=list(TABLE)).explain(TABLE.head(2))
    assert [row.negative.status for row in stuck if row.negative] == [Status.NONE_EXISTS] * 2

    def constant(table: Any) -> np.ndarray:
        return np.tile([0.3, 0.7], (len(table), 1))

    for row in Explainer(constant, TABLE).explain(TABLE.head(2), kinds=["negative"], max_queries=100):
        assert row.negative is not None
        assert row.negative.status in (Status.OUT_OF_BUDGET, Status.NOT_FOUND)


def test_same_answer_alone_shuffled_and_by_columns_in_any_order(explainer: Explainer) -> None:
    rows = TABLE.head(6)
    together = explainer.explain(rows).to_frame()
    reordered = explainer.explain(rows[["home", "score", "months", "amount"]]).to_frame()
    pd.testing.assert_frame_equal(together, reordered)
    backwards = explainer.explain(rows[::-1])
    alone = [explainer.explain(rows.iloc[[at]])[0] for at in range(6)]
    for one, other in zip(alone, backwards[::-1], strict=True):
        for a, b in zip(one.contrasts, other.contrasts, strict=True):
            assert a.changes == b.changes


def test_an_earlier_result_stays_as_it_was(explainer: Explainer) -> None:
    first = explainer.explain(TABLE.head(3))
    before = first.to_frame()
    explainer.explain(TABLE.tail(3), target="good")
    pd.testing.assert_frame_equal(first.to_frame(), before)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"kinds": None}, ["kinds=(None,)", "give"]),
        ({"kinds": 5}, ["kinds=(5,)", "give"]),
        ({"target": ["good"]}, ["target=['good']", "'bad', 'good'"]),
        ({"target": "nope"}, ["target='nope'", "'bad', 'good'"]),
        ({"n_jobs": 0}, ["n_jobs=0", "give"]),
        ({"n_jobs": "all"}, ["n_jobs='all'", "give"]),
        ({"n_jobs": 1.5}, ["n_jobs=1.5", "give"]),
    ],
)
def test_impossible_questions_name_the_option(explainer: Explainer, option: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(MacemError) as refused:
        explainer.explain(TABLE.head(1), **option)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"directions": {"months": ["increase"]}}, ["directions['months']", "['increase']", "give"]),
        ({"ranges": {"months": (0, 10**400)}}, ["ranges['months']", "give"]),
        ({"frozen": ["month"]}, ["frozen", "'month'", "did you mean 'months'"]),
        ({"base": {"amount": 1000}}, ["base['amount']", "1000.0", "ranges="]),
    ],
)
def test_impossible_rules_name_the_feature(model: Any, option: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(MacemError) as refused:
        Explainer(model, TABLE, **option)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (TABLE.head(2).drop(columns="score"), ["missing 'score'"]),
        (TABLE.head(2).assign(extra=1), ["unknown 'extra'"]),
        (TABLE.head(2).assign(amount=-np.inf), ["'amount'", "row 0", "-inf", "give"]),
        (TABLE.head(2).assign(amount="much"), ["'amount'", "'much'", "give"]),
        (TABLE.head(2).assign(home=[17, 18]), ["'home'", "row 0", "holds 17", "are texts", "dtype={'home': str}"]),
        (TABLE.head(2).assign(home=[np.nan, 17.0]), ["'home'", "row 1", "holds 17.0", "are texts"]),
        (TABLE.head(2).assign(home=pd.Timestamp("2020-01-02")), ["'home'", "Timestamp", "are texts"]),
        ({**TABLE.iloc[0], "home": ["own"]}, ["'home'", "row 0", "['own']", "give texts"]),
        (TABLE.head(2).to_records(), ["unknown 'index'", "give"]),
        (np.zeros((2, 3)), ["3 columns", "4"]),
    ],
)
def test_wrong_rows_name_the_column(explainer: Explainer, rows: Any, words: list[str]) -> None:
    with pytest.raises(MacemError) as refused:
        explainer.explain(rows)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize("index", [[7, 7, 8], [0.5, 0.5, float("nan")], ["a", "a", None]])
def test_rows_are_named_by_plain_labels(explainer: Explainer, index: list[Any]) -> None:
    rows = TABLE.head(3).set_axis(index).assign(amount=[1.0, 2.0, 1e300])  # too large for a forest
    explanations = explainer.explain(rows)
    assert [row.error is None for row in explanations] == [True, True, False]
    assert list(map(repr, (row.index for row in explanations))) == list(map(repr, rows.index.tolist()))
    pd.testing.assert_frame_equal(
        explainer.explain(rows.to_records(index=False)).to_frame().drop(columns="row"),
        explanations.to_frame().drop(columns="row"),
    )


def test_a_refitted_model_is_noticed() -> None:
    model = fitted(3)
    explainer = Explainer(model, TABLE)
    model.fit(TABLE, np.where(CLASSES == "good", "bad", "good"))
    with pytest.raises(ModelChangedError):
        explainer.explain(TABLE.head(3))
