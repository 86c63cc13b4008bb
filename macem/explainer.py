"""Explainer: the order of events, from a table of rows to their explanations."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from macem import kernel, likely, problem, refine, search
from macem.adapters import oracle_for
from macem.adapters.check import check_table, warn_of_labels
from macem.errors import (
    MacemError,
    ModelChangedError,
    OptionError,
    OracleError,
    TableMismatchWarning,
)
from macem.features import Features, Form
from macem.kernel import F8, I8, Plan, TreeEnsemble
from macem.options import SearchOptions
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle, narrowed
from macem.results import Contrast, Explanation, Explanations, Status, rows_of
from macem.search import Limits, Work
from macem.strategies.densities import density_from
from macem.strategies.encodings import Encoding, encoding_from
from macem.trees import Link, Member, Tree, axes_of, with_columns

__all__ = ["Explainer", "warm_up"]

KINDS = (problem.POSITIVE, problem.NEGATIVE)
ROWS_AT_ONCE = 128
COMPARED_ROWS = 200  # background rows on which table and model are compared, spread evenly
LEVEL_ROWS = 1000  # more, at most, that show a level first: a model may refuse one, to which every row would be moved
MOST_QUERIES = 1 << 62  # what the kernel counts up to
SURE = 1e-9  # a lead of the top class below this may be decided either way by the model's own predict
# scikit-learn's forests set the process's warning filters aside for each tree, which threads undo in any order: of ten
# calls of explain with n_jobs=4, nine left other filters behind
ONE_AT_A_TIME = threading.Lock()
CHANGED = 1e-5  # a gap between table and model that no order of summation explains


def _unlock_in_child() -> None:
    """A thread that held the lock when its process forked is not in the child, which would wait for it for ever."""
    global ONE_AT_A_TIME
    ONE_AT_A_TIME = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_unlock_in_child)


class Explainer:
    """Contrastive explanations of one classifier over one background.

    Parameters
    ----------
    model : object
        A fitted classifier with ``predict_proba``, a function from a table to probabilities, or an oracle.
    X_train : DataFrame or array, shape (n, d)
        The background that base values, ranges and frequencies come from. It is not kept.
    categorical : sequence of names or positions, optional
        Categorical columns; by default those of type str, object, category or bool.
    base : dict, optional
        ``{feature: value}``; medians and modes otherwise.
    ranges : dict, optional
        ``{feature: (low, high)}``; those of the background otherwise.
    frozen : sequence of names, optional
        Features that keep the row's value.
    directions : dict, optional
        ``{feature: "increase" | "decrease"}``.
    special_values : dict, optional
        ``{feature or "*": [codes]}``, numbers that mean "no information". Such a cell stands at base and stays.
    encoding : {"fma", "ssa"} or Encoding
        How categories become coordinates.
    density : {"kde", "copula"} or object with a method log_density(X), optional
        Input density, weighed by ``options.density_weight``.
    options : SearchOptions, optional
        How to search; the defaults are measured.
    adapter : Adapter, optional
        Overrides discovery.

    Raises
    ------
    DataError, OptionError, ModelError
        Before any work, with a message that names the column, the value and the remedy.

    Notes
    -----
    If the compiled table of the model disagrees with the model on the background, on a split boundary, with a missing
    value or with an unseen level, a `TableMismatchWarning` names the gap, and the model is asked as a black box.
    """

    def __init__(
        self,
        model: Any,
        X_train: Any,
        *,
        categorical: Sequence[Any] | None = None,
        base: dict[Any, Any] | None = None,
        ranges: dict[Any, tuple[float, float]] | None = None,
        frozen: Sequence[Any] | None = (),
        directions: dict[Any, str] | None = None,
        special_values: dict[Any, Sequence[float]] | None = None,
        encoding: str | Encoding = "fma",
        density: Any = None,
        options: SearchOptions | None = None,
        adapter: Any = None,
    ) -> None:
        self.options = _checked_options(SearchOptions() if options is None else options, density)
        self.features = Features.fit(
            X_train,
            categorical=categorical,
            base=base,
            ranges=ranges,
            frozen=frozen,
            directions=directions,
            special_values=special_values,
        )
        self.oracle: Oracle = oracle_for(model, adapter)
        self._live: Any = getattr(self.oracle, "live", self.oracle)
        self.encoding = encoding_from(encoding).fit(self.features)
        if self.encoding.plan is None:
            raise OptionError(
                f"encoding={encoding!r} has no plan after fit; see docs/encodings.md for what a plan holds."
            )
        self._plan: Plan = self.encoding.plan
        self._density = _fitted_density(density, self.features, X_train)
        background = self.features.check(_sample(X_train, self.features))
        asked = self.features.model_table(background)
        probabilities = self._first_answer(asked)
        warn_of_labels(self._live, probabilities)
        self.classes: NDArray[Any] = np.asarray(self._live.classes)
        self._class_index: pd.Index[Any] = pd.Index(self.classes)
        # a model whose predict follows another rule than the largest probability is asked for its verdict every time
        self._follows_argmax = bool((_predict(self._live, asked) == probabilities.argmax(axis=1)).all())
        any_row = self.features.form(background.iloc[:1])
        self._base_cells = any_row.shown(self.features.base[None], np.zeros(1, np.int64))[1][0]
        self._last_schedule: tuple[int, kernel.Schedule] | None = None
        self._rooms: list[kernel.Scratch] = []
        self._table, self._columns, self._obstacle = self._read_table(asked)
        self._axes = None
        if self._table is not None:
            self._axes = axes_of(self._table, self._plan, self._level_codes(background))

    def explain(
        self,
        X: Any,
        kinds: Sequence[str] = KINDS,
        target: Any = None,
        seed: int = 0,
        n_jobs: int = 1,
        max_queries: int | None = None,
        time_limit: float | None = None,
        progress: bool = False,
    ) -> Explanations:
        """Explain rows.

        Parameters
        ----------
        X : DataFrame, Series, dict, list of dicts, or array of shape (n, d) or (d,)
        kinds : sequence of {"positive", "negative"}
        target : label, optional
            The class that negatives are to reach; any other class by default.
        seed : int
            The same seed gives the same results: alone or in a batch, in any order, with any `n_jobs`.
        n_jobs : int
            Through joblib; inside ``joblib.parallel_config(backend=…)`` on any of its backends.
        max_queries : int, optional
            Model queries per row and kind, kept to within one step.
        time_limit : float, optional
            Seconds for the whole call, kept to within one step, on a table to within one row.
        progress : bool
            Show a progress bar on stderr.

        Returns
        -------
        Explanations
            One per row, in order. A row on which the model failed has an `error`; the others are not lost.

        Raises
        ------
        DataError, OptionError
            Before any work.
        ModelChangedError
            If the model no longer answers as it did when the explainer was made.
        """
        began = time.monotonic()
        form = self.features.form(X)
        kinds = self._checked_kinds(kinds)
        goal = self._checked_target(target)
        limits = Limits(
            max_queries=_checked_count("max_queries", max_queries),
            deadline=float("inf") if time_limit is None else began + _checked_seconds(time_limit),
        )
        seed = _checked_seed(seed)
        at_once = 1 if time_limit is not None and self._axes is not None else ROWS_AT_ONCE
        jobs = joblib.effective_n_jobs(_checked_jobs(n_jobs))
        at_once = max(1, min(at_once, -(-len(form) // jobs)))
        parts = form.parts(at_once)
        done: list[Explanation] = []
        for part in _in_order(self, parts, (kinds, goal, seed, limits), n_jobs, progress, len(form)):
            done.extend(part)
        return Explanations(done, self._provenance(seed, kinds, target, done, time.monotonic() - began))

    def with_options(self, options: SearchOptions) -> Explainer:
        """The same explainer with other options; nothing is fitted or compared again.

        Raises
        ------
        OptionError
            If the options weigh a density that the explainer does not have.
        """
        options = _checked_options(options, self._density)
        other = copy.copy(self)  # without the last schedule, which the options shape
        other.options = options
        return other

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_last_schedule": None, "_rooms": []}

    def __repr__(self) -> str:
        return f"<Explainer of {len(self.features.names)} features, {self.describe()}>"

    def describe(self) -> str:
        """Say which path the model takes, and why."""
        note = getattr(self.oracle, "note", "")
        reason = f"{note[0].upper()}{note[1:].rstrip('.')}." if note else ""
        if self._table is not None:
            n_trees = self._table.tree.size - 1
            words = f"compiled: the model is read as a table of {n_trees} trees ({self._table.values.shape[0]} nodes)"
        else:
            words = f"lockstep: the model is asked in batches, because {self._obstacle}"
        return f"{words}. {reason}".strip()

    def _first_answer(self, asked: Any) -> F8:
        """Probabilities of rows of the background; an error names the values that the model fails on."""
        try:
            probabilities: F8 = self._live.predict_proba(asked)
        except OracleError as error:
            raise OracleError(narrowed(error, getattr(asked, "iloc", asked)[:1])) from error
        return probabilities

    def _read_table(self, asked: Any) -> tuple[TreeEnsemble | None, I8 | None, str]:
        """The table of the compiled path and the background's columns that it reads, or why there is none."""
        plan = self._plan
        for_table = getattr(self.oracle, "for_table", None)
        if for_table is not None:  # what a scaler computes depends on the dtypes of its table
            self.oracle = for_table(asked)
        gap = check_table(self.oracle, asked)
        if gap is not None:
            warnings.warn(
                f"The copy of the model is not used: {gap}. The model is asked as a black box instead.",
                TableMismatchWarning,
                stacklevel=3,
            )
            self.oracle = self._live
            return None, None, f"its copy differs: {gap}"
        table = self.oracle.ensemble
        if table is None:
            return None, None, "it is a black box"
        columns = None
        names = getattr(self.oracle, "feature_names", None)
        if names is not None and tuple(names) != self.features.names and self.features.was_frame:
            columns = np.array([self.features.position(name) for name in names], dtype=np.int64)
            table = with_columns(self.oracle, columns, len(self.features.names))
        clash = np.flatnonzero((table.n_codes > 0) & (plan.feature["kind"][:-1] <= kernel.GRID))
        if clash.size:
            name = self.features.names[clash[0]]
            return None, None, f"the model takes the numbers of {name!r} as categories; declare it categorical"
        return table, columns, ""

    def _level_codes(self, background: pd.DataFrame) -> F8:
        """What the table reads for each level: asked with a small table that shows them all."""
        plan = self._plan
        n_levels = np.diff(plan.feature["first_level"])
        codes = np.zeros(plan.level.size)
        n_rows = int(n_levels.max(initial=0))
        if n_rows == 0:
            return codes
        like = background.iloc[np.zeros(n_rows, dtype=np.int64)]
        numbers = np.tile(self.features.base, (n_rows, 1))
        for feature in np.flatnonzero(n_levels):
            numbers[:, feature] = np.minimum(np.arange(n_rows), n_levels[feature] - 1)
        read = self._placed(self._read(self.features.model_table(self.features.frame(numbers, like))))
        for feature in np.flatnonzero(n_levels):
            first = plan.feature["first_level"][feature]
            codes[first : first + n_levels[feature]] = read[: n_levels[feature], feature]
        return codes

    def _read(self, asked: Any) -> F8:
        """What the table reads of the model's columns."""
        oracle: Any = self.oracle
        return np.ascontiguousarray(oracle.read(asked), dtype=np.float64)

    def _placed(self, read: F8) -> F8:
        """The same by the background's columns."""
        if self._columns is None:
            return read
        codes = np.zeros((len(read), len(self.features.names)))
        codes[:, self._columns] = read
        return codes

    def _schedule(self, seed: int) -> kernel.Schedule:
        """The random numbers of a seed; the last ones are kept, since a server asks for the same again and again."""
        last = self._last_schedule
        if last is None or last[0] != seed:
            n_samples = getattr(self.encoding, "n_samples", 1)
            last = seed, search.schedule_for(self._plan, self.options, seed, n_samples=n_samples)
            self._last_schedule = last
        return last[1]

    def _explain_part(
        self, form: Form, kinds: Sequence[str], target: int | None, seed: int, limits: Limits
    ) -> list[Explanation]:
        """Explain some rows together; if the model fails on some, the others are explained one by one."""
        try:
            return self._explain_rows(form, kinds, target, seed, limits)
        except ModelChangedError:
            raise
        except MacemError as error:
            if len(form) > 1:
                parts = form.parts(1)
                return [one for part in parts for one in self._explain_part(part, kinds, target, seed, limits)]
            cells = (form.cells, self._bases(form))
            original, base = (rows_of(them, form.columns, list(form.index))[0] for them in cells)
            told = str(error) if limits.passed else narrowed(error, form.model_table)
            return [Explanation(form.index[0], original, None, None, base, error=told)]

    def _explain_rows(
        self, form: Form, kinds: Sequence[str], target: int | None, seed: int, limits: Limits
    ) -> list[Explanation]:
        n_rows, asked = len(form), form.model_table
        read = None if self._axes is None else self._read(asked)
        probabilities, predicted = self._answer(form, asked, read)
        plan, weights = self._plan, problem.weights_from(self.options)
        problems = problem.pose(
            self.features,
            plan,
            form.numbers,
            form.numbers if read is None else self._placed(read),
            predicted,
            kinds,
            target=target,
            away_from_base=self.options.away_from_base,
        )
        ask = _Asking(self, form, np.repeat(np.arange(n_rows), len(kinds)))
        work = Work.on(problems, limits)
        if target is not None:  # a row that is in the target class already has no way to go
            there = np.repeat(predicted == target, len(kinds)) & np.tile([k == problem.NEGATIVE for k in kinds], n_rows)
            work.best.row["done"][there] = work.best.row["proved"][there] = True
        scratch = self._room()
        self._solve(work, plan, weights, seed, limits, ask, scratch)
        verdict = self._verify(work, ask, plan, weights, limits, probabilities, predicted)
        sensitivity = self._sensitivity(form, work, plan, weights, verdict, len(kinds), scratch)
        if scratch is not None:
            self._rooms.append(scratch)
        return self._assemble(form, probabilities, predicted, kinds, target, work, verdict, sensitivity)

    def _room(self) -> kernel.Scratch | None:
        """Room on the table for the thread that asks; it is given back, since that of a forest takes megabytes."""
        if self._table is None or self._axes is None:
            return None
        try:
            return self._rooms.pop()
        except IndexError:
            return refine.scratch_for(self._table, self._axes, self._plan)

    def _solve(
        self,
        work: Work,
        plan: Plan,
        weights: kernel.Weights,
        seed: int,
        limits: Limits,
        ask: _Asking,
        scratch: kernel.Scratch | None,
    ) -> None:
        """Search, then refine; on a table refine, then search for what has no example yet."""
        table, axes, refined = self._table, self._axes, self.options.refine
        log_density = self._log_density(ask)
        answers: search.Ask = ask
        if table is not None and axes is not None:
            answers = partial(search.ask_table, table, axes, plan, work.problems)
        by_profiles = table is not None and axes is not None and refined and not refine.solves(table)
        if not by_profiles or log_density is not None:  # else the first profile tells what the anchor is
            search.begin(work, plan, weights, answers)  # a single tree has none, and may come to that leaf last
        if limits.passed:
            work.best.row["exhausted"][work.open] = True
        if not work.open.size:
            return

        def hunt() -> None:
            if table is not None and axes is not None and log_density is None:
                search.compiled(work, table, axes, plan, weights, self._schedule(seed))
            else:
                search.lockstep(work, plan, weights, self._schedule(seed), answers, limits, log_density)

        begun = work.best.row["done"].copy()
        if table is None or axes is None or scratch is None or not refined:
            hunt()
            if refined:
                refine.batched(work, plan, weights, answers, limits)
        else:
            # profiles are nearly free on a table, and nearer than what a search finds, which is left the rest
            refine.on_table(work, table, axes, plan, weights, self.options, scratch)
            row = work.best.row
            found = np.isfinite(row["cost"]) & ~row["done"]
            row["done"] |= found  # so that a row takes the same way alone and beside one without a result
            if work.open.size:
                hunt()
                refine.on_table(work, table, axes, plan, weights, self.options, scratch, max_rounds=0)
            row["done"] &= ~found
        if refined and log_density is not None:
            row = work.best.row
            nearest = row["done"] & ~begun & np.isfinite(row["cost"])  # proved so, but not the likeliest in reach
            row["done"][nearest] = row["proved"][nearest] = False
            likely.toward_density(work, plan, weights, answers, log_density, limits)

    def _log_density(self, ask: _Asking) -> Any:
        density = self._density
        if density is None or self.options.density_weight == 0.0:
            return None
        if hasattr(density, "of_numbers"):
            return lambda numbers, rows: density.of_numbers(numbers)
        return lambda numbers, rows: np.asarray(density.log_density(ask.table_of(numbers, rows)), dtype=np.float64)

    def _answer(self, form: Form, asked: Any, read: F8 | None) -> tuple[F8, I8]:
        """Probabilities of rows, and their classes as the model's own predict decides them."""
        if read is not None and isinstance(self.oracle, TreeOracle) and form.has_background_dtypes:
            probabilities = self.oracle.link(self.oracle.raw_scores_of(read))
        else:
            probabilities = self.oracle.predict_proba(asked)
        return probabilities, self._labels(probabilities, asked)

    def _labels(self, probabilities: F8, asked: Any) -> I8:
        """Classes as the model's own predict decides them; it is asked where probabilities may not tell."""
        known = getattr(self._live, "by_probability", False)
        if known or (self._axes is not None and self._follows_argmax and not _unsure(probabilities).any()):
            return np.asarray(probabilities.argmax(axis=1), dtype=np.int64)
        with self._turn():
            return _predict(self._live, asked)

    def _turn(self) -> contextlib.AbstractContextManager[Any]:
        """The turn of one thread to ask a model that was read as a table; others may be services, and take long."""
        return contextlib.nullcontext() if self._axes is None else ONE_AT_A_TIME

    def _verify(
        self,
        work: Work,
        ask: _Asking,
        plan: Plan,
        weights: kernel.Weights,
        limits: Limits,
        probabilities: F8,
        predicted: I8,
    ) -> _Verdict:
        """Ask the user's own model about every example as it will be shown; only that verdict counts."""
        found = np.flatnonzero(np.isfinite(work.best.row["cost"]))
        verdict = self._judge(work, ask, found)
        self._refuse_if_changed(ask.form.index, probabilities, predicted, verdict)
        failed = found[~verdict.holds]
        if failed.size and self.options.refine:
            # the table said so and the model does not (a tie, say): search again by asking the model itself
            again = Work.on(problem.select(work.problems, failed), limits)
            row = again.best.row
            row["n_queries"] = work.best.row["n_queries"][failed]  # one budget for both searches
            row["exhausted"] = work.best.row["exhausted"][failed] | (row["n_queries"] >= again.best.max_queries)
            live = _Asking(self, ask.form, ask.owners[failed], live=True)
            refine.batched(again, plan, weights, live, limits)
            work.best.numbers[failed] = again.best.numbers
            work.best.row[failed] = row
            work.best.row["proved"][failed] = False
            found = np.flatnonzero(np.isfinite(work.best.row["cost"]))
            verdict = self._judge(work, ask, found)
            failed = found[~verdict.holds]
        if not failed.size:
            return verdict
        work.best.row["cost"][failed] = np.inf
        work.best.row["proved"][failed] = False
        return verdict.upheld

    def _judge(self, work: Work, ask: _Asking, found: I8) -> _Verdict:
        """One call of the model with the rows and all examples found for them, which are shown by their cells."""
        n_rows = len(ask.form)
        owners = np.concatenate([np.arange(n_rows), ask.owners[found]])
        numbers = np.concatenate([ask.form.numbers, work.best.numbers[found]])
        asked, shown = ask.form.shown(numbers, owners)
        with self._turn():
            answers = self._live.predict_proba(asked)
        labels = self._labels(answers, asked)
        wanted = work.problems.row[found]
        return _Verdict(
            shown=shown[n_rows:],
            probabilities=np.asarray(answers[n_rows:], dtype=np.float64),
            labels=labels[n_rows:],
            holds=(labels[n_rows:] == wanted["goal"]) == (wanted["keep"] == 1),
            own_probabilities=answers[:n_rows],
            own_labels=labels[:n_rows],
        )

    def _refuse_if_changed(self, index: Sequence[Any], before: F8, predicted: I8, verdict: _Verdict) -> None:
        gap = np.abs(before - verdict.own_probabilities).max(axis=1)
        wrong = np.flatnonzero((gap > CHANGED) | (verdict.own_labels != predicted))
        if wrong.size:
            row, classes = wrong[0], self.classes.tolist()
            was, now = classes[predicted[row]], classes[verdict.own_labels[row]]
            told = f"is class {was!r} with other probabilities" if was == now else f"was class {was!r} and is {now!r}"
            raise ModelChangedError(
                f"The model changed since the explainer was made, or answers the same row in two ways (beside other "
                f"rows, say): row {index[row]!r} {told} now (gap in probability {gap[row]:.3g}). "
                "Make a new Explainer."
            )

    def _bases(self, form: Form) -> NDArray[Any]:
        """Base values of rows, as cells: a missing one or a special code stays as it is."""
        numbers = form.numbers
        standing = self.features.silent(numbers)
        if not form.has_background_dtypes:
            return form.shown(np.where(standing, numbers, self.features.base), np.arange(len(numbers)))[1]
        standing |= numbers == self.features.base
        return np.where(standing, form.cells, self._base_cells)

    def _assemble(
        self,
        form: Form,
        probabilities: F8,
        predicted: I8,
        kinds: Sequence[str],
        target: int | None,
        work: Work,
        verdict: _Verdict,
        sensitivity: F8,
    ) -> list[Explanation]:
        """Results, from arrays to what a person reads."""
        cells, base_cells = form.cells, self._bases(form)
        columns, names, index = form.columns, form.columns.tolist(), list(form.index)
        found = np.flatnonzero(np.isfinite(work.best.row["cost"])).tolist()
        place = {p: at for at, p in enumerate(found)}  # of each example among those that are shown
        originals, bases = rows_of(cells, columns, index), rows_of(base_cells, columns, index)
        examples = rows_of(verdict.shown, columns, [index[p // len(kinds)] for p in found])
        importances, sensitivities = rows_of(self._importance(work), columns), rows_of(sensitivity, columns)
        own_probabilities = rows_of(probabilities, self._class_index)
        their_probabilities = rows_of(verdict.probabilities, self._class_index)
        distance = work.best.row["cost"]
        numbers, reference_numbers = work.best.numbers, work.problems.cell["reference"]
        differs = (numbers != reference_numbers) & ~np.isnan(numbers)
        explanations = []
        for row in range(len(form)):
            contrasts: dict[str, Contrast] = {}
            for kind_at, kind in enumerate(kinds):
                p = row * len(kinds) + kind_at
                reference = originals[row] if kind == problem.NEGATIVE else bases[row]
                is_found = p in place
                status, changes = Status.FOUND if is_found else self._why_not(work, p), {}
                if is_found:
                    before, after = (cells if kind == problem.NEGATIVE else base_cells)[row], verdict.shown[place[p]]
                    changes = {
                        _plain(names[at]): (_plain(before[at]), _plain(after[at]))
                        for at in np.flatnonzero(differs[p]).tolist()
                        if before[at] != after[at]  # as they are shown: a float32 holds fewer digits than a number
                    }
                contrasts[kind] = Contrast(
                    kind=kind,
                    status=status,
                    values=examples[place[p]] if is_found else None,
                    changes=changes,
                    importance=importances[p],
                    sensitivity=sensitivities[p],
                    prediction=self.classes[verdict.labels[place[p]]] if is_found else None,
                    probabilities=their_probabilities[place[p]] if is_found else None,
                    distance=float(distance[p]) if is_found else None,
                    n_changed=len(changes) if is_found else None,
                    n_queries=int(work.best.row["n_queries"][p]),
                    lower_bound=float(distance[p]) if is_found and work.best.row["proved"][p] else None,
                    reference=reference,
                    target=self.classes[target] if target is not None and kind == problem.NEGATIVE else None,
                )
            explanations.append(
                Explanation(
                    index=form.index[row],
                    original=originals[row],
                    prediction=self.classes[predicted[row]],
                    probabilities=own_probabilities[row],
                    base=bases[row],
                    positive=contrasts.get(problem.POSITIVE),
                    negative=contrasts.get(problem.NEGATIVE),
                )
            )
        return explanations

    def _why_not(self, work: Work, p: int) -> Status:
        """Why a problem has no example."""
        nothing_moves = not work.problems.cell["movable"][p].any()
        if work.best.row["proved"][p] or nothing_moves or len(self.classes) == 1:
            return Status.NONE_EXISTS
        return Status.OUT_OF_BUDGET if work.best.row["exhausted"][p] else Status.NOT_FOUND

    def _importance(self, work: Work) -> F8:
        """Distance moved per problem and feature; none where nothing was found."""
        moved = np.empty(work.best.numbers.shape)
        kernel.moved_rows(self._plan, self.features.std, work.problems, work.best.numbers, moved)
        moved[np.isinf(work.best.row["cost"])] = 0.0
        return moved

    def _sensitivity(
        self,
        form: Form,
        work: Work,
        plan: Plan,
        weights: kernel.Weights,
        verdict: _Verdict,
        n_kinds: int,
        scratch: kernel.Scratch | None,
    ) -> F8:
        """Per problem and feature, what moving that feature alone can change in the example's probability."""
        sensitivity = np.zeros(work.problems.anchor.shape)
        rows = np.flatnonzero(np.isfinite(work.best.row["cost"]))
        if not rows.size:
            return sensitivity
        numbers, goal = work.best.numbers[rows], verdict.labels
        if self._axes is not None and self._table is not None and scratch is not None:
            codes = np.empty(numbers.shape)
            kernel.code_rows(plan, self._axes.level_code, work.problems, rows, numbers, codes)
            free = problem.free_problems(self.features, plan, numbers, codes, goal)
            sensitivity[rows] = refine.sensitivity_on_table(free, self._table, self._axes, plan, weights, scratch)
        else:
            free = problem.free_problems(self.features, plan, numbers, numbers, goal)
            sensitivity[rows] = refine.sensitivity_asked(free, plan, weights, _Asking(self, form, rows // n_kinds))
        return sensitivity

    def _checked_kinds(self, kinds: Sequence[str]) -> tuple[str, ...]:
        kinds = tuple(map(_plain, kinds)) if isinstance(kinds, Iterable) and not isinstance(kinds, str) else (kinds,)
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown or not kinds or len(set(kinds)) != len(kinds):
            raise OptionError(f'kinds={kinds!r} is not possible; give "positive", "negative" or both.')
        return kinds

    def _checked_target(self, target: Any) -> int | None:
        if target is None:
            return None
        comparable = np.ndim(target) == 0 and target is not pd.NA  # whose comparison is neither true nor false
        at = np.flatnonzero(self.classes == target) if comparable else np.empty(0, np.int64)
        if at.size != 1:
            raise OptionError(
                f"target={target!r} is not a class of the model; its classes are {self.classes.tolist()}."
            )
        return int(at[0])

    def _provenance(
        self, seed: int, kinds: Sequence[str], target: Any, done: list[Explanation], seconds: float
    ) -> dict[str, Any]:
        import macem

        model = getattr(self._live, "model", self.oracle)
        return {
            "macem": macem.__version__,
            "model": f"{type(model).__module__}.{type(model).__qualname__}",
            "path": self.describe(),
            "classes": self.classes.tolist(),
            "kinds": list(kinds),
            "target": target,
            "seed": seed,
            "options": self.options.as_dict(),
            "background": self.features.fingerprint,
            "n_background": self.features.n_background,
            "n_rows": len(done),
            "n_queries": sum(contrast.n_queries for one in done for contrast in one.contrasts),
            "seconds": seconds,
            "versions": _versions(),
        }


@dataclass(frozen=True)
class _Verdict:
    """What the user's own model says of the m examples, and of the n rows themselves."""

    shown: NDArray[Any]  # (m, d), their cells
    probabilities: F8  # (m, k)
    labels: I8  # (m,)
    holds: NDArray[np.bool_]  # (m,)
    own_probabilities: F8  # (n, k)
    own_labels: I8  # (n,)

    @property
    def upheld(self) -> _Verdict:
        """The same of the examples that hold alone."""
        kept = self.holds
        return replace(
            self,
            shown=self.shown[kept],
            probabilities=self.probabilities[kept],
            labels=self.labels[kept],
            holds=kept[kept],
        )


@dataclass(frozen=True)
class _Asking:
    """Asks the oracle about numbers, in the user's own form; equal questions are asked once."""

    explainer: Explainer
    form: Form
    owners: I8  # the row of the form behind each problem
    live: bool = False

    def __call__(self, numbers: F8, rows: I8) -> F8:
        owners = self.owners[rows]
        fingerprints = np.empty(rows.size, np.uint64)
        kernel.fingerprint_rows(np.ascontiguousarray(numbers), owners, fingerprints)
        place, distinct = pd.factorize(fingerprints)
        if distinct.size < place.size:  # neighbours stay so: a forest walks them in any other order 1.37 times as long
            first = np.unique(place, return_index=True)[1]
            numbers, owners = numbers[first], owners[first]
        explainer = self.explainer
        oracle = explainer._live if self.live else explainer.oracle
        asked = self.form.asked(numbers, owners)
        probabilities = oracle.predict_proba(asked)
        surely = getattr(explainer._live, "by_probability", False)
        if not surely and (self.live or not explainer._follows_argmax):
            # the model's own verdict counts, so its class is lifted to the top
            labels = _predict(explainer._live, asked)
            probabilities = probabilities.copy()
            probabilities[np.arange(labels.size), labels] = probabilities.max(axis=1) + SURE
        return probabilities[place]

    def table_of(self, numbers: F8, rows: I8) -> pd.DataFrame:
        """The user's table of numbers, each row in the form of the row that it belongs to."""
        return self.form.frame(numbers, self.owners[rows])


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("numba", "numpy", "pandas", "scikit-learn")}


def warm_up() -> None:
    """Compile, or load from disk, everything that an explanation runs: for images and servers."""

    def answer(X: Any) -> F8:
        positive = (np.asarray(X)[:, 0] > 0.5).astype(np.float64)
        return np.column_stack([1.0 - positive, positive])

    stump = Tree(
        feature=np.array([0, -1, -1]),
        threshold=np.array([0.5, 0.0, 0.0]),
        left=np.array([1, 0, 0]),
        right=np.array([2, 0, 0]),
        value=np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        missing_left=np.array([True, False, False]),
    )
    background = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    for n_trees in (1, 2):
        member = Member([stump] * n_trees, 2, Link.IDENTITY, np.zeros(2), (0, 1), divisor=float(n_trees))
        oracle = TreeOracle(
            members=[member],
            classes=np.array([0, 1]),
            live=BlackBoxOracle(answer, classes=[0, 1]),
            read=_as_floats,
            n_features=2,
            single=True,
        )
        Explainer(oracle, background).explain(background)
    Explainer(answer, background).explain(background)


def _as_floats(X: Any) -> F8:
    return np.asarray(X, dtype=np.float64)


def _predict(live: Any, table: Any) -> I8:
    """Classes as positions; an oracle without predict decides by the largest probability."""
    if hasattr(live, "predict"):
        return np.asarray(live.predict(table), dtype=np.int64)
    return np.asarray(live.predict_proba(table).argmax(axis=1), dtype=np.int64)


def _unsure(probabilities: F8) -> NDArray[np.bool_]:
    """Rows whose two top classes are so close that the model's own rule must decide."""
    if probabilities.shape[1] < 2:
        return np.zeros(probabilities.shape[0], bool)
    top = np.partition(probabilities, -2, axis=1)
    return top[:, -1] - top[:, -2] < SURE


def _plain(value: Any) -> Any:
    """A cell as a Python number or text, which prints as it is written."""
    return value.item() if isinstance(value, np.generic) else value


def _sample(X: Any, features: Features) -> Any:
    """Rows spread evenly over a table, and the first of each level."""
    n = len(X)
    if n <= COMPARED_ROWS:
        return X
    cells = X.iloc if hasattr(X, "iloc") else X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
    even = np.linspace(0, n - 1, COMPARED_ROWS).astype(np.int64)
    categorical = [at for at, levels in enumerate(features.levels) if levels is not None]
    first = [
        np.flatnonzero(~pd.Series(cells[:, at]).duplicated())[: LEVEL_ROWS // len(categorical)] for at in categorical
    ]
    return cells[np.unique(np.concatenate([even, *first]))]


def _fitted_density(density: Any, features: Features, X_train: Any) -> Any:
    if density is None:
        return None
    table = features.check(X_train)
    chosen: Any = density_from(density)
    return chosen.fit(features, features.numbers(table), features.model_table(table))


def _in_order(
    explainer: Explainer,
    parts: list[Form],
    arguments: tuple[Any, ...],
    n_jobs: int,
    progress: bool,
    n_rows: int,
) -> Iterator[list[Explanation]]:
    """Explain parts in parallel and hand them over in order."""
    if n_jobs == 1 and len(parts) <= 1:
        results: Iterator[list[Explanation]] = (explainer._explain_part(part, *arguments) for part in parts)
    else:
        results = _in_parallel(explainer, parts, arguments, n_jobs)
    if not progress:
        yield from results
        return
    from tqdm import tqdm

    with tqdm(total=n_rows, desc="explaining", unit="row") as bar:
        for part in results:
            bar.update(len(part))
            yield part


def _in_parallel(
    explainer: Explainer, parts: list[Form], arguments: tuple[Any, ...], n_jobs: int
) -> Iterator[list[Explanation]]:
    """Explain parts by joblib; what a black box does to the process's warning filters in threads is undone."""
    call = joblib.delayed(explainer._explain_part)
    backend, _ = joblib.parallel.get_active_backend(prefer="threads")
    # Ray's and Spark's backends give all results at once.
    return_as = "generator" if backend.supports_return_generator else "list"
    with warnings.catch_warnings():
        yield from joblib.Parallel(n_jobs=n_jobs, prefer="threads", return_as=return_as)(
            call(part, *arguments) for part in parts
        )


def _checked_options(options: Any, density: Any) -> SearchOptions:
    if not isinstance(options, SearchOptions):
        raise OptionError(f"options={options!r} is not a SearchOptions; pass macem.SearchOptions(…).")
    if density is None and options.density_weight > 0.0:
        raise OptionError(f'density_weight={options.density_weight} needs a density; pass density="kde" or "copula".')
    return options


def _checked_count(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise OptionError(f"{name}={value!r} is not a whole number of at least 1; give one, or None for no limit.")
    return min(int(value), MOST_QUERIES)


def _checked_jobs(value: Any) -> Any:
    if value is None:  # what joblib's context says
        return value
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value == 0:
        raise OptionError(f"n_jobs={value!r} is no number of jobs; give 1 or more, or -1 for every core.")
    return int(value)


def _checked_seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not value >= 0:
        raise OptionError(f"time_limit={value!r} is not a number of seconds; give one, or None for no limit.")
    return float(value)


def _checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise OptionError(f"seed={seed!r} is not a whole number of at least 0; give one.")
    return int(seed)
