"""MACEM: contrastive explanations of any classifier that can be asked for class probabilities.

For each row, `Explainer` finds a *pertinent positive* (what already suffices for the class) and a *pertinent negative*
(what had to stay absent for the class). Names load when they are first used, so that ``import macem`` stays cheap and
loads no model library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macem import datasets, metrics, plots, report, testing
    from macem.adapters import ensemble, oracle_for
    from macem.errors import MacemError, ModelChangedError
    from macem.explainer import Explainer, warm_up
    from macem.options import SearchOptions
    from macem.results import Status

__version__ = "0.1.0"

__all__ = [
    "Explainer",
    "MacemError",
    "ModelChangedError",
    "SearchOptions",
    "Status",
    "__version__",
    "datasets",
    "ensemble",
    "metrics",
    "oracle_for",
    "plots",
    "report",
    "testing",
    "warm_up",
]

_MODULES = frozenset({"datasets", "metrics", "plots", "report", "testing"})
_HOMES = {
    "Explainer": "macem.explainer",
    "MacemError": "macem.errors",
    "ModelChangedError": "macem.errors",
    "SearchOptions": "macem.options",
    "Status": "macem.results",
    "ensemble": "macem.adapters",
    "oracle_for": "macem.adapters",
    "warm_up": "macem.explainer",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"macem.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'macem' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
