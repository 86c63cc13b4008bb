"""scikit-learn pipelines: transformers that treat each column for itself are folded into the table of the model behind.

A question of the model about a transformed column is a question about the user's column that it is computed from: a set
of categories where an encoder read that column, a threshold where numbers stay numbers. Nothing is inverted by
arithmetic: the fitted transformers are asked for the values, of every known category and of both sides of every
threshold, which bisection over the floats finds. So the library's own rounding decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from macem.adapters import oracle_for
from macem.adapters.composed import ComposedOracle, StandIn
from macem.adapters.folding import fold
from macem.adapters.probing import Probe
from macem.adapters.transformers import NotColumnwise
from macem.adapters.vocabularies import PipelineReader
from macem.errors import UnsupportedModelError
from macem.kernel import F8
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle

__all__ = ["PipelineOracle", "pipeline_oracle"]


def pipeline_oracle(pipeline: Any) -> Oracle:
    """Read a fitted pipeline.

    Parameters
    ----------
    pipeline : sklearn.pipeline.Pipeline, or imblearn's
        Transformers and a classifier.

    Returns
    -------
    Oracle
        A table over the user's columns where the classifier has one and the transformers fold. Before a composite that
        is asked through its members' tables, they are asked too; any other pipeline is a black box. `note` says why.

    Raises
    ------
    UnsupportedModelError
        If its first step takes a list of texts, which is no table.
    """
    steps = [step for _, step in pipeline.steps]
    transformers = [step for step in steps[:-1] if _transforms(step)]
    _refuse_texts(pipeline, transformers)
    model = oracle_for(steps[-1])
    live = _live(pipeline, transformers, model)
    if isinstance(model, ComposedOracle):
        double = copy(pipeline)
        double.steps = [*pipeline.steps[:-1], ("model", StandIn(steps[-1], model))]
        return ComposedOracle(pipeline, double, note=model.note, cutoff=model.cutoff)
    if not isinstance(model, TreeOracle):
        live.note = getattr(model, "note", "") or "its last step is a black box"
        return live
    if not transformers:
        return replace(model, live=live)
    try:
        return _Folder(pipeline, transformers, model, live).oracle([])
    except NotColumnwise as reason:
        live.note = str(reason)
        return live


def _transforms(step: Any) -> bool:
    """Whether a step does anything when the pipeline is asked; samplers do not."""
    return step is not None and not isinstance(step, str) and not hasattr(step, "fit_resample")


def _refuse_texts(pipeline: Any, transformers: Sequence[Any]) -> None:
    from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

    if transformers and isinstance(transformers[0], (CountVectorizer, HashingVectorizer)):
        raise UnsupportedModelError(
            f"The model ({type(pipeline).__qualname__}) begins with {type(transformers[0]).__qualname__}, which takes "
            "a list of texts, not a table of rows and columns. Explain what stands behind it, pipeline[1:], over the "
            "table of words, pipeline[0].transform(texts).toarray(); or give a function from a table to probabilities."
        )


def _live(pipeline: Any, transformers: Sequence[Any], model: Oracle) -> BlackBoxOracle:
    """Ask the pipeline itself; where it has no probabilities, as before voters, what its last step is asked for."""
    if hasattr(pipeline, "predict_proba"):
        behind = getattr(model, "live", model)
        by_probability, cutoff = getattr(behind, "by_probability", False), getattr(behind, "cutoff", None)
        return BlackBoxOracle(pipeline, by_probability=by_probability, cutoff=cutoff)
    return BlackBoxOracle(_Behind(pipeline, tuple(transformers), getattr(model, "live", model)))


@dataclass(frozen=True)
class _Behind:
    """A pipeline whose probabilities are those of an oracle behind its transformers."""

    pipeline: Any
    transformers: tuple[Any, ...]
    oracle: Any

    @property
    def classes_(self) -> Any:
        return self.oracle.classes

    def predict(self, X: Any) -> Any:
        return self.pipeline.predict(X)

    def predict_proba(self, X: Any) -> F8:
        for transformer in self.transformers:
            X = transformer.transform(X)
        return np.asarray(self.oracle.predict_proba(X))

    def __getattr__(self, name: str) -> Any:
        if name not in ("feature_names_in_", "n_features_in_"):
            raise AttributeError(name)
        return getattr(self.pipeline, name)


# The folded oracle ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PipelineOracle(TreeOracle):
    """A pipeline folded into a table.

    Transformers calculate in the type of the column that they are given, so a table belongs to the types of the user's
    columns: float64 at first, which serves integers too, and others by `for_table`.
    """

    read: PipelineReader
    note: str = ""
    folder: _Folder = field(kw_only=True)

    def for_table(self, X: Any) -> PipelineOracle:
        """Fold for the column types of a table, for instance of the background."""
        return self.folder.oracle(self.read.types(X))

    def raw_scores(self, X: Any) -> F8:
        """Sums of the trees, of the table that belongs to the column types of `X`."""
        return TreeOracle.raw_scores(self.for_table(X), X)

    def link(self, raw: F8) -> F8:
        """From raw outputs to class probabilities, as the model behind the transformers does it."""
        return self.folder.model.link(raw)


class _Folder:
    """Folds a pipeline, once for each combination of column types."""

    def __init__(self, pipeline: Any, transformers: Sequence[Any], model: TreeOracle, live: BlackBoxOracle) -> None:
        self.model = model
        self.live = live
        self.kind = type(pipeline.steps[-1][1]).__name__
        self.probe = Probe(pipeline, transformers, model)
        self._types: dict[tuple[Any, ...], tuple[np.dtype[Any], ...]] = {}
        self._oracles: dict[tuple[np.dtype[Any], ...], PipelineOracle] = {}

    def oracle(self, types: Sequence[Any]) -> PipelineOracle:
        """Fold for columns of these types, float64 where none are given."""
        given = tuple(types)
        if given not in self._types:
            self._types[given] = self.probe.number_types(given or [np.dtype(float)] * self.probe.n_features)
        key = self._types[given]
        if key not in self._oracles:
            self._oracles[key] = self._fold(key)
        return self._oracles[key]

    def _fold(self, types: Sequence[np.dtype[Any]]) -> PipelineOracle:
        probe, model = self.probe, self.model
        if hasattr(model, "for_table"):  # another pipeline, whose transformers calculate in the type that these give
            model = model.for_table(probe.row(types))
        folded = fold(model.members, probe, types)
        reader = PipelineReader(
            n_features=probe.n_features,
            names=probe.names,
            needed=tuple(column in folded.asked | set(folded.vocabularies) for column in range(probe.n_features)),
            vocabularies=tuple(folded.vocabularies.get(column) for column in range(probe.n_features)),
            unseen=tuple(folded.unseen.tolist()),
            missing=tuple(folded.missing.tolist()),
        )
        return PipelineOracle(
            members=folded.members,
            classes=self.model.classes,
            live=self.live,
            read=reader,
            n_features=probe.n_features,
            single=False,
            total=self.model.total,
            feature_names=probe.names,
            note=f"The pipeline is folded into the table of its {self.kind}.",
            folder=self,
        )
