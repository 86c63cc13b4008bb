"""The user's model, which has the last word, and its copy as a table, which is asked meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from macem import kernel, refine
from macem.adapters.check import check_table, warn_of_labels
from macem.errors import OptionError, OracleError, TableMismatchWarning
from macem.features import Features, Form
from macem.kernel import F8, I8, Axes, Plan, Scratch, TreeEnsemble
from macem.oracle import Cutoff, Oracle, TreeOracle, decided, narrowed, read_by
from macem.search import Work
from macem.trees import axes_of, with_columns

__all__ = ["Asking", "Copy", "Model", "Verdict", "judged"]

SURE = 1e-9  # a lead of the top class below this may be decided either way by the model's own predict
BESIDE = 1e-6  # and a probability so close to a cutoff: where they are float32, NumPy rounds the cutoff, too
# scikit-learn's forests set the process's warning filters aside for each tree, which threads undo in any order: of ten
# calls of explain with n_jobs=4, nine left other filters behind
ONE_AT_A_TIME = threading.Lock()


def _unlock_in_child() -> None:
    """A thread that held the lock when its process forked is not in the child, which would wait for it for ever."""
    global ONE_AT_A_TIME
    ONE_AT_A_TIME = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_unlock_in_child)


@dataclass(frozen=True)
class Copy:
    """A model as a table over the background's columns, with what is read beside it."""

    oracle: Any  # reads the model's columns as the table compares them
    plan: Plan
    table: TreeEnsemble
    axes: Axes
    columns: I8 | None  # the background's column behind each of the model's; None: they are the same
    rooms: list[Scratch] = field(default_factory=list)  # that nobody is in

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"rooms": []}

    def read(self, asked: Any) -> F8:
        """What the table reads of the model's columns."""
        return read_by(self.oracle, asked)

    def by_background(self, read: F8) -> F8:
        """The same by the background's columns."""
        return _placed(read, self.columns, self.plan.feature.size - 1)

    @contextlib.contextmanager
    def room(self) -> Iterator[Scratch]:
        """Room on the table for the thread that asks; it is kept for the next one: that of a forest takes megabytes."""
        try:
            room = self.rooms.pop()
        except IndexError:
            room = refine.scratch_for(self.table, self.axes, self.plan)
        yield room
        self.rooms.append(room)


@dataclass(frozen=True)
class Model:
    """A model and its copy; both answer tables in the user's own form."""

    live: Any
    oracle: Any  # is asked about proposals: what the adapter read, though the kernel may not take it; or the live one
    copy: Copy | None
    obstacle: str  # why there is no copy
    cutoff: Cutoff | None  # what decides in place of the largest probability
    by_probability: bool  # its classes are known to follow its probabilities; its predict need not be asked
    follows: bool  # its predict follows its probabilities, as far as the background shows

    @classmethod
    def of(
        cls, oracle: Oracle, features: Features, plan: Plan, background: pd.DataFrame, cutoff: dict[Any, float] | None
    ) -> Model:
        """Read a model as a table, and compare the two on rows of the background; a cutoff is the user's own rule."""
        live: Any = getattr(oracle, "live", oracle)
        asked = features.model_table(background)
        try:
            probabilities = live.predict_proba(asked)
        except OracleError as error:
            raise OracleError(narrowed(error, getattr(asked, "iloc", asked)[:1])) from error
        warn_of_labels(live, probabilities)
        rule = getattr(live, "cutoff", None) if cutoff is None else _checked_cutoff(cutoff, live.classes)
        by_probability = cutoff is not None or bool(getattr(live, "by_probability", False))
        follows = by_probability or bool((_predict(live, asked) == decided(probabilities, rule)).all())
        told = (rule, by_probability, follows)
        for_table = getattr(oracle, "for_table", None)
        if for_table is not None:  # what a scaler computes depends on the dtypes of its table
            oracle = for_table(asked)
        gap = check_table(oracle, asked)
        if gap is not None:
            warnings.warn(
                f"The copy of the model is not used: {gap}. The model is asked as a black box instead.",
                TableMismatchWarning,
                stacklevel=3,
            )
            return cls(live, live, None, f"its copy differs: {gap}", *told)
        copy, obstacle = _copied(oracle, features, plan, background)
        return cls(live, oracle, copy, obstacle, *told)

    def describe(self) -> str:
        """Say which path the model takes, and why."""
        if self.copy is None:
            return f"lockstep: the model is asked in batches, because {self.obstacle}"
        n_trees, n_nodes = self.copy.table.tree.size - 1, self.copy.table.values.shape[0]
        return f"compiled: the model is read as a table of {n_trees} trees ({n_nodes} nodes)"

    def answer(self, form: Form, read: F8 | None) -> tuple[F8, I8]:
        """Probabilities of rows, and their classes as the model's own predict decides them."""
        asked = form.model_table
        if read is not None and isinstance(self.oracle, TreeOracle) and form.has_background_dtypes:
            probabilities = self.oracle.link(self.oracle.raw_scores_of(read))
        else:
            probabilities = self.oracle.predict_proba(asked)
        by_cutoff = self.by_probability and self.cutoff is not None and self.oracle is not self.live
        if by_cutoff and _unsure(probabilities, self.cutoff).any():  # the last bit decides, which a copy may not share
            return probabilities, self.verdict(asked)[1]
        return probabilities, self._labels(probabilities, asked)

    def verdict(self, asked: Any) -> tuple[F8, I8]:
        """The same of the live model, which has the last word."""
        probabilities = self.ask_live(asked)
        if self.cutoff is not None and not self.by_probability:  # the model's own, which may be another one by now
            return probabilities, self.predict(asked)
        return probabilities, self._labels(probabilities, asked)

    def ask_live(self, asked: Any) -> F8:
        """Probabilities by the live model."""
        with self._turn():
            probabilities: F8 = self.live.predict_proba(asked)
        return probabilities

    def predict(self, asked: Any) -> I8:
        """Classes as the live model's own predict decides them."""
        with self._turn():
            return _predict(self.live, asked)

    def _labels(self, probabilities: F8, asked: Any) -> I8:
        """Classes as the model's own predict decides them; it is asked where probabilities may not tell."""
        labels = decided(probabilities, self.cutoff)
        if self.by_probability:
            return labels
        likely = self.copy is not None and self.follows
        asks = _unsure(probabilities, self.cutoff) if likely else np.ones(labels.size, bool)
        return np.where(asks, self.predict(asked), labels) if asks.any() else labels

    def _turn(self) -> contextlib.AbstractContextManager[Any]:
        """The turn of one thread to ask a model that was read as a table; others may be services, and take long."""
        return contextlib.nullcontext() if self.copy is None else ONE_AT_A_TIME


@dataclass(frozen=True)
class Asking:
    """Asks about numbers that were proposed for rows, in the user's own form; equal questions are asked once."""

    model: Model
    form: Form
    owners: I8  # the row of the form behind each problem
    live: bool = False  # whether the live model is asked, and not the copy

    def __call__(self, numbers: F8, rows: I8) -> F8:
        owners = self.owners[rows]
        fingerprints = np.empty(rows.size, np.uint64)
        kernel.fingerprint_rows(np.ascontiguousarray(numbers), owners, fingerprints)
        place, distinct = pd.factorize(fingerprints)
        if distinct.size < place.size:  # neighbours stay so: a forest walks them in any other order 1.37 times as long
            first = np.unique(place, return_index=True)[1]
            numbers, owners = numbers[first], owners[first]
        model = self.model
        asked = self.form.asked(numbers, owners)
        probabilities: F8 = model.ask_live(asked) if self.live else model.oracle.predict_proba(asked)
        if not model.by_probability and (self.live or not model.follows):
            probabilities = _as_decided(probabilities, model.predict(asked), model.cutoff)
        return probabilities[place]

    def table_of(self, numbers: F8, rows: I8) -> pd.DataFrame:
        """The user's table of numbers, each row in the form of the row that it belongs to."""
        return self.form.frame(numbers, self.owners[rows])


@dataclass(frozen=True)
class Verdict:
    """What the user's own model says of the m examples, and of the n rows themselves."""

    found: I8  # (m,), their problems
    shown: NDArray[Any]  # (m, d), their cells
    probabilities: F8  # (m, k)
    labels: I8  # (m,)
    holds: NDArray[np.bool_]  # (m,)
    own_probabilities: F8  # (n, k)
    own_labels: I8  # (n,)

    @property
    def upheld(self) -> Verdict:
        """The same of the examples that hold alone."""
        kept = self.holds
        return replace(
            self,
            found=self.found[kept],
            shown=self.shown[kept],
            probabilities=self.probabilities[kept],
            labels=self.labels[kept],
            holds=kept[kept],
        )


def judged(ask: Asking, work: Work) -> Verdict:
    """One call of the model with the rows and all examples found for them, which are shown by their cells."""
    found, n_rows = work.found, len(ask.form)
    owners = np.concatenate([np.arange(n_rows), ask.owners[found]])
    numbers = np.concatenate([ask.form.numbers, work.best.numbers[found]])
    asked, shown = ask.form.shown(numbers, owners)
    answers, labels = ask.model.verdict(asked)
    wanted = work.problems.row[found]
    return Verdict(
        found=found,
        shown=shown[n_rows:],
        probabilities=np.asarray(answers[n_rows:], dtype=np.float64),
        labels=labels[n_rows:],
        holds=(labels[n_rows:] == wanted["goal"]) == (wanted["keep"] == 1),
        own_probabilities=answers[:n_rows],
        own_labels=labels[:n_rows],
    )


def _copied(oracle: Any, features: Features, plan: Plan, background: pd.DataFrame) -> tuple[Copy | None, str]:
    """The table of an oracle by the background's columns, or why there is none."""
    table, columns = oracle.ensemble, None
    if table is None:
        return None, "it is a black box"
    names = getattr(oracle, "feature_names", None)
    if names is not None and tuple(names) != features.names and features.was_frame:
        columns = np.array([features.position(name) for name in names], dtype=np.int64)
        table = with_columns(oracle, columns, len(features.names))
    clash = np.flatnonzero((table.n_codes > 0) & (plan.feature["kind"][:-1] <= kernel.GRID))
    if clash.size:
        name = features.names[clash[0]]
        return None, f"the model takes the numbers of {name!r} as categories; declare it categorical"
    codes = _level_codes(oracle, columns, features, plan, background)
    return Copy(oracle, plan, table, axes_of(table, plan, codes), columns), ""


def _level_codes(oracle: Any, columns: I8 | None, features: Features, plan: Plan, background: pd.DataFrame) -> F8:
    """What the table reads for each level: asked with a small table that shows them all."""
    n_levels = np.diff(plan.feature["first_level"])
    codes = np.zeros(plan.level.size)
    n_rows = int(n_levels.max(initial=0))
    if n_rows == 0:
        return codes
    like = background.iloc[np.zeros(n_rows, dtype=np.int64)]
    numbers = np.tile(features.base, (n_rows, 1))
    for feature in np.flatnonzero(n_levels):
        numbers[:, feature] = np.minimum(np.arange(n_rows), n_levels[feature] - 1)
    read = _placed(read_by(oracle, features.model_table(features.frame(numbers, like))), columns, n_levels.size)
    for feature in np.flatnonzero(n_levels):
        first = plan.feature["first_level"][feature]
        codes[first : first + n_levels[feature]] = read[: n_levels[feature], feature]
    return codes


def _placed(read: F8, columns: I8 | None, n_features: int) -> F8:
    """Columns of a model in the places of a background's; what the model does not read is zero."""
    if columns is None:
        return read
    codes = np.zeros((len(read), n_features))
    codes[:, columns] = read
    return codes


def _checked_cutoff(given: Any, classes: NDArray[Any]) -> Cutoff:
    """Read ``{label: probability}``."""
    what = f"cutoff={given!r}"
    if len(classes) != 2:
        raise OptionError(f"{what} is for a model of two classes, and this one has {classes.tolist()}; leave it out.")
    if not isinstance(given, Mapping) or len(given) != 1:
        raise OptionError(f"{what} is not one class with its cutoff; give {{{classes.tolist()[1]!r}: 0.3}}, say.")
    ((label, threshold),) = given.items()
    place = [at for at, known in enumerate(classes.tolist()) if known == label]
    if not place:
        raise OptionError(f"{what} names {label!r}, which is no class of the model; they are {classes.tolist()}.")
    number = not isinstance(threshold, bool) and isinstance(threshold, (int, float, np.number))
    if not number or not 0.0 < threshold < 1.0:
        raise OptionError(f"{what}: {threshold!r} is not a number between 0 and 1; give a probability.")
    return Cutoff(place[0], float(threshold))


def _predict(live: Any, table: Any) -> I8:
    """Classes as positions; an oracle without predict decides by the largest probability."""
    if hasattr(live, "predict"):
        return np.asarray(live.predict(table), dtype=np.int64)
    return np.asarray(live.predict_proba(table).argmax(axis=1), dtype=np.int64)


def _unsure(probabilities: F8, cutoff: Cutoff | None) -> NDArray[np.bool_]:
    """Rows whose two top classes, or probability and cutoff, are so close that the model itself must decide."""
    if cutoff is not None:
        return np.abs(probabilities[:, cutoff.label] - cutoff.threshold) < BESIDE
    if probabilities.shape[1] < 2:
        return np.zeros(probabilities.shape[0], bool)
    top = np.partition(probabilities, -2, axis=1)
    return top[:, -1] - top[:, -2] < SURE


def _as_decided(probabilities: F8, labels: I8, cutoff: Cutoff | None) -> F8:
    """Probabilities that say what the model's own predict said, which counts: its class is lifted to the top."""
    probabilities = probabilities.copy()
    if cutoff is None:
        probabilities[np.arange(labels.size), labels] = probabilities.max(axis=1) + SURE
        return probabilities
    wrong = decided(probabilities, cutoff) != labels
    lifted = labels[wrong] == cutoff.label
    probabilities[wrong, cutoff.label] = np.where(lifted, cutoff.threshold, np.nextafter(cutoff.threshold, 0.0))
    return probabilities
