"""What each output column of a fitted transformer depends on: one column of the user's table, or more.

Only transformers whose rule stands at the foot of this file are followed; any other raises `NotColumnwise`. No
arithmetic is repeated here: the rules say *which* column feeds an output and *how* (as a number or as a category), and
the fitted transformers themselves are asked for the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["Column", "NotColumnwise", "Sources", "trace"]


class NotColumnwise(Exception):
    """A transformer whose outputs do not follow from one column each; says which and why."""


@dataclass(frozen=True)
class Column:
    """One column on its way through the transformers.

    Attributes
    ----------
    source : int
        The user's column that it is computed from.
    raw : bool
        It still holds the user's values, except where an imputer put another one.
    coded : bool
        It is the same for all values outside the vocabulary of the source.
    """

    source: int
    raw: bool = True
    coded: bool = False


@dataclass
class Sources:
    """What the transformers know of the user's columns.

    Attributes
    ----------
    encoded : set of int
        Columns that an encoder reads as categories.
    vocabulary : dict of int to list
        Values that an encoder, or an imputer looking for a marker, tells from all others.
    objects : set of int
        Columns whose categories an encoder holds as objects; it may not take numbers of another type for them.
    breaks : dict of int to list of float
        Numbers beside which a column need not be monotone.
    rough : set of int
        Columns behind a function that is monotone but for its rounding.
    """

    encoded: set[int] = field(default_factory=set)
    vocabulary: dict[int, list[Any]] = field(default_factory=dict)
    objects: set[int] = field(default_factory=set)
    breaks: dict[int, list[float]] = field(default_factory=dict)
    rough: set[int] = field(default_factory=set)

    def tell_apart(self, source: int, values: Sequence[Any] | NDArray[Any]) -> None:
        """Add values to the vocabulary of a column, leaving out missing ones."""
        if isinstance(values, np.ndarray):
            if values.dtype.kind == "O":
                self.objects.add(source)
            values = values.tolist()
        known = self.vocabulary.setdefault(source, [])
        seen = set(known)
        for value in values:
            if not pd.isna(value) and value not in seen:
                seen.add(value)
                known.append(value)


Columns = list[Column]


def trace(transformer: Any, columns: Columns, sources: Sources) -> Columns:
    """Follow columns through a fitted transformer.

    Parameters
    ----------
    transformer : estimator, or "passthrough" or "drop"
    columns : list of Column
        What enters it.
    sources : Sources
        Learns the vocabularies and breaks.

    Returns
    -------
    list of Column
        What leaves it, in order.

    Raises
    ------
    NotColumnwise
        If an output column depends on several columns, or the transformer is not known.
    """
    if transformer is None or isinstance(transformer, str):
        return [] if transformer == "drop" else columns
    rule = _RULES.get(f"{type(transformer).__module__.partition('.')[0]}.{type(transformer).__name__}")
    if rule is None and _only_selects(transformer):
        rule = _selection
    if rule is None:
        raise NotColumnwise(f"{type(transformer).__name__} is not known to treat each column for itself")
    return rule(transformer, columns, sources)


# Composition ---------------------------------------------------------------------------------------------------------


def _pipeline(pipeline: Any, columns: Columns, sources: Sources) -> Columns:
    for _, step in pipeline.steps:
        if not hasattr(step, "fit_resample"):  # a sampler only works while the pipeline is fitted
            columns = trace(step, columns, sources)
    return columns


def _column_transformer(transformer: Any, columns: Columns, sources: Sources) -> Columns:
    result: Columns = []
    for name, part, _ in transformer.transformers_:
        chosen = [columns[position] for position in transformer._transformer_to_input_indices[name]]
        result += _weighted(transformer, name, trace(part, chosen, sources) if chosen else [])
    return result


def _feature_union(union: Any, columns: Columns, sources: Sources) -> Columns:
    result: Columns = []
    for name, part in union.transformer_list:
        result += _weighted(union, name, trace(part, columns, sources))
    return result


def _weighted(composite: Any, name: str, columns: Columns) -> Columns:
    weighted = name in (composite.transformer_weights or {})
    return [replace(column, raw=False) for column in columns] if weighted else columns


def _frozen(frozen: Any, columns: Columns, sources: Sources) -> Columns:
    return trace(frozen.estimator, columns, sources)


# Columns of numbers --------------------------------------------------------------------------------------------------


def _scaled(_: Any, columns: Columns, __: Sources) -> Columns:
    """One number becomes one number, in the same order or in the reverse one."""
    return [replace(column, raw=False) for column in columns]


def _roughly_scaled(_: Any, columns: Columns, sources: Sources) -> Columns:
    """Scale by a function whose rounding may not be monotone in the last bit."""
    sources.rough.update(column.source for column in columns)
    return _scaled(_, columns, sources)


def _power(transformer: Any, columns: Columns, sources: Sources) -> Columns:
    if transformer.method != "yeo-johnson":
        raise NotColumnwise("PowerTransformer(method='box-cox') refuses numbers that are not positive")
    return _roughly_scaled(transformer, columns, sources)


def _function(transformer: Any, columns: Columns, sources: Sources) -> Columns:
    function = transformer.func
    if function is None:
        return columns
    if not isinstance(function, np.ufunc) or function.__name__ not in _MONOTONE or transformer.kw_args:
        name = getattr(function, "__name__", type(function).__name__)
        raise NotColumnwise(f"FunctionTransformer({name}) is not known to treat each column for itself")
    _need_raw(transformer, [column for column in columns if not column.coded])
    for column in columns:
        sources.breaks.setdefault(column.source, []).extend(_MONOTONE[function.__name__])
    return _roughly_scaled(transformer, columns, sources)


_MONOTONE: dict[str, list[float]] = {  # and the ends of their domains
    "arcsinh": [],
    "arctan": [],
    "cbrt": [],
    "exp": [],
    "expm1": [],
    "log": [0.0],
    "log10": [0.0],
    "log1p": [-1.0],
    "log2": [0.0],
    "negative": [],
    "sqrt": [0.0],
    "tanh": [],
}


def _bins(transformer: Any, columns: Columns, sources: Sources) -> Columns:
    """Bin numbers: an ordinal bin is a step function, an indicator of a bin turns at the bin's edges."""
    if transformer.encode == "ordinal":
        return _scaled(transformer, columns, sources)
    _need_raw(transformer, columns)
    result: Columns = []
    for column, edges in zip(columns, transformer.bin_edges_, strict=True):
        sources.breaks.setdefault(column.source, []).extend(np.asarray(edges)[1:-1].tolist())
        result += [replace(column, raw=False)] * (len(edges) - 1)
    return result


# Missing values ------------------------------------------------------------------------------------------------------


def _imputed(imputer: Any, columns: Columns, sources: Sources) -> Columns:
    _find_marker(imputer, columns, sources)
    statistics = imputer.statistics_
    kept = [
        column
        for column, statistic in zip(columns, statistics, strict=True)
        if imputer.keep_empty_features or not pd.isna(statistic)
    ]
    return kept + (_indicated(imputer.indicator_, columns, sources) if imputer.add_indicator else [])


def _indicated(indicator: Any, columns: Columns, sources: Sources) -> Columns:
    _find_marker(indicator, columns, sources)
    return [replace(columns[position], raw=False, coded=True) for position in indicator.features_]


def _find_marker(transformer: Any, columns: Columns, sources: Sources) -> None:
    """Tell apart the value that stands for a missing one, where that is not NaN."""
    marker = transformer.missing_values
    if pd.isna(marker):
        return
    for column in columns:
        if column.coded:
            continue
        _need_raw(transformer, [column])
        sources.tell_apart(column.source, [marker])
        if not isinstance(marker, str):
            sources.breaks.setdefault(column.source, []).append(float(marker))


# Categories ----------------------------------------------------------------------------------------------------------


def _one_hot(encoder: Any, columns: Columns, sources: Sources) -> Columns:
    coded = _encoded(encoder, columns, sources, encoder.categories_)
    return [column for column, width in zip(coded, encoder._n_features_outs, strict=True) for _ in range(width)]


def _ordinal(encoder: Any, columns: Columns, sources: Sources) -> Columns:
    return _encoded(encoder, columns, sources, encoder.categories_)


def _target(encoder: Any, columns: Columns, sources: Sources) -> Columns:
    width = len(encoder.classes_) if encoder.target_type_ == "multiclass" else 1
    coded = _encoded(encoder, columns, sources, encoder.categories_)
    return [column for column in coded for _ in range(width)]


def _category_encoders(encoder: Any, columns: Columns, sources: Sources) -> Columns:
    """Follow an encoder of category_encoders that puts one number in the place of one category."""
    if getattr(encoder, "hierarchy", None) is not None or len(encoder.feature_names_in_) != len(columns):
        raise NotColumnwise(f"{type(encoder).__name__} of category_encoders combines columns")
    if type(encoder).__name__ == "CountEncoder":
        categories = {name: list(mapping.index) for name, mapping in encoder.mapping.items()}
    else:
        mappings = getattr(encoder, "ordinal_encoder", encoder).mapping
        categories = {entry["col"]: list(dict(entry["mapping"])) for entry in mappings}
    names = list(encoder.feature_names_in_)
    result: dict[Any, Column] = {}
    for name, column in zip(names, columns, strict=True):
        coded = _encoded(encoder, [column], sources, [categories[name]]) if name in categories else [column]
        result[name] = coded[0]
    return [result[name] for name in encoder.feature_names_out_]


def _encoded(encoder: Any, columns: Columns, sources: Sources, categories: Sequence[Any]) -> Columns:
    for column, values in zip(columns, categories, strict=True):
        if column.coded:
            continue
        _need_raw(encoder, [column])
        sources.encoded.add(column.source)
        sources.tell_apart(column.source, values)
    return [replace(column, raw=False, coded=True) for column in columns]


def _need_raw(transformer: Any, columns: Columns) -> None:
    for column in columns:
        if not column.raw:
            raise NotColumnwise(
                f"{type(transformer).__name__} looks for certain values behind another transformer of numbers"
            )


# Selection -----------------------------------------------------------------------------------------------------------


def _selection(selector: Any, columns: Columns, _: Sources) -> Columns:
    return [columns[position] for position in np.flatnonzero(selector.get_support())]


def _only_selects(transformer: Any) -> bool:
    """Whether scikit-learn's own `transform` of feature selectors is what the transformer runs."""
    from sklearn.feature_selection import SelectorMixin

    return isinstance(transformer, SelectorMixin) and type(transformer).transform is SelectorMixin.transform


# The rule of each transformer, by package and class: a subclass may do anything, so it has no rule

_RULES: dict[str, Callable[[Any, Columns, Sources], Columns]] = {
    "category_encoders.CountEncoder": _category_encoders,
    "category_encoders.OrdinalEncoder": _category_encoders,
    "category_encoders.TargetEncoder": _category_encoders,
    "imblearn.Pipeline": _pipeline,
    "sklearn.Binarizer": _scaled,
    "sklearn.ColumnTransformer": _column_transformer,
    "sklearn.FeatureUnion": _feature_union,
    "sklearn.FrozenEstimator": _frozen,
    "sklearn.FunctionTransformer": _function,
    "sklearn.KBinsDiscretizer": _bins,
    "sklearn.MaxAbsScaler": _scaled,
    "sklearn.MinMaxScaler": _scaled,
    "sklearn.MissingIndicator": _indicated,
    "sklearn.OneHotEncoder": _one_hot,
    "sklearn.OrdinalEncoder": _ordinal,
    "sklearn.Pipeline": _pipeline,
    "sklearn.PowerTransformer": _power,
    "sklearn.QuantileTransformer": _roughly_scaled,
    "sklearn.RobustScaler": _scaled,
    "sklearn.SimpleImputer": _imputed,
    "sklearn.StandardScaler": _scaled,
    "sklearn.TargetEncoder": _target,
}
