"""The conformance kit notices every fault that it is there for."""

import threading
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from macem.adapters.check import boundaries, check_table, hard_tables
from macem.adapters.sklearn import SklearnAdapter
from macem.oracle import BlackBoxOracle, TreeOracle
from macem.testing import AdapterConformance, Case

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)).astype(np.float32).astype(np.float64)
X[::9, 1] = np.nan
MODEL = RandomForestClassifier(9, random_state=0).fit(X, np.where(X[:, 0] + X[:, 2] > 0.0, "good", "bad"))
CASE = Case(MODEL, X, accepts_nan=True)
ORACLE = SklearnAdapter().oracle(MODEL)
KIT = AdapterConformance()


def check(test, oracle, case=CASE):
    """Run one test of the kit."""
    names = test.__code__.co_varnames[1 : test.__code__.co_argcount]
    given = {"case": case, "oracle": oracle, "reference": BlackBoxOracle(case.model)}
    return test(**{name: given[name] for name in names})


def with_trees(change):
    members = [replace(member, trees=[change(tree) for tree in member.trees]) for member in ORACLE.members]
    return replace(ORACLE, members=members)


@dataclass(frozen=True)
class Reads:
    """A reader that does something first."""

    first: Any

    def __call__(self, X):
        self.first(X)
        return ORACLE.read(X)


def overwrite(X):
    if len(X):
        X[0, 0] = 0.0


def refuse_empty(X):
    assert len(X)


def refuse_read_only(X):
    assert X.flags.writeable


def one_step(thresholds):
    return np.nextafter(thresholds.astype(np.float32), np.float32(np.inf)).astype(np.float64)


class Rank(TreeOracle):
    """Answers by the place of a row in its batch."""

    def predict_proba(self, X):
        answer = super().predict_proba(X)
        return np.roll(answer, 1, axis=0)


class Shared(TreeOracle):
    """Keeps its answer where the next thread overwrites it."""

    shared = np.zeros((len(X), 2))
    meet = threading.Barrier(2)

    def predict_proba(self, X):
        if threading.current_thread() is threading.main_thread():
            return super().predict_proba(X)
        self.shared[:] = super().predict_proba(X)
        self.shared += self.meet.wait(timeout=30)
        return self.shared


def as_kind(kind):
    fields = {name: getattr(ORACLE, name) for name in ORACLE.__dataclass_fields__}
    return kind(**fields)


@pytest.mark.parametrize("name", [name for name in dir(KIT) if name.startswith("test_") and "discovery" not in name])
def test_a_right_oracle_passes(name):
    if name == "test_entry_point":
        kit = type("Kit", (AdapterConformance,), {"package": "sklearn", "adapter": SklearnAdapter})()
        check(getattr(kit, name).__func__.__get__(kit), ORACLE)
    elif name == "test_unseen_category":
        with pytest.raises(pytest.skip.Exception, match="no column for unseen level rows"):
            check(getattr(KIT, name), ORACLE)
    else:
        check(getattr(KIT, name), ORACLE)


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("test_boundaries", with_trees(lambda tree: replace(tree, threshold=one_step(tree.threshold)))),
        ("test_missing", with_trees(lambda tree: replace(tree, missing_left=~tree.missing_left))),
        ("test_extremes", replace(ORACLE, single=False, read=lambda X: np.asarray(X, np.float64))),
        ("test_data", with_trees(lambda tree: replace(tree, value=tree.value[:, ::-1]))),
        ("test_classes", replace(ORACLE, classes=ORACLE.classes[::-1])),
        ("test_oracle", BlackBoxOracle(MODEL, note="why not")),
        ("test_oracle", with_trees(lambda tree: replace(tree, value=tree.value[:, ::-1]))),
        ("test_batch_invariance", as_kind(Rank)),
        ("test_empty_batch", replace(ORACLE, read=Reads(refuse_empty))),
        ("test_memory_layout", replace(ORACLE, read=Reads(refuse_read_only))),
        ("test_two_threads", as_kind(Shared)),
    ],
)
def test_a_fault_is_noticed(name, oracle):
    with pytest.raises(AssertionError):
        check(getattr(KIT, name), oracle)


def test_an_input_that_is_written_into_is_noticed():
    with pytest.raises(AssertionError):
        check(KIT.test_input_untouched, replace(ORACLE, read=Reads(overwrite)), replace(CASE, X=X.copy()))


def test_an_oracle_that_does_not_pickle_is_noticed():
    with pytest.raises(Exception, match="pickle"):
        check(KIT.test_pickle, replace(ORACLE, read=lambda X: ORACLE.read(X)))


def test_single_precision_is_compared_with_the_model_on_the_same_numbers():
    rounded_late = replace(ORACLE, read=lambda X: ORACLE.read(X) + (X.dtype == np.float32) * 0.5)
    with pytest.raises(AssertionError):
        check(KIT.test_single_precision, rounded_late)


def test_what_is_answered_must_be_declared():
    with pytest.raises(pytest.fail.Exception, match="accepts_nan=True"):
        check(KIT.test_missing, ORACLE, replace(CASE, accepts_nan=False))


def test_what_is_declared_must_be_answered():
    with pytest.raises(Exception, match=r"infinity|too large|invalid value"):
        check(KIT.test_infinite, ORACLE, replace(CASE, accepts_inf=True))


def test_a_missing_entry_point_is_noticed():
    kit = type("Kit", (AdapterConformance,), {"package": "nobody", "adapter": SklearnAdapter})()
    with pytest.raises(AssertionError, match="sklearn"):
        check(kit.test_entry_point.__func__.__get__(kit), ORACLE)
    with pytest.raises(AssertionError):
        kit.test_discovery_imports_nothing()


def test_a_tolerance_is_a_bound():
    off = with_trees(lambda tree: replace(tree, value=tree.value + np.array([1e-7, -1e-7])))
    with pytest.raises(AssertionError):
        check(KIT.test_data, off)
    check(KIT.test_data, off, replace(CASE, bit_equal=False))
    with pytest.raises(AssertionError):
        check(KIT.test_data, off, replace(CASE, bit_equal=False, tolerance=1e-8))


# The same at construction


def test_a_right_table_is_right():
    assert check_table(ORACLE, X) is None
    assert check_table(BlackBoxOracle(MODEL), X) is None
    assert check_table(ORACLE, X[:0]) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: replace(tree, threshold=one_step(tree.threshold)), r"on boundary row \d+, the probability of"),
        (lambda tree: replace(tree, value=tree.value[:, ::-1]), r"by the model and [\d.e-]+ by its table"),
        (lambda tree: replace(tree, missing_left=~tree.missing_left), r"row \d+"),
    ],
)
def test_a_wrong_table_is_described(change, message):
    import re

    assert re.search(message, check_table(with_trees(change), X))


def test_an_answer_that_is_no_number_is_the_largest_gap():
    class Holed(TreeOracle):
        def predict_proba(self, table):
            is_hole = (table == X[1]).all(axis=1)
            return np.where(is_hole[:, None], np.nan, super().predict_proba(table))

    oracle = Holed(**{field.name: getattr(ORACLE, field.name) for field in fields(ORACLE)})
    assert check_table(oracle, X).startswith("on data row 1, ")


def test_a_wrong_copy_of_a_composite_is_described():
    from macem.adapters.composed import ComposedOracle

    other = type(MODEL)(**MODEL.get_params()).fit(X[::2], MODEL.predict(X)[::2])
    assert check_table(ComposedOracle(MODEL, MODEL, note=""), X) is None
    assert "by its copy" in check_table(ComposedOracle(MODEL, other, note=""), X)


def test_a_table_that_refuses_the_data_is_described():
    from macem.errors import DataError

    def refuse(X):
        raise DataError("No. Give other rows.")

    assert "on data rows the model answers, but its table does not: No." in check_table(replace(ORACLE, read=refuse), X)


def test_many_columns_share_rows_and_a_wrong_table_is_still_found():
    wide = np.random.default_rng(1).normal(size=(60, 700)).astype(np.float32).astype(np.float64)
    model = ExtraTreesClassifier(60, max_features=1, random_state=0).fit(wide, wide[:, :9].sum(axis=1) > 0.0)
    oracle = SklearnAdapter().oracle(model)
    edges = boundaries(oracle)
    table = dict(hard_tables(oracle, wide))["boundary"]
    assert len(table) <= 1000 < 3 * sum(edge.size > 0 for edge in edges)
    assert all(np.isin(table[:, at], edge).any() for at, edge in enumerate(edges) if edge.size)
    assert check_table(oracle, wide) is None
    member = oracle.members[0]
    wrong = replace(member, trees=[replace(tree, threshold=one_step(tree.threshold)) for tree in member.trees])
    assert "on boundary row" in check_table(replace(oracle, members=[wrong]), wide)
