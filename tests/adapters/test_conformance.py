"""The built-in adapters pass the kit that plugin authors inherit."""

import numpy as np
import pandas as pd
import pytest

from macem.adapters.lightgbm import LightGBMAdapter
from macem.adapters.mean import WeightedMeanAdapter
from macem.adapters.sklearn import SklearnAdapter
from macem.adapters.xgboost import XGBoostAdapter
from macem.testing import AdapterConformance, Case

N_ROWS = 300


def numbers(*, missing=False):
    X = np.random.default_rng(0).normal(size=(N_ROWS, 4)).round(2)
    X[:, 3] = np.abs(X[:, 3] * 10.0).round()
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * X[:, 3]
    if missing:
        X[::7, 1] = np.nan
    return X, score


def two_classes(**options):
    X, score = numbers(**options)
    return X, np.where(score > 0.7, "good", "bad")


def three_classes(**options):
    X, score = numbers(**options)
    return X, np.digitize(score, [0.3, 1.0])


def frame():
    X, score = numbers(missing=True)
    purposes = np.random.default_rng(1).choice(["car", "house", "radio", "school"], N_ROWS, p=[0.4, 0.3, 0.2, 0.1])
    table = pd.DataFrame({"amount": X[:, 0], "purpose": purposes, "rate": X[:, 1], "months": X[:, 3].astype(int)})
    return table, np.where(score + (purposes == "car") > 0.7, 1, 0)


def categories():
    table, y = frame()
    return table.astype({"purpose": "category"}), y


def fitted(model, data, **flags):
    """A case that is fitted when its tests run: `model` may be a function that imports the model's library."""

    def case():
        X, y = data()
        return Case((model() if callable(model) else model).fit(X, y), X, **flags)

    return case


# scikit-learn


def sklearn_cases():
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
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder
    from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

    forest = RandomForestClassifier(15, random_state=0)
    boosting = GradientBoostingClassifier(n_estimators=15, random_state=0)
    histogram = HistGradientBoostingClassifier(max_iter=15, random_state=0)
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["purpose"]), (SimpleImputer(), ["rate"]), remainder="passthrough"
    )
    nan = {"accepts_nan": True}
    everything = {"accepts_nan": True, "accepts_inf": True}
    names = {"accepts_unseen": True, "accepts_missing_category": True}
    return {
        "tree": fitted(DecisionTreeClassifier(random_state=0), two_classes, **nan),
        "extra tree": fitted(ExtraTreeClassifier(random_state=0), three_classes, **nan),
        "forest": fitted(forest, two_classes, **nan),
        "forest of three classes": fitted(forest, three_classes, **nan),
        "forest with missing values": fitted(forest, lambda: two_classes(missing=True), **nan),
        "extra trees": fitted(ExtraTreesClassifier(15, random_state=0), three_classes, **nan),
        "boosting": fitted(boosting, two_classes),
        "boosting of three classes": fitted(boosting, three_classes),
        "exponential boosting": fitted(GradientBoostingClassifier(loss="exponential", n_estimators=15), two_classes),
        "histogram boosting": fitted(histogram, lambda: two_classes(missing=True), **everything),
        "histogram boosting of three classes": fitted(histogram, three_classes, **everything),
        "histogram boosting of categories": fitted(
            HistGradientBoostingClassifier(max_iter=15, categorical_features="from_dtype"),
            categories,
            **everything,
            **names,
        ),
        "adaboost": fitted(AdaBoostClassifier(n_estimators=15, random_state=0), three_classes),
        "bagging": fitted(BaggingClassifier(n_estimators=9, max_features=0.5, random_state=0), two_classes, **nan),
        "voting": fitted(VotingClassifier([("a", forest), ("b", boosting)], voting="soft"), two_classes),
        "sigmoid calibration": fitted(CalibratedClassifierCV(forest, cv=2), two_classes, bit_equal=False, **nan),
        "isotonic calibration": fitted(
            CalibratedClassifierCV(forest, cv=2, method="isotonic"), two_classes, table=False
        ),
        "stacking": fitted(StackingClassifier([("a", forest)]), two_classes, table=False),
        "no trees": fitted(LogisticRegression(), two_classes, table=False),
        "pipeline": fitted(make_pipeline(encode, forest), frame, **nan, **names),
    }


class TestSklearn(AdapterConformance):
    package = "sklearn"
    adapter = SklearnAdapter
    cases = sklearn_cases()


# XGBoost


def xgb(**options):
    def model():
        library = pytest.importorskip("xgboost")
        return library.XGBClassifier(**{"n_estimators": 15, "max_depth": 4, "n_jobs": 1, **options})

    return model


def codes(data, **options):
    def coded():
        X, y = data(**options)
        return X, np.unique(y, return_inverse=True)[1]

    return coded


def labelled_booster():
    library = pytest.importorskip("xgboost")
    X, y = codes(two_classes)()
    names = ["a", "b", "c", "d"]
    booster = library.train({"objective": "binary:logistic"}, library.DMatrix(X, y, feature_names=names), 10)

    def probabilities(X):  # in float32, as XGBClassifier makes two columns of one
        positive = booster.inplace_predict(X)
        return np.column_stack([1.0 - positive, positive])

    table = pd.DataFrame(X, columns=names)
    return Case(booster, table, accepts_nan=True, accepts_inf=True, probabilities=probabilities)


@pytest.mark.filterwarnings("ignore:.*booster=gblinear. is deprecated")  # XGBoost 3.4
class TestXGBoost(AdapterConformance):
    package = "xgboost"
    adapter = XGBoostAdapter
    cases = {  # noqa: RUF012
        "two classes": fitted(xgb(), codes(two_classes), accepts_nan=True, accepts_inf=True),
        "three classes": fitted(xgb(), three_classes, accepts_nan=True, accepts_inf=True),
        "missing values": fitted(xgb(), codes(two_classes, missing=True), accepts_nan=True, accepts_inf=True),
        "zero is missing": fitted(xgb(missing=0.0), codes(two_classes), accepts_nan=True, accepts_inf=True),
        "dart": fitted(xgb(booster="dart", rate_drop=0.3), codes(two_classes), accepts_nan=True, accepts_inf=True),
        "hinge": fitted(xgb(objective="binary:hinge"), codes(two_classes), accepts_nan=True, accepts_inf=True),
        "categories": fitted(
            xgb(enable_categorical=True),
            categories,
            accepts_nan=True,
            accepts_inf=True,
            accepts_missing_category=True,  # and refuses unseen ones
        ),
        "linear": fitted(xgb(booster="gblinear", max_depth=None), codes(two_classes), table=False),
        "booster": labelled_booster,
    }


# LightGBM


def lgbm(**options):
    def model():
        library = pytest.importorskip("lightgbm")
        return library.LGBMClassifier(**{"n_estimators": 15, "n_jobs": 1, "verbose": -1, "random_state": 0, **options})

    return model


FOREST = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}


class TestLightGBM(AdapterConformance):
    package = "lightgbm"
    adapter = LightGBMAdapter
    cases = {  # noqa: RUF012
        "two classes": fitted(lgbm(), two_classes, accepts_nan=True, accepts_inf=True),
        "three classes": fitted(lgbm(), three_classes, accepts_nan=True, accepts_inf=True),
        "missing values": fitted(lgbm(), lambda: two_classes(missing=True), accepts_nan=True, accepts_inf=True),
        "zero is missing": fitted(lgbm(zero_as_missing=True), two_classes, accepts_nan=True, accepts_inf=True),
        "dart": fitted(lgbm(boosting_type="dart"), two_classes, accepts_nan=True, accepts_inf=True),
        "forest": fitted(lgbm(**FOREST), two_classes, accepts_nan=True, accepts_inf=True),
        "one against all": fitted(lgbm(objective="multiclassova"), three_classes, accepts_nan=True, accepts_inf=True),
        "categories": fitted(
            lgbm(),
            categories,
            accepts_nan=True,
            accepts_inf=True,
            accepts_unseen=True,
            accepts_missing_category=True,
        ),
    }


# Pipelines, folded


def folded(model, *, encode="one-hot", **flags):
    """A case of a pipeline of encoders, imputers, scalers and a model, over strings, floats with gaps and integers."""

    def case():
        from sklearn.compose import make_column_transformer
        from sklearn.frozen import FrozenEstimator
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import (
            OneHotEncoder,
            OrdinalEncoder,
            QuantileTransformer,
            StandardScaler,
            TargetEncoder,
        )

        X, y = frame()
        encoder = {
            "one-hot": OneHotEncoder(handle_unknown="ignore"),
            "ordinal": OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
            "target": FrozenEstimator(TargetEncoder().fit(X[["purpose"]], y)),  # fitted alone, it is not random
        }[encode]
        numbers = [("imputed", SimpleImputer(), ["rate"]), ("scaled", StandardScaler(), ["amount"])]
        if encode == "target":
            numbers[1] = ("ranked", QuantileTransformer(n_quantiles=20), ["amount"])
        transform = make_column_transformer(
            (encoder, ["purpose"]), *(part[1:] for part in numbers), remainder="passthrough"
        )
        accepted = {"accepts_nan": True, "accepts_unseen": True, "accepts_missing_category": True, **flags}
        return Case(make_pipeline(transform, model() if callable(model) else model).fit(X, y), X, **accepted)

    return case


def pipeline_cases():
    from sklearn.ensemble import (
        AdaBoostClassifier,
        BaggingClassifier,
        GradientBoostingClassifier,
        HistGradientBoostingClassifier,
        RandomForestClassifier,
        VotingClassifier,
    )

    forest = RandomForestClassifier(15, random_state=0)
    boosting = GradientBoostingClassifier(n_estimators=15, random_state=0)
    histogram = HistGradientBoostingClassifier(max_iter=15)
    voting = VotingClassifier([("a", forest), ("b", histogram)], voting="soft")
    return {
        "forest": folded(forest),
        "forest, ordinal": folded(forest, encode="ordinal"),
        "forest, target": folded(forest, encode="target"),
        "boosting": folded(boosting, accepts_nan=False),
        "histogram boosting": folded(histogram, encode="ordinal"),
        "adaboost": folded(AdaBoostClassifier(n_estimators=15, random_state=0), encode="target", accepts_nan=False),
        "bagging": folded(BaggingClassifier(n_estimators=9, max_features=0.7, random_state=0), encode="ordinal"),
        "voting": folded(voting, encode="ordinal"),
        "xgboost": folded(xgb()),
        "xgboost, ordinal": folded(xgb(missing=0.0), encode="ordinal"),
        "lightgbm": folded(lgbm(), encode="ordinal"),
        "lightgbm, zero is missing": folded(lgbm(zero_as_missing=True), encode="target"),
    }


class TestPipelines(AdapterConformance):
    package = "sklearn"
    adapter = SklearnAdapter
    cases = pipeline_cases()


# macem's own


def mean_of_libraries():
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

    from macem.adapters import ensemble

    X, y = two_classes()
    forest = RandomForestClassifier(15, random_state=0).fit(X, y)
    boosting = HistGradientBoostingClassifier(max_iter=9).fit(X, y)
    return Case(ensemble([(forest, 1.0), (boosting, 0.3)]), X, accepts_nan=True)


def mean_with_a_function():
    from sklearn.ensemble import RandomForestClassifier

    from macem.adapters import ensemble

    X, y = two_classes()
    return Case(ensemble([(RandomForestClassifier(15).fit(X, y), 1.0), (half, 2.0)]), X, table=False)


def half(X):
    return np.full(len(X), 0.5)


class TestWeightedMean(AdapterConformance):
    package = "macem"
    adapter = WeightedMeanAdapter
    cases = {"libraries": mean_of_libraries, "a function": mean_with_a_function}  # noqa: RUF012
