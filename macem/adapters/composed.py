"""A composite that is asked through its members' tables, by its own arithmetic: where it is no table itself."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macem.adapters import oracle_for
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Cutoff, Oracle, TreeOracle

__all__ = ["ComposedOracle", "StandIn", "answers_in_single", "over_members"]


def over_members(model: Any, reason: str) -> Oracle:
    """Ask a composite through the tables of those of its members that are tables."""
    double = copy(model)
    for name in ("estimators_", "calibrated_classifiers_"):
        if hasattr(model, name):
            setattr(double, name, [_stand_in(member) for member in getattr(model, name)])
    if hasattr(model, "final_estimator_"):
        double.final_estimator_ = _stand_in(model.final_estimator_)
    members = [*getattr(double, "estimators_", ()), *getattr(double, "calibrated_classifiers_", ())]
    if not any(isinstance(one, StandIn) for member in members for one in (member, getattr(member, "estimator", None))):
        return BlackBoxOracle(model, note=reason)
    return ComposedOracle(model, double, note=reason)


def _stand_in(member: Any) -> Any:
    """Put an estimator's table in its place; leave it where it has none."""
    if type(member).__name__ == "_CalibratedClassifier":
        double = copy(member)
        double.estimator = _stand_in(member.estimator)
        return double
    oracle = oracle_for(member) if hasattr(member, "predict_proba") else None
    return StandIn(member, oracle) if isinstance(oracle, TreeOracle | ComposedOracle) else member


class StandIn:
    """A fitted classifier whose probabilities come from its oracle, and everything else from itself."""

    def __init__(self, model: Any, oracle: Oracle) -> None:
        self.model = model
        self.oracle = oracle

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities, shape (n, n_classes), in the precision of the model."""
        answer = self.oracle.predict_proba(X)
        return answer.astype(np.float32) if answers_in_single(self.oracle) else answer

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name in ("model", "oracle") or (name.startswith("__") and name != "__sklearn_tags__"):
            raise AttributeError(name)  # pickle and copy ask before there is a model
        return getattr(self.model, name)


class ComposedOracle(BlackBoxOracle):
    """A composite that is asked through its members' tables, by its own arithmetic.

    Parameters
    ----------
    model : estimator
        The user's own.
    double : estimator
        Its copy, with stand-ins for its members.
    note : str
        Why it is no table itself.
    cutoff : Cutoff, optional
        What decides in place of the largest probability.
    """

    def __init__(self, model: Any, double: Any, *, note: str, cutoff: Cutoff | None = None) -> None:
        super().__init__(model, note=note, cutoff=cutoff)
        self.through_tables = BlackBoxOracle(double)

    @property
    def live(self) -> BlackBoxOracle:
        """The user's own model."""
        return BlackBoxOracle(self.model, note=self.note, cutoff=self.cutoff)

    def predict_proba(self, X: Any) -> F8:
        """Class probabilities, shape (n, n_classes)."""
        return self.through_tables.predict_proba(X)


def answers_in_single(oracle: Oracle) -> bool:
    """Whether a model answers with float32 probabilities."""
    return isinstance(oracle, TreeOracle) and all(member.single for member in oracle.members)
