"""German Credit through every kind of model: strings in, strings out, and valid on the live model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

import macem
from macem.datasets import load_german_credit

X, LABELS = load_german_credit()
CODES = (LABELS == "good").astype(int)  # XGBoost wants classes 0, 1
ROWS = X.iloc[[3, 10]]
TEXT = [name for name in X if X[name].dtype != np.int64]
CATEGORIES = X.astype(dict.fromkeys(TEXT, "category"))
BLACK_BOX_QUERIES = 1500

FOREST = RandomForestClassifier(10, random_state=0)
BOOSTING = GradientBoostingClassifier(n_estimators=10, random_state=0)
HISTOGRAM = HistGradientBoostingClassifier(max_iter=10)
LINEAR = LogisticRegression()
TREE = DecisionTreeClassifier(max_depth=5, random_state=0)


def one_hot(model: Any) -> Any:
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), TEXT), (StandardScaler(), [*X.columns.drop(TEXT)])
    )
    return make_pipeline(encode, model)


def ordinal(model: Any) -> Any:
    unknown = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
    return make_pipeline(make_column_transformer((OrdinalEncoder(**unknown), TEXT), remainder="passthrough"), model)


def target(model: Any) -> Any:
    encoder = FrozenEstimator(TargetEncoder().fit(X[TEXT], LABELS))  # fitted alone, it is not random
    return make_pipeline(make_column_transformer((encoder, TEXT), remainder="passthrough"), model)


def kept(model: Any) -> Any:
    """Categories pass the transformers, and the model reads them itself."""
    scale = make_column_transformer((StandardScaler(), [*X.columns.drop(TEXT)]), ("passthrough", TEXT))
    return make_pipeline(scale.set_output(transform="pandas"), model)


def counted(model: Any) -> Any:
    library = pytest.importorskip("category_encoders")
    return make_pipeline(library.CountEncoder(cols=TEXT), model)


def voting(*models: Any, **options: Any) -> Any:
    return VotingClassifier([(str(place), model) for place, model in enumerate(models)], **options)


def calibrated(method: str) -> Any:
    return CalibratedClassifierCV(FOREST, method=method, cv=2)


Model = Callable[[], Any]

TABLES: dict[str, Model] = {
    "tree": lambda: one_hot(TREE),
    "extra tree": lambda: ordinal(ExtraTreeClassifier(max_depth=6, random_state=0)),
    "forest": lambda: one_hot(FOREST),
    "forest, target encoder": lambda: target(FOREST),
    "forest, frequency encoder": lambda: counted(FOREST),
    "extra trees": lambda: ordinal(ExtraTreesClassifier(10, random_state=0)),
    "boosting": lambda: one_hot(BOOSTING),
    "boosting, exponential": lambda: ordinal(GradientBoostingClassifier(loss="exponential", n_estimators=10)),
    "boosting, init zero": lambda: ordinal(GradientBoostingClassifier(init="zero", n_estimators=10)),
    "boosting, init a tree": lambda: ordinal(GradientBoostingClassifier(init=TREE, n_estimators=10)),
    "histogram boosting": lambda: ordinal(HISTOGRAM),
    "adaboost": lambda: ordinal(AdaBoostClassifier(n_estimators=10, random_state=0)),
    "bagging": lambda: ordinal(BaggingClassifier(max_features=0.6, random_state=0)),
    "voting, soft": lambda: one_hot(voting(FOREST, BOOSTING, voting="soft", weights=[2, 1])),
    "voting, hard": lambda: one_hot(voting(FOREST, BOOSTING, TREE)),
    "voting of pipelines": lambda: voting(one_hot(FOREST), ordinal(BOOSTING), voting="soft"),
    "calibrated, sigmoid": lambda: one_hot(calibrated("sigmoid")),
    "search": lambda: GridSearchCV(one_hot(FOREST), {"randomforestclassifier__max_depth": [3]}, cv=2),
    "search inside": lambda: one_hot(GridSearchCV(FOREST, {"max_depth": [3]}, cv=2)),
}

BLACK_BOXES: dict[str, Model] = {
    "boosting, init a line": lambda: one_hot(GradientBoostingClassifier(init=LINEAR, n_estimators=10)),
    "voting with a network": lambda: one_hot(
        voting(FOREST, MLPClassifier([4], max_iter=1000, tol=0.1, random_state=0), voting="soft")
    ),
    "voting, hard, with a line": lambda: one_hot(voting(FOREST, BOOSTING, LINEAR)),
    "stacking": lambda: one_hot(StackingClassifier([("a", FOREST), ("b", BOOSTING)], cv=2)),
    "stacking, passthrough": lambda: one_hot(StackingClassifier([("a", FOREST)], FOREST, cv=2, passthrough=True)),
    "calibrated, isotonic": lambda: one_hot(calibrated("isotonic")),
    "calibrated, temperature": lambda: one_hot(calibrated("temperature")),
    "one against all": lambda: one_hot(OneVsRestClassifier(FOREST)),
    "line": lambda: one_hot(LINEAR),
    "xgboost, linear": lambda: one_hot(xgb(booster="gblinear")),
    "lightgbm, linear leaves": lambda: one_hot(lgbm(linear_tree=True)),
    "lightgbm, stops early": lambda: one_hot(lgbm(pred_early_stop=True)),
}


def xgb(kind: str = "XGBClassifier", **options: Any) -> Any:
    return getattr(pytest.importorskip("xgboost"), kind)(**{"n_estimators": 10, "n_jobs": 1, **options})


def lgbm(**options: Any) -> Any:
    library = pytest.importorskip("lightgbm")
    return library.LGBMClassifier(**{"n_estimators": 10, "n_jobs": 1, "verbose": -1, **options})


XGBOOST: dict[str, Model] = {
    "xgboost": lambda: one_hot(xgb()),
    "xgboost, dart": lambda: ordinal(xgb(booster="dart", rate_drop=0.3)),
    "xgboost, zero is missing": lambda: ordinal(xgb(missing=0.0)),
    "xgboost, forest": lambda: ordinal(xgb("XGBRFClassifier")),
    "voting with xgboost": lambda: one_hot(voting(xgb(), FOREST, voting="soft")),
}

SAMPLED = {"bagging_freq": 1, "bagging_fraction": 0.6}
LIGHTGBM: dict[str, Model] = {
    "lightgbm": lambda: one_hot(lgbm()),
    "lightgbm, dart": lambda: ordinal(lgbm(boosting_type="dart")),
    "lightgbm, forest": lambda: ordinal(lgbm(boosting_type="rf", **SAMPLED)),
    "lightgbm, goss": lambda: ordinal(lgbm(data_sample_strategy="goss")),
    "lightgbm, extra trees": lambda: ordinal(lgbm(extra_trees=True)),
    "lightgbm, zero is missing": lambda: ordinal(lgbm(zero_as_missing=True)),
}


@pytest.mark.filterwarnings("ignore:.*(asked as a black box|booster=gblinear. is deprecated|no_silent_downcasting)")
@pytest.mark.parametrize("name", [*TABLES, *BLACK_BOXES, *XGBOOST, *LIGHTGBM])
def test_a_pipeline(name: str) -> None:
    model = (TABLES | BLACK_BOXES | XGBOOST | LIGHTGBM)[name]().fit(X, CODES if "xgboost" in name else LABELS)
    explained(macem.Explainer(model, X), model.predict, compiled=name not in BLACK_BOXES)


# Without a pipeline: models that read categories themselves, and what has no transformers


def as_categories(model: Any) -> Any:
    return model.fit(CATEGORIES, CODES)


NATIVE: dict[str, Model] = {
    "histogram boosting": lambda: as_categories(HISTOGRAM),
    "histogram boosting, last in a pipeline": lambda: as_categories(make_pipeline(HISTOGRAM)),
    "histogram boosting, behind a scaler": lambda: as_categories(kept(HISTOGRAM)),
    "xgboost, behind a scaler": lambda: as_categories(kept(xgb(enable_categorical=True))),
    "lightgbm, behind a scaler": lambda: as_categories(kept(lgbm())),
    "xgboost": lambda: as_categories(xgb(enable_categorical=True)),
    "lightgbm": lambda: as_categories(lgbm()),
    "lightgbm, booster": lambda: as_categories(lgbm()).booster_,
}


@pytest.mark.parametrize("name", NATIVE)
def test_categories(name: str) -> None:
    model = NATIVE[name]()

    def predict(table: pd.DataFrame) -> Any:
        table = table.astype(CATEGORIES.dtypes)
        answer = np.asarray(model.predict(table))
        return answer if name != "lightgbm, booster" else (answer > 0.5).astype(int)

    explained(macem.Explainer(model, CATEGORIES), predict, compiled=True, rows=CATEGORIES.iloc[[3, 10]])


def test_xgboost_booster() -> None:
    library = pytest.importorskip("xgboost")
    numbers = X.drop(columns=TEXT)
    booster = library.train({"objective": "binary:logistic"}, library.DMatrix(numbers, CODES), 10)

    def predict(table: pd.DataFrame) -> Any:
        return (booster.inplace_predict(table) > 0.5).astype(int)

    explained(macem.Explainer(booster, numbers), predict, compiled=True, rows=numbers.iloc[[3, 10]])


def test_catboost() -> None:
    library = pytest.importorskip("catboost")
    pytest.importorskip("macem_catboost")
    model = library.CatBoostClassifier(
        iterations=10, cat_features=TEXT, thread_count=1, verbose=False, allow_writing_files=False, max_ctr_complexity=1
    )
    model.fit(X, LABELS)
    explained(macem.Explainer(model, X), model.predict, compiled=True)


def test_an_ensemble_of_pipelines() -> None:
    members = [(one_hot(FOREST).fit(X, LABELS), 2.0), (ordinal(BOOSTING).fit(X, LABELS), 1.0)]
    model = macem.ensemble(members)
    explained(macem.Explainer(model, X), model.predict, compiled=True)
    mixed = macem.ensemble([*members, (one_hot(LINEAR).fit(X, LABELS), 1.0)])
    explained(macem.Explainer(mixed, X), mixed.predict, compiled=False)


def test_a_function() -> None:
    model = one_hot(FOREST).fit(X, LABELS)

    def good(table: pd.DataFrame) -> Any:
        return model.predict_proba(table)[:, 1]

    def predict(table: pd.DataFrame) -> Any:
        return (good(table) > 0.5).astype(int)

    explained(macem.Explainer(good, X), predict, compiled=False)


def explained(explainer: macem.Explainer, predict: Callable[[Any], Any], *, compiled: bool, rows: Any = ROWS) -> None:
    """Explain rows, and hold every example found against the live model, in the form that a user sees."""
    assert explainer.describe().startswith("compiled" if compiled else "lockstep"), explainer.describe()
    found = 0
    for row, explanation in enumerate(explainer.explain(rows, max_queries=None if compiled else BLACK_BOX_QUERIES)):
        assert explanation.error is None
        own = predict(rows.iloc[[row]])[0]
        assert explanation.prediction == own
        for contrast in explanation.contrasts:
            if contrast.status != macem.Status.FOUND:
                continue
            found += 1
            values = contrast.values
            assert list(values.index) == list(rows.columns)
            for name in rows:
                assert isinstance(values[name], str) == (name in TEXT)
                assert name not in TEXT or values[name] in set(X[name])
            shown = pd.DataFrame([values]).astype(rows.dtypes)
            assert (predict(shown)[0] == own) == (contrast.kind == "positive")
    assert found >= len(rows)  # a positive there always is
