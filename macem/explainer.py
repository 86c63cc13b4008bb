"""Explainer: the order of events, from a table of rows to their explanations."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from macem import kernel, likely, problem, refine, search
from macem.adapters import oracle_for
from macem.columns import plain
from macem.errors import MacemError, ModelChangedError, OptionError
from macem.features import Features, Form
from macem.kernel import F8, I8, Plan
from macem.model import Asking, Model, Verdict, judged
from macem.options import SearchOptions
from macem.oracle import BlackBoxOracle, Oracle, TreeOracle, decided, narrowed
from macem.results import Contrast, Explanation, Explanations, Status, rows_of
from macem.search import Limits, Work
from macem.strategies.densities import density_from
from macem.strategies.encodings import Encoding, encoding_from
from macem.trees import Link, Member, Tree

__all__ = ["Explainer", "warm_up"]

KINDS = (problem.POSITIVE, problem.NEGATIVE)
ROWS_AT_ONCE, CELLS_AT_ONCE = 128, 1 << 17  # explained together: a cell takes half a kilobyte on the way
COMPARED_ROWS = 200  # background rows, spread evenly, that a model and its copy are asked first
LEVEL_ROWS = 1000  # more, about, that show a level first: a model may refuse one, to which every row would be moved
MOST_QUERIES = 1 << 62  # what the kernel counts up to
CHANGED = 1e-5  # a gap between table and model that no order of summation explains


class Explainer:
    """Contrastive explanations of one classifier over one background.

    Parameters
    ----------
    model : object
        A fitted classifier with ``predict_proba``, a function from a table to probabilities, or an oracle.
    X_train : DataFrame or array, shape (n, d)
        The background that base values, ranges and frequencies come from. Rows are not kept, unless a density
        needs them.
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
    cutoff : dict, optional
        ``{label: probability}`` of one of two classes: a row is in it from this probability on, whatever the model's
        own ``predict`` says. By default the model decides, by a cutoff of its own if it is a
        `FixedThresholdClassifier` or a `TunedThresholdClassifierCV`.

    Raises
    ------
    DataError, OptionError, ModelError, OracleError
        Before any work, with a message that names the column, the value and the remedy; the last if the model fails on
        rows of the background.

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
        cutoff: dict[Any, float] | None = None,
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
        oracle = oracle_for(model, adapter)
        self.encoding = encoding_from(encoding).fit(self.features)
        if self.encoding.plan is None:
            raise OptionError(
                f"encoding is a {type(encoding).__name__}, which has no plan after fit; derive one from "
                "OrderedEncoding (docs/encodings.md)."
            )
        self._plan: Plan = self.encoding.plan
        self._density = _fitted_density(density, self.features, X_train)
        background = self.features.check(_sample(X_train, self.features))
        self._model = Model.of(oracle, self.features, self._plan, background, cutoff)
        self.oracle: Oracle = self._model.oracle
        self.classes: NDArray[Any] = np.asarray(self._model.live.classes)
        self._class_index: pd.Index[Any] = pd.Index(self.classes)
        any_row = self.features.form(background.iloc[:1])
        self._base_cells = any_row.shown(self.features.base[None], np.zeros(1, np.int64))[1][0]
        self._last_schedule: tuple[int, kernel.Schedule] | None = None

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
            Seconds to search in, kept to within one step, on a table to within one row. Rows that are left after it
            are still answered with their class, and say that they are out of budget.
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
        at_once = min(ROWS_AT_ONCE, CELLS_AT_ONCE // len(self.features.names))
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
        return vars(self) | {"_last_schedule": None}

    def __repr__(self) -> str:
        return f"<Explainer of {len(self.features.names)} features, {self.describe()}>"

    def describe(self) -> str:
        """Say which path the model takes, and why."""
        unused = self._model.copy is None and self.oracle.ensemble is not None  # what it tells of its table
        note = "" if unused else getattr(self.oracle, "note", "")
        reasons = [f"{note[0].upper()}{note[1:].rstrip('.')}."] if note else []
        for label, threshold in (self.cutoff or {}).items():
            reasons.append(f"A row is {label!r} from a probability of {threshold:.6g} on.")
        if not (self._model.follows or self.cutoff):
            told = "Its predict does not take the largest probability"
            reasons.append(
                f"{told}; if a cutoff decides, give it as cutoff=." if len(self.classes) == 2 else f"{told}."
            )
        return " ".join([f"{self._model.describe()}.", *reasons])

    @property
    def cutoff(self) -> dict[Any, float] | None:
        """The class that a cutoff tells, and its probability there; None where the largest probability decides."""
        rule = self._model.cutoff
        return None if rule is None else {plain(self.classes[rule.label]): rule.threshold}

    def decided(self, probabilities: F8) -> NDArray[Any]:
        """Labels of rows of class probabilities, shape (n,): of the largest, or by the cutoff."""
        return self.classes[decided(probabilities, self._model.cutoff)]

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
            index = list(form.index)  # as plain values, which an Index has with numpy's types around them
            original, base = (rows_of(them, form.columns, index)[0] for them in cells)
            told = str(error) if limits.passed else narrowed(error, form.model_table)
            return [Explanation(index[0], original, None, None, base, error=told)]

    def _explain_rows(
        self, form: Form, kinds: Sequence[str], target: int | None, seed: int, limits: Limits
    ) -> list[Explanation]:
        n_rows, model, weights = len(form), self._model, problem.weights_from(self.options, self._model.cutoff)
        read = None if model.copy is None else model.copy.read(form.model_table)
        probabilities, predicted = model.answer(form, read)
        problems = problem.pose(
            self.features,
            self._plan,
            form.numbers,
            form.numbers if model.copy is None or read is None else model.copy.by_background(read),
            predicted,
            kinds,
            target=target,
            away_from_base=self.options.away_from_base,
        )
        ask = Asking(model, form, np.repeat(np.arange(n_rows), len(kinds)))
        work = Work.on(problems, limits)
        if target is not None:  # a row that is in the target class already has no way to go
            there = np.repeat(predicted == target, len(kinds)) & np.tile([k == problem.NEGATIVE for k in kinds], n_rows)
            work.best.row["done"][there] = work.best.row["proved"][there] = True
        with nullcontext() if model.copy is None else model.copy.room() as room:
            self._solve(work, weights, seed, limits, ask, room)
            verdict = self._verify(work, ask, weights, limits, probabilities, predicted)
            sensitivity = self._sensitivity(work, ask, weights, verdict, room)
        return self._assemble(form, probabilities, predicted, kinds, target, work, verdict, sensitivity)

    def _solve(
        self, work: Work, weights: kernel.Weights, seed: int, limits: Limits, ask: Asking, room: kernel.Scratch | None
    ) -> None:
        """Search, then refine; on a table refine first, and once more what had no example before search and draws."""
        copied, plan, row = self._model.copy, self._plan, work.best.row
        log_density = self._log_density(ask)
        answers: search.Ask = ask
        if copied is not None:
            answers = partial(search.ask_table, copied.table, copied.axes, plan, work.problems)
        by_profiles = copied is not None and self.options.refine and not refine.solves(copied.table)
        if not by_profiles or log_density is not None:  # else the first profile tells what the anchor is
            search.begin(work, plan, weights, answers)  # a single tree has none, and may come to that leaf last
        if limits.passed:
            row["exhausted"][work.open] = True
        if not work.open.size:
            return

        def hunt() -> None:
            if copied is not None and log_density is None:
                for _ in work.in_time(limits):
                    search.compiled(work, copied.table, copied.axes, plan, weights, self._schedule(seed))
            else:
                search.lockstep(work, plan, weights, self._schedule(seed), answers, limits, log_density)

        begun = row["done"].copy()
        draw = partial(search.draw, work, plan, weights, seed, answers, limits)
        if copied is not None and room is not None and self.options.refine:
            on_table = partial(refine.on_table, work, copied.table, copied.axes, plan, weights, self.options, room)
            for _ in work.in_time(limits):  # profiles are nearly free, and nearer than a search, which is left the rest
                on_table(rounds=refine.ON_TABLE)
            with work.set_aside(work.found):  # so that a row takes the same way alone and beside one without a result
                if work.open.size:
                    hunt()
                    draw()
                    for _ in work.in_time(limits):
                        on_table(rounds=refine.HARD)
        else:
            hunt()
            if self.options.refine:
                refine.batched(work, plan, weights, answers, limits)
                with work.set_aside(work.found):
                    draw()
                    with work.set_aside(work.lost):  # whose refinement would ask the same again
                        refine.batched(work, plan, weights, answers, limits)
        if self.options.refine and log_density is not None:
            nearest = row["done"] & ~begun & np.isfinite(row["cost"])  # proved so, but not the likeliest in reach
            row["done"][nearest] = row["proved"][nearest] = False
            likely.toward_density(work, plan, weights, answers, log_density, limits)

    def _log_density(self, ask: Asking) -> Any:
        density = self._density
        if density is None or self.options.density_weight == 0.0:
            return None
        if hasattr(density, "of_numbers"):
            return lambda numbers, rows: density.of_numbers(numbers)
        return lambda numbers, rows: np.asarray(density.log_density(ask.table_of(numbers, rows)), dtype=np.float64)

    def _verify(
        self, work: Work, ask: Asking, weights: kernel.Weights, limits: Limits, probabilities: F8, predicted: I8
    ) -> Verdict:
        """Ask the user's own model about every example as it will be shown; only that verdict counts."""
        row = work.best.row
        verdict = judged(ask, work)
        self._refuse_if_changed(ask.form.index, probabilities, predicted, verdict)
        failed = verdict.found[~verdict.holds]
        if failed.size and self.options.refine:
            # the table said so and the model does not (a tie, say): search again by asking the model itself
            again = Work.on(problem.select(work.problems, failed), limits)
            other = again.best.row
            other["n_queries"] = row["n_queries"][failed]  # one budget for both searches
            other["exhausted"] = row["exhausted"][failed] | (other["n_queries"] >= again.best.max_queries)
            live = Asking(ask.model, ask.form, ask.owners[failed], live=True)
            refine.batched(again, self._plan, weights, live, limits)
            work.best.numbers[failed] = again.best.numbers
            row[failed] = other
            row["proved"][failed] = False
            verdict = judged(ask, work)
            failed = verdict.found[~verdict.holds]
        if not failed.size:
            return verdict
        row["cost"][failed] = np.inf
        row["proved"][failed] = False
        return verdict.upheld

    def _refuse_if_changed(self, index: Sequence[Any], before: F8, predicted: I8, verdict: Verdict) -> None:
        gap = np.abs(before - verdict.own_probabilities).max(axis=1)
        wrong = np.flatnonzero((gap > CHANGED) | (verdict.own_labels != predicted))
        if wrong.size:
            row, classes = wrong[0], self.classes.tolist()
            was, now = classes[predicted[row]], classes[verdict.own_labels[row]]
            told = f"is class {was!r} with other probabilities" if was == now else f"was class {was!r} and is {now!r}"
            raise ModelChangedError(
                f"The model changed since the explainer was made, or answers the same row in two ways (beside other "
                f"rows, say): row {list(index)[row]!r} {told} now (gap in probability {gap[row]:.3g}). "
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
        verdict: Verdict,
        sensitivity: F8,
    ) -> list[Explanation]:
        """Results, from arrays to what a person reads."""
        cells, base_cells = form.cells, self._bases(form)
        columns, names, index = form.columns, form.columns.tolist(), list(form.index)
        found = verdict.found.tolist()
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
                        plain(names[at]): (plain(before[at]), plain(after[at]))
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
                    index=index[row],
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
        self, work: Work, ask: Asking, weights: kernel.Weights, verdict: Verdict, room: kernel.Scratch | None
    ) -> F8:
        """Per problem and feature, what moving that feature alone can change in the example's probability."""
        sensitivity = np.zeros(work.problems.anchor.shape)
        found, plan, copied = verdict.found, self._plan, self._model.copy
        if not found.size:
            return sensitivity
        numbers, goal = work.best.numbers[found], verdict.labels
        if copied is not None and room is not None:
            codes = np.empty(numbers.shape)
            kernel.code_rows(plan, copied.axes.level_code, work.problems, found, numbers, codes)
            free = problem.free_problems(self.features, plan, numbers, codes, goal)
            sensitivity[found] = refine.sensitivity_on_table(free, copied.table, copied.axes, plan, weights, room)
        else:
            free = problem.free_problems(self.features, plan, numbers, numbers, goal)
            there = Asking(ask.model, ask.form, ask.owners[found])
            sensitivity[found] = refine.sensitivity_asked(free, plan, weights, there)
        return sensitivity

    def _checked_kinds(self, kinds: Sequence[str]) -> tuple[str, ...]:
        kinds = tuple(map(plain, kinds)) if isinstance(kinds, Iterable) and not isinstance(kinds, str) else (kinds,)
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

        model = getattr(self._model.live, "model", self.oracle)
        return {
            "macem": macem.__version__,
            "model": f"{type(model).__module__}.{type(model).__qualname__}",
            "path": self.describe(),
            "classes": self.classes.tolist(),
            "kinds": list(kinds),
            "target": target,
            "cutoff": self.cutoff,
            "seed": seed,
            "options": self.options.as_dict(),
            "background": self.features.fingerprint,
            "n_background": self.features.n_background,
            "n_rows": len(done),
            "n_queries": sum(contrast.n_queries for one in done for contrast in one.contrasts),
            "seconds": seconds,
            "versions": _versions(),
        }


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


def _sample(X: Any, features: Features) -> Any:
    """Rows spread evenly over a table, and the first of many levels, frozen ones too: their sensitivity is asked."""
    n = len(X)
    if n <= COMPARED_ROWS:
        return X
    cells = X.iloc if hasattr(X, "iloc") else X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
    even = np.linspace(0, n - 1, COMPARED_ROWS).astype(np.int64)
    shown = [pd.Series(cells[:, at]) for at, levels in enumerate(features.levels) if levels is not None]
    each = max(1, LEVEL_ROWS // max(1, len(shown)))
    first = [np.flatnonzero(~column.duplicated() & column.notna())[:each] for column in shown]
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
