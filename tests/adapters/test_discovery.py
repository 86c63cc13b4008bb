"""Adapters are found by the ancestors of a model's class, and nothing is imported to find out."""

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from macem.adapters import BUILT_IN, BlackBoxAdapter, adapter_for, claimant, installed_adapters, oracle_for
from macem.errors import AdapterError, MacemError, UnsupportedModelError
from macem.oracle import BlackBoxOracle, TreeOracle

X = np.random.default_rng(0).normal(size=(60, 3))
y = np.where(X[:, 0] > 0.0, "good", "bad")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution that registers one adapter, for the length of a test."""
    modules = set(sys.modules)

    def install(distribution, package, value, source=None):
        folder = tmp_path / distribution  # one each, since importlib remembers what a folder held
        info = folder / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[macem.adapters]\n{package} = {value}\n")
        if source is not None:
            (folder / f"{value.partition(':')[0]}.py").write_text(source)
        monkeypatch.syspath_prepend(str(folder))
        installed_adapters.cache_clear()

    yield install
    for module in set(sys.modules) - modules:
        del sys.modules[module]
    installed_adapters.cache_clear()


ADAPTER = """
from macem.oracle import BlackBoxOracle
class Adapter:
    def oracle(self, model):
        return BlackBoxOracle(model, note="by the third party")
"""


def model_of(*modules, **methods):
    """A model whose class stands in the first module, its ancestors in the others."""
    cls = object
    for module in reversed(modules):
        cls = type("Model", (cls,), {"__module__": module})
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls()


def probabilities(self, X):
    return np.full((len(X), 2), 0.5)


def test_metadata_names_the_built_in_adapters():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["macem.adapters"] == BUILT_IN


def test_built_in_adapters_are_found_without_metadata(monkeypatch):
    monkeypatch.setattr("macem.adapters.entry_points", lambda group: ())
    installed_adapters.cache_clear()
    try:
        assert {adapter.package: adapter.value for adapter in installed_adapters()} == BUILT_IN
        assert isinstance(oracle_for(RandomForestClassifier(2).fit(X, y)), TreeOracle)
    finally:
        monkeypatch.undo()
        installed_adapters.cache_clear()


def test_entry_points_are_read_once(monkeypatch):
    installed_adapters.cache_clear()
    claimant(model_of("somewhere"))
    monkeypatch.setattr("macem.adapters.entry_points", lambda group: pytest.fail("read again"))
    claimant(model_of("somewhere"))


def test_nearest_ancestor_wins(install):
    install("macem-offspring", "offspring", "macem_offspring:Adapter", ADAPTER)
    found = claimant(model_of("offspring.models", "sklearn.ensemble"))
    assert (found.package, found.distribution, found.version) == ("offspring", "macem-offspring", "1.2")
    assert claimant(model_of("elsewhere", "sklearn.ensemble")).package == "sklearn"


def test_subclass_of_a_forest_is_read_as_a_forest():
    class Own(RandomForestClassifier):
        pass

    model = Own(5, random_state=0).fit(X, y)
    assert claimant(model).package == "sklearn"
    np.testing.assert_array_equal(oracle_for(model).predict_proba(X), model.predict_proba(X))


def test_third_party_outranks_built_in(install):
    model = RandomForestClassifier(2).fit(X, y)
    install("macem-other", "sklearn", "macem_other:Adapter", ADAPTER)
    assert oracle_for(model).note == "by the third party"


def test_two_third_parties_are_named(install):
    install("macem-one", "twice", "macem_one:Adapter", ADAPTER)
    install("macem-two", "twice", "macem_two:Adapter", ADAPTER)
    model = model_of("twice", predict_proba=probabilities)
    both = r"macem_one:Adapter of macem-one and macem_two:Adapter of macem-two"
    with pytest.raises(AdapterError, match=rf"2 adapters claim models of 'twice': {both}.*adapter="):
        oracle_for(model)
    from macem_two import Adapter

    assert oracle_for(model, adapter=Adapter()).note == "by the third party"
    assert oracle_for(model, adapter=Adapter).note == "by the third party"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("Other = None", "AttributeError: .*Adapter"),
        ("class Adapter:\n    pass", "AttributeError: .*oracle"),
        ("class Adapter:\n    def __init__(self, needed):\n        pass", "TypeError: .*needed"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_broken_plugin_fails_only_for_its_own_models(install, source, reason):
    install("macem-broken", "broken", "macem_broken:Adapter", source)
    assert isinstance(oracle_for(RandomForestClassifier(2).fit(X, y)), TreeOracle)
    assert isinstance(adapter_for(model_of("unclaimed", predict_proba=probabilities)), BlackBoxAdapter)
    with pytest.raises(AdapterError, match=rf"macem-broken 1\.2.*{reason}.*adapter="):
        adapter_for(model_of("broken", predict_proba=probabilities))


def test_adapter_that_fails_on_a_model_names_the_way_out(install):
    source = "class Adapter:\n    def oracle(self, model):\n        return {}['trees']"
    install("macem-clumsy", "clumsy", "macem_clumsy:Adapter", source)
    model = model_of("clumsy", predict_proba=probabilities)
    with pytest.raises(AdapterError, match=r"macem_clumsy:Adapter failed to read Model: KeyError.*BlackBoxAdapter"):
        oracle_for(model)
    assert isinstance(oracle_for(model, adapter=BlackBoxAdapter()), BlackBoxOracle)


def test_adapter_that_returns_no_oracle_is_named(install):
    source = "class Adapter:\n    def oracle(self, model):\n        pass"
    install("macem-hollow", "hollow", "macem_hollow:Adapter", source)
    with pytest.raises(AdapterError, match=r"macem_hollow:Adapter returned NoneType, .* without predict_proba"):
        oracle_for(model_of("hollow", predict_proba=probabilities))


def test_adapter_that_is_none():
    with pytest.raises(AdapterError, match=r"adapter='sklearn' has no method oracle\(model\)"):
        oracle_for(model_of("unclaimed", predict_proba=probabilities), adapter="sklearn")


def test_unclaimed_models_are_black_boxes():
    model = model_of("unclaimed", predict_proba=probabilities)
    assert oracle_for(model).note == "a model of unclaimed, asked as a black box"
    assert oracle_for(lambda X: X[:, 0]).note == "a function, asked as a black box"


def test_message_says_what_was_looked_for():
    looked_for = r"unclaimed\.Model: .*'unclaimed' or 'parent' \(installed: .*sklearn"
    with pytest.raises(UnsupportedModelError, match=looked_for) as error:
        oracle_for(model_of("unclaimed", "parent"))
    assert isinstance(error.value, TypeError)
    assert "predict_proba" in str(error.value)


def test_an_oracle_is_its_own():
    oracle = BlackBoxOracle(lambda X: X[:, 0])
    assert oracle_for(oracle) is oracle


@pytest.mark.parametrize("model", [RandomForestClassifier, None, 3, "model.pkl"])
def test_no_model_at_all(model):
    with pytest.raises(MacemError, match=r"Give|Install"):
        oracle_for(model)


def test_no_model_library_is_imported_to_find_out():
    script = (
        "import sys; from macem.adapters import installed_adapters, claimant\n"
        "assert len(installed_adapters()) >= 4\n"
        "assert claimant(type('Model', (), {'__module__': 'xgboost.sklearn'})()).package == 'xgboost'\n"
        "libraries = {'sklearn', 'xgboost', 'lightgbm', 'catboost', 'httpx'}\n"
        "loaded = [module for module in sys.modules if module.partition('.')[0] in libraries]\n"
        "assert not loaded, loaded\n"
        "assert not [m for m in ('sklearn', 'xgboost', 'lightgbm', 'mean') if 'macem.adapters.' + m in sys.modules]\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
