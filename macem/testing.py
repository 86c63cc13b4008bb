"""The conformance kit: what every adapter must pass, as a pytest class to inherit.

    from macem.testing import AdapterConformance, Case

    class TestToyBoost(AdapterConformance):
        package = "toyboost"
        adapter = ToyBoostAdapter
        cases = {"binary": binary, "three classes": three_classes}  # functions that return a Case

macem's own adapters pass through the same class.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from macem.adapters import check_table, claimant, oracle_for
from macem.adapters.check import boundaries, columns, dtype_of, hard_tables, place
from macem.errors import MacemError
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, TreeOracle

__all__ = ["AdapterConformance", "Case"]

N_ROWS = 600  # rows of the data, and about as many on boundaries
N_SINGLE_ROWS = 20  # rows that are also asked one by one
TINY = [1e-36, float(np.float32(1e-35)), float(np.nextafter(np.float32(1e-35), np.float32(1.0))), 1e-44, 1e-50]
LARGE = [3.4e38, -3.4e38, 2.0**24 + 1, 2.0**53 + 2, 16777216.5]  # two numbers to either side collide in float32
EXTREMES = [0.0, -0.0, *TINY, *(-number for number in TINY), *LARGE]


@dataclass(frozen=True)
class Case:
    """A fitted model and what is expected of its adapter.

    Attributes
    ----------
    model : object
        Fitted.
    X : DataFrame or ndarray, shape (n, d)
        Rows as the model takes them; those it was fitted on will do.
    table : bool
        The adapter reads the model into a table; False: it stays a black box.
    bit_equal : bool
        The table's probabilities are the model's to the bit; False: within `tolerance`.
    tolerance : float
        Largest difference of a probability where they are not bit-equal.
    accepts_nan, accepts_inf, accepts_unseen, accepts_missing_category : bool
        The model answers rows with a missing number, with an infinite number, with a category it was not fitted on,
        with none where others have text. Where it does not, model or oracle must refuse them.
    probabilities : callable, optional
        Asks the model, for one that has no ``predict_proba``.
    """

    model: Any
    X: Any
    table: bool = True
    bit_equal: bool = True
    tolerance: float = 1e-6
    accepts_nan: bool = False
    accepts_inf: bool = False
    accepts_unseen: bool = False
    accepts_missing_category: bool = False
    probabilities: Callable[[Any], Any] | None = None


class AdapterConformance:
    """Inherit, name the adapter and the cases; every test below then runs on every case.

    Attributes
    ----------
    package : str
        Name of the entry point: the top-level package of the models.
    adapter : type
        The adapter class.
    cases : mapping of str to callable
        Name -> function without arguments that fits a model and returns a `Case`; called once, when its tests run.
    """

    package: ClassVar[str]
    adapter: ClassVar[type]
    cases: ClassVar[Mapping[str, Callable[[], Case]]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every test that asks for a case on each of them."""
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", list(self.cases), indirect=True, scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> Case:
        """Fit the model of one case."""
        return cls.cases[request.param]()

    @pytest.fixture(scope="class")
    @classmethod
    def oracle(cls, case: Case) -> Any:
        """Read it, by the adapter under test."""
        return cls.adapter().oracle(case.model)

    @pytest.fixture(scope="class")
    @classmethod
    def reference(cls, case: Case) -> BlackBoxOracle:
        """Ask the model itself, past the adapter."""
        return BlackBoxOracle(case.probabilities or case.model, one_vs_all=True)

    # Door

    def test_entry_point(self, case: Case) -> None:
        """The adapter is found by the class of the model."""
        found = claimant(case.model)
        assert found is not None, f"no entry point {self.package!r} in the group 'macem.adapters'"
        assert found.package == self.package, f"{found} claims the model, by the name {found.package!r}"
        assert type(found.load()) is self.adapter

    def test_discovery_imports_nothing(self) -> None:
        """Discovery imports neither the adapter nor the library."""
        script = (
            "import sys; from macem.adapters import claimant\n"
            f"model = type('Model', (), {{'__module__': {self.package + '.models'!r}}})()\n"
            "found = claimant(model)\n"
            f"assert found is not None and found.package == {self.package!r}, found\n"
            f"for module in ({self.package!r}, {self.adapter.__module__!r}):\n"
            "    assert module not in sys.modules or module == 'macem', module + ' was imported'\n"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr

    # Contract

    def test_oracle(self, case: Case, oracle: Any) -> None:
        """An oracle has classes and is a table where the case says so; a black box says why it is one."""
        assert np.ndim(oracle.classes) == 1
        assert (oracle.ensemble is not None) == case.table, getattr(oracle, "note", "")
        if case.table:
            assert oracle.ensemble.n_classes == len(oracle.classes)
            assert check_table(oracle, case.X) is None
        else:
            assert oracle.note
        assert type(oracle_for(case.model)) is type(oracle)

    def test_classes(self, case: Case, oracle: Any) -> None:
        """Classes are the model's own labels in the order of its columns; predictions are its own."""
        labels = getattr(case.model, "classes_", None)
        if labels is None:
            pytest.skip("the model does not name its classes")
        assert list(oracle.classes) == list(labels)
        predicted = getattr(oracle, "live", oracle).predict(case.X)
        np.testing.assert_array_equal(oracle.classes[predicted], np.ravel(case.model.predict(case.X)))

    # Agreement

    def test_data(self, case: Case, oracle: Any, reference: BlackBoxOracle) -> None:
        """Rows of the data."""
        _agree(case, oracle.predict_proba(case.X), reference.predict_proba(case.X))

    def test_boundaries(self, case: Case, oracle: Any, reference: BlackBoxOracle) -> None:
        """Numbers on split boundaries, and one float step to either side."""
        table = _hard(case, oracle, "boundary")
        _agree(case, oracle.predict_proba(table), reference.predict_proba(table))

    def test_extremes(self, case: Case, oracle: Any, reference: BlackBoxOracle) -> None:
        """Signed zeros, denormals, numbers between two float32, numbers that float32 or float64 cannot tell apart."""
        table = _answered(reference, _with_numbers(case, oracle, EXTREMES, beside=_halfway))
        _agree(case, oracle.predict_proba(table), reference.predict_proba(table))

    def test_missing(self, case: Case, oracle: Any, reference: BlackBoxOracle) -> None:
        """A missing number."""
        _agree_or_refuse(case, oracle, reference, _hard(case, oracle, "missing"), "accepts_nan")

    def test_infinite(self, case: Case, oracle: Any, reference: BlackBoxOracle) -> None:
        """Infinite numbers, and one that is infinite in float32."""
        table = _with_numbers(case, oracle, [np.inf, -np.inf, 1e39])
        _agree_or_refuse(case, oracle, reference, table, "accepts_inf")

    def test_unseen_category(self, case: Case, oracle: Any, reference: BlackBoxOracle) -> None:
        """A category that the model was not fitted on."""
        _agree_or_refuse(case, oracle, reference, _hard(case, oracle, "unseen level"), "accepts_unseen")

    def test_missing_category(self, case: Case, oracle: Any, reference: BlackBoxOracle) -> None:
        """None in a column of text."""
        table = _hard(case, oracle, "missing level")
        _agree_or_refuse(case, oracle, reference, table, "accepts_missing_category")

    # Form of the table

    def test_batch_invariance(self, case: Case, oracle: Any) -> None:
        """A row gets the same answer alone, in a batch, and in any order."""
        if not case.table:
            pytest.skip("a black box answers as its model does")
        together = oracle.predict_proba(case.X)
        np.testing.assert_array_equal(oracle.predict_proba(case.X[::-1])[::-1], together)
        alone = [oracle.predict_proba(case.X[row : row + 1]) for row in range(min(N_SINGLE_ROWS, len(case.X)))]
        np.testing.assert_array_equal(np.concatenate(alone), together[:N_SINGLE_ROWS])

    def test_empty_batch(self, case: Case, oracle: Any) -> None:
        """No rows, no probabilities, no error."""
        assert oracle.predict_proba(case.X[:0]).shape == (0, len(oracle.classes))

    def test_memory_layout(self, case: Case, oracle: Any) -> None:
        """Read-only and Fortran-ordered tables."""
        expected = oracle.predict_proba(case.X)
        if isinstance(case.X, np.ndarray):
            other = np.asfortranarray(case.X).copy(order="F")
            other.flags.writeable = False
        else:
            other = case.X.copy()
            for values in (other[name].to_numpy() for name in other if other[name].dtype.kind in "iuf"):
                values.flags.writeable = False
        np.testing.assert_array_equal(oracle.predict_proba(other), expected)

    def test_single_precision(self, case: Case, oracle: Any, reference: BlackBoxOracle) -> None:
        """float32 numbers, which some libraries read by other rules."""
        if isinstance(case.X, np.ndarray):
            if case.X.dtype.kind != "f":
                pytest.skip("the table has no float column")
            other = case.X.astype(np.float32)
        else:
            floats = [name for name in case.X if case.X[name].dtype == np.float64]
            if not floats:
                pytest.skip("the table has no float column")
            other = case.X.astype(dict.fromkeys(floats, np.float32))
        _agree(case, oracle.predict_proba(other), reference.predict_proba(other))

    def test_input_untouched(self, case: Case, oracle: Any) -> None:
        """The caller's table stays as it was."""
        before = pickle.dumps(case.X)
        oracle.predict_proba(case.X)
        assert pickle.dumps(case.X) == before

    # Serving

    def test_pickle(self, case: Case, oracle: Any) -> None:
        """A pickled oracle answers as before."""
        expected = oracle.predict_proba(case.X)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(oracle)).predict_proba(case.X), expected)

    def test_two_threads(self, case: Case, oracle: Any) -> None:
        """Two threads on one oracle answer as one."""
        expected = oracle.predict_proba(case.X)
        with ThreadPoolExecutor(2) as threads:
            for answer in threads.map(oracle.predict_proba, [case.X] * 4):
                np.testing.assert_array_equal(answer, expected)


def _agree(case: Case, copy: F8, live: F8) -> None:
    """Compare an oracle's answers with the model's."""
    if case.bit_equal:
        np.testing.assert_array_equal(copy, live)
    else:
        np.testing.assert_allclose(copy, live, rtol=0.0, atol=case.tolerance)


def _agree_or_refuse(case: Case, oracle: Any, reference: BlackBoxOracle, table: Any, flag: str) -> None:
    """Compare on rows that may be refused; what is refused by neither must agree and be declared."""
    if getattr(case, flag):
        _agree(case, oracle.predict_proba(table), reference.predict_proba(table))
        return
    try:
        live, copy = reference.predict_proba(table), oracle.predict_proba(table)
    except MacemError:
        return
    _agree(case, copy, live)
    pytest.fail(f"model and oracle answer such rows, and agree: declare it with {flag}=True")


def _skip_black_box(oracle: Any) -> None:
    if not isinstance(oracle, TreeOracle):
        pytest.skip("a black box has no splits that could be read wrongly")


def _hard(case: Case, oracle: Any, kind: str) -> Any:
    _skip_black_box(oracle)
    tables = dict(hard_tables(oracle, case.X, N_ROWS))
    if kind not in tables:
        pytest.skip(f"the model has no column for {kind} rows")
    return tables[kind]


def _with_numbers(
    case: Case, oracle: Any, numbers: list[float], beside: Callable[[F8], list[float]] = lambda edges: []
) -> Any:
    """Put each number, and those beside its boundaries, into each float column with splits."""
    _skip_black_box(oracle)
    places = zip(columns(oracle, case.X), boundaries(oracle), strict=True)
    cells = [
        (column, number)
        for column, edges in places
        if edges.size and dtype_of(case.X, column).kind == "f"
        for number in [*numbers, *beside(edges)]
    ]
    if not cells:
        pytest.skip("the model has no float column")
    return place(case.X, np.arange(len(case.X)), cells)


def _answered(reference: BlackBoxOracle, table: Any) -> Any:
    """Rows that the model answers: behind a scaler, say, some numbers are too large for it."""
    return table[np.array(_are_answered(reference, table), dtype=bool)]


def _are_answered(reference: BlackBoxOracle, table: Any) -> list[bool]:
    """Of each row whether the model answers it, found by halves."""
    try:
        reference.predict_proba(table)
    except MacemError:
        half = len(table) // 2
        return _are_answered(reference, table[:half]) + _are_answered(reference, table[half:]) if half else [False]
    return [True] * len(table)


def _halfway(edges: F8) -> list[float]:
    """Numbers halfway to the next float32, which float32 rounds to one neighbour or the other, ties to even."""
    single = edges[np.abs(edges) < 1e38][:N_ROWS].astype(np.float32)
    return list((single.astype(np.float64) + np.nextafter(single, np.float32(np.inf))) / 2)
