"""Every error that macem raises: one root, and children that are also the builtin a caller would expect.

A message names the thing that is wrong, the value found, and ends in what to do.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AdapterError",
    "DataError",
    "LabelsWarning",
    "MacemError",
    "MacemWarning",
    "ModelChangedError",
    "ModelError",
    "NumbersAsCategoriesWarning",
    "OneHotColumnsWarning",
    "OptionError",
    "OracleError",
    "TableMismatchWarning",
    "UnsupportedModelError",
    "sentence",
]


def sentence(error: Exception) -> str:
    """The text of an error of another library, as a sentence among others."""
    text = str(error).strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


class MacemError(Exception):
    """Root of all errors raised by macem."""


class DataError(MacemError, ValueError):
    """A table (background or rows) that cannot be used as it is."""


class OptionError(MacemError, ValueError):
    """An option, or a combination of options, that is not possible."""


class ModelError(MacemError, ValueError):
    """A model that cannot be asked for class probabilities."""


class UnsupportedModelError(ModelError, TypeError):
    """A model of a kind or mode that is refused, with the reason."""


class ModelChangedError(ModelError, RuntimeError):
    """A model that no longer answers as it did when the explainer was made."""


class OracleError(MacemError, RuntimeError):
    """A model that failed, or answered nonsense, while it was being asked.

    Attributes
    ----------
    asked : (oracle, table) or None
        The black box and the batch that it failed on, where they are known.
    """

    asked: tuple[Any, Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args  # a function that was asked need not pickle


class AdapterError(MacemError, ImportError):
    """An adapter plugin that cannot be loaded, that describes no possible trees, or two that claim the same model."""


class MacemWarning(UserWarning):
    """Root of all warnings issued by macem."""


class LabelsWarning(MacemWarning):
    """A function or a service answered the whole background with 0 and 1, as class labels are."""


class NumbersAsCategoriesWarning(MacemWarning):
    """Columns of dtype object hold numbers alone, and are read as categories, as their dtype says."""


class OneHotColumnsWarning(MacemWarning):
    """Columns of the background are one category in one-hot form, and an example may set none of them or two."""


class TableMismatchWarning(MacemWarning):
    """The copy of a model disagreed with the model, and is not used."""
