"""Adapters know model libraries: discovery by entry point, and one module per library.

An entry point in the group ``macem.adapters`` is named after the top-level package whose models it accepts, and is
matched by name through the ancestors of the model's class. So nothing is imported to find out, and the library of a
model that is at hand has been imported by whoever made the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import ArrayLike

from macem.adapters.blackbox import BlackBoxAdapter
from macem.adapters.check import check_table
from macem.errors import AdapterError, MacemError, UnsupportedModelError, sentence
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle

if TYPE_CHECKING:
    from macem.adapters.mean import WeightedMean

__all__ = [
    "Adapter",
    "BlackBoxAdapter",
    "InstalledAdapter",
    "adapter_for",
    "check_table",
    "claimant",
    "ensemble",
    "installed_adapters",
    "oracle_for",
]

GROUP = "macem.adapters"

# What the metadata of macem says too; a source tree that was never installed has none.
BUILT_IN = {
    "sklearn": "macem.adapters.sklearn:SklearnAdapter",
    "xgboost": "macem.adapters.xgboost:XGBoostAdapter",
    "lightgbm": "macem.adapters.lightgbm:LightGBMAdapter",
    "macem": "macem.adapters.mean:WeightedMeanAdapter",
}


class Adapter(Protocol):
    """What a plugin provides: a class without arguments whose instances turn a model into an oracle."""

    def oracle(self, model: Any) -> Oracle:
        """Read a fitted model.

        Raises
        ------
        UnsupportedModelError
            If the model is of a kind or mode that the adapter refuses.
        """
        ...


@dataclass(frozen=True)
class InstalledAdapter:
    """An adapter that was found, and not yet imported.

    Attributes
    ----------
    package : str
        Top-level package whose models it accepts.
    value : str
        Where it is, as ``module:class``.
    distribution : str
        Who brings it.
    version : str
    """

    package: str
    value: str
    distribution: str
    version: str

    @property
    def is_built_in(self) -> bool:
        """Whether macem brings it; everyone else outranks macem."""
        return self.distribution == "macem"

    def load(self) -> Adapter:
        """Import the adapter.

        Raises
        ------
        AdapterError
            If it cannot be imported or made.
        """
        try:
            adapter = EntryPoint(self.package, self.value, GROUP).load()()
            adapter.oracle  # noqa: B018  (a plugin without it is broken)
        except Exception as error:
            raise AdapterError(
                f"{self} for models of {self.package!r} cannot be loaded: {type(error).__name__}: {sentence(error)} "
                f"Upgrade or remove {self.distribution}, or pass adapter= to choose another."
            ) from error
        return adapter  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return f"The adapter {self.value} of {self.distribution} {self.version}".rstrip()


@cache
def installed_adapters() -> tuple[InstalledAdapter, ...]:
    """List the adapters of all installed distributions, importing none; read once per process."""
    found = [
        InstalledAdapter(
            package=point.name,
            value=point.value,
            distribution=point.dist.name if point.dist else "an unnamed distribution",
            version=point.dist.version if point.dist else "",
        )
        for point in entry_points(group=GROUP)
    ]
    registered = {adapter.package for adapter in found if adapter.is_built_in}
    found += [InstalledAdapter(*pair, "macem", "") for pair in BUILT_IN.items() if pair[0] not in registered]
    return tuple(sorted(found, key=lambda adapter: (adapter.package, adapter.is_built_in, adapter.value)))


def adapter_for(model: Any) -> Adapter:
    """Find the adapter that reads a model.

    Parameters
    ----------
    model : object
        A fitted classifier, or a function from a table to probabilities.

    Returns
    -------
    Adapter
        The one named after the package of the model's class, or of its nearest ancestor that has one; otherwise one
        that asks the model as a black box.

    Raises
    ------
    AdapterError
        If two third parties claim the model, or the adapter cannot be loaded.
    UnsupportedModelError
        If no adapter claims the model, and it can not be asked as a black box either.
    """
    found = claimant(model)
    if found:
        return found.load()
    if hasattr(model, "predict_proba") or callable(model):
        return BlackBoxAdapter()
    known = ", ".join(dict.fromkeys(adapter.package for adapter in installed_adapters()))
    raise UnsupportedModelError(
        f"No adapter for {type(model).__module__}.{type(model).__qualname__}: looked for one named after "
        f"{' or '.join(map(repr, _packages(model)))} (installed: {known}), for a predict_proba method, and for a "
        "function. Install an adapter, or give a function from a table to class probabilities."
    )


def oracle_for(model: Any, adapter: Adapter | None = None) -> Oracle:
    """Turn a model into what the search asks.

    Parameters
    ----------
    model : object
        A fitted classifier, a function from a table to probabilities, or an oracle, which is returned as it is.
    adapter : Adapter, optional
        Overrides discovery.

    Returns
    -------
    Oracle
        With `classes`, `predict_proba(X)`, and `ensemble`, a table or None for a black box.

    Raises
    ------
    AdapterError
        If the adapter is missing, in conflict with another, or broken.
    ModelError
        If the model is not fitted, or refused (UnsupportedModelError).
    """
    if isinstance(model, TreeOracle | BlackBoxOracle):
        return model
    if adapter is None:
        adapter = adapter_for(model)
    elif isinstance(adapter, type):
        adapter = adapter()
    if not hasattr(adapter, "oracle"):
        raise AdapterError(f"adapter={adapter!r} has no method oracle(model). Pass an instance of an adapter class.")
    who = f"The adapter {type(adapter).__module__}:{type(adapter).__qualname__}"
    way_out = "Pass adapter=macem.adapters.BlackBoxAdapter() to ask the model as a black box."
    try:
        oracle = adapter.oracle(model)
    except MacemError:
        raise
    except Exception as error:
        raise AdapterError(
            f"{who} failed to read {type(model).__qualname__}: {type(error).__name__}: {sentence(error)} {way_out}"
        ) from error
    missing = [name for name in ("predict_proba", "ensemble") if not hasattr(oracle, name)]
    if missing:
        raise AdapterError(f"{who} returned {type(oracle).__qualname__}, an oracle without {missing[0]}. {way_out}")
    return oracle


def claimant(model: Any) -> InstalledAdapter | None:
    """Find the installed adapter that claims a model, importing nothing; None if there is none.

    Raises
    ------
    AdapterError
        If two third parties claim it.
    """
    for package in _packages(model):
        named = [adapter for adapter in installed_adapters() if adapter.package == package]
        third_party = [adapter for adapter in named if not adapter.is_built_in]
        if len(third_party) > 1:
            both = " and ".join(f"{adapter.value} of {adapter.distribution}" for adapter in third_party)
            raise AdapterError(
                f"{len(third_party)} adapters claim models of {package!r}: {both}. "
                "Pass adapter= with an instance of the one that you want, or remove the other distribution."
            )
        if named:
            return (third_party or named)[0]
    return None


def ensemble(members: Sequence[tuple[Any, float]], *, classes: ArrayLike | None = None) -> WeightedMean:
    """Make one classifier of any: the weighted mean of their probabilities.

    Parameters
    ----------
    members : sequence of (model, weight)
        Fitted classifiers over the same columns, of any libraries, and functions; weights are finite and not negative.
    classes : array-like, shape (n_classes,), optional
        Labels, in the order of the mean's probability columns. By default those of the models, matched by value; a
        class that a model does not know has probability 0 there. Needed where no model names its classes, and where
        some call them 0, 1, … (as XGBoost does) and others by name.

    Returns
    -------
    WeightedMean
        With `predict_proba`, `predict` and `classes_`; it is read into one table where all its models can be.

    Raises
    ------
    OptionError
        If a weight is impossible, or the models' classes do not match.
    ModelError
        If a model is not fitted or not supported, or nobody names the classes.
    """
    from macem.adapters.mean import WeightedMean

    return WeightedMean(members, classes=classes)


def _packages(model: Any) -> list[str]:
    """Top-level packages of the model's class and its ancestors, nearest first."""
    packages = (cls.__module__.partition(".")[0] for cls in type(model).__mro__)
    return [package for package in dict.fromkeys(packages) if package != "builtins"] or ["builtins"]
