"""A third party's adapter passes the conformance kit, as its author would run it."""

import numpy as np
import pandas as pd
from macem_toyboost import ToyBoostAdapter
from toyboost import ToyBoost

from macem.testing import AdapterConformance, Case


def _data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    return X, np.where(X[:, 0] + X[:, 1] * X[:, 2] > 0.0, "good", "bad")


def _array() -> Case:
    X, y = _data()
    return Case(ToyBoost().fit(X, y), X, accepts_nan=True, accepts_inf=True)


def _frame() -> Case:
    X, y = _data()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(d=np.arange(200))
    return Case(ToyBoost(50).fit(frame, y), frame, accepts_nan=True, accepts_inf=True)


CASES = {"array": _array, "frame": _frame}


class TestToyBoost(AdapterConformance):
    package = "toyboost"
    adapter = ToyBoostAdapter
    cases = CASES
