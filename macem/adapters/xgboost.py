"""XGBoost: boosters read from their JSON, answering to the bit as `predict_proba` does."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from macem.errors import DataError, MacemWarning, ModelError, UnsupportedModelError
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle
from macem.trees import Link, Member, Tree

__all__ = ["TableReader", "XGBoostAdapter", "load"]

LINKS = {
    "binary:logistic": Link.SIGMOID_SINGLE,
    "reg:logistic": Link.SIGMOID_SINGLE,
    "binary:hinge": Link.STEP,
    "multi:softprob": Link.SOFTMAX_SINGLE,
    "multi:softmax": Link.SOFTMAX,  # predict_proba asks for margins here, and leaves the rest to SciPy
}
OLDEST, NEWEST = 2, 3  # major versions whose model format is known
CODE_LIMIT = 1 << 24  # XGBoost takes no number from here on for a category


class XGBoostAdapter:
    """Reads `XGBClassifier`, `XGBRFClassifier` and `Booster`."""

    def oracle(self, model: Any) -> Oracle:
        """Read a trained classifier.

        Parameters
        ----------
        model : xgboost.XGBClassifier, xgboost.XGBRFClassifier or xgboost.Booster
            A classifier is read up to its best iteration and with its ``missing``, as ``predict_proba`` answers; a
            Booster whole, as ``inplace_predict`` answers.

        Returns
        -------
        Oracle
            A table where the model is made of trees, otherwise a black box whose `note` says why.

        Raises
        ------
        ModelError
            If the model is not trained.
        UnsupportedModelError
            If it gives no class probabilities: regressors, rankers, multi-label models, custom objectives and
            ``binary:logitraw``.
        """
        import xgboost

        if isinstance(model, xgboost.Booster):
            return _read(model, model)
        if not isinstance(model, xgboost.XGBClassifier):
            _refuse(model, "is no classifier", "Give an XGBClassifier, or the Booster of one.")
        if not model.__sklearn_is_fitted__():
            raise ModelError(f"The model ({type(model).__name__}) is not fitted. Call its fit method first.")
        if callable(model.objective):
            _refuse(
                model,
                f"has a custom objective ({getattr(model.objective, '__name__', model.objective)}), which does not say "
                "how its raw scores become probabilities",
                "Give a function from a table to probabilities instead.",
            )
        return _read(model, model.get_booster())


def load(path: str | Path) -> Any:
    """Load a model file without unpickling.

    Parameters
    ----------
    path : str or Path
        A ``.json`` or ``.ubj`` file written by ``save_model``.

    Returns
    -------
    xgboost.XGBClassifier or xgboost.Booster
        The classifier where one was saved, otherwise the Booster.

    Raises
    ------
    ModelError
        If there is no such file, or XGBoost cannot read it.
    """
    import xgboost

    if not Path(path).is_file():
        raise ModelError(f"There is no model file {str(path)!r}. Check its path.")
    try:
        booster = xgboost.Booster(model_file=path)
        if json.loads(booster.attr("scikit_learn") or "{}").get("_estimator_type") != "classifier":
            return booster
        classifier = xgboost.XGBClassifier()
        classifier.load_model(path)
    except (xgboost.core.XGBoostError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")  # a stack trace follows
        raise ModelError(
            f"XGBoost {xgboost.__version__} cannot read the model file {str(path)!r}: {reason}. "
            "Save the model with its save_model method as .json or .ubj."
        ) from error
    return classifier


# Reading a model -----------------------------------------------------------------------------------------------------


def _read(model: Any, booster: Any) -> Oracle:
    """Read a booster; `model` is the classifier around it, or the booster itself."""
    dump = _dump(model, booster)
    learner = dump["learner"]
    objective = learner["objective"]["name"]
    alone = model is booster
    _refuse_other_tasks(model, learner, alone)

    n_classes = int(learner["learner_model_param"]["num_class"]) or 2
    classes = np.arange(n_classes)
    trees, weights = _chosen_trees(dump, (0, 0) if alone else model._get_iteration_range(None))
    levels = _levels(learner["gradient_booster"])
    read = TableReader(
        names=None if booster.feature_names is None else tuple(booster.feature_names),
        n_features=booster.num_features(),
        missing=float(np.float32(np.nan if alone else model.missing)),
        levels=levels,
        n_codes=_n_codes(trees, levels),
        characters=tuple(dump["version"]) < (3, 4),
        nameless_frames=not alone,
    )
    live: Any = model
    if alone:
        live = _BoosterProbabilities(booster, objective, read)
    elif levels:
        live = _KnownCategories(model, read)

    reason = _why_black_box(model, dump, trees)
    if reason is not None:
        return BlackBoxOracle(live, classes=classes, note=reason)

    link = LINKS[objective]
    start = _start(dump)
    return TreeOracle(
        members=[
            Member(
                trees=_in_common_form(trees, weights, start, read),
                n_outputs=start.size,
                link=link,
                start=start.astype(np.float64),
                classes=tuple(range(n_classes)),
                single=True,
            )
        ],
        classes=classes,
        live=BlackBoxOracle(live, classes=classes),
        read=read,
        n_features=read.n_features,
        single=True,
        missing_value=read.missing,
        feature_names=read.names,
    )
