"""Measure the speed bars: ``python benchmarks/speed.py`` writes results/speed.csv; ``--quick`` only shows that it runs.

Everything runs on one thread, unless a row says otherwise. A candidate and its baseline take turns in the same process,
and medians are compared, so that a busy machine slows both. The table is also compared with other runtimes of tree
ensembles (extra `runtimes`); one that is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from threadpoolctl import threadpool_limits
from xgboost import XGBClassifier

import macem
from macem import kernel, problem, search
from macem.datasets.models import credit_forest

RESULTS = Path(__file__).resolve().parent / "results" / "speed.csv"
N_QUERIES = 51  # of a search step: the centre and 50 directions
STEP_RADIUS = 0.1  # in standard deviations
MIN_SECONDS = 0.005  # calls shorter than this are timed in loops


class Measurement(NamedTuple):
    """A line of speed.csv; the bar is what the ratio should be."""

    what: str
    model: str
    rows: int
    ratio: float
    baseline: str
    bar: str


def rf(**options: Any) -> RandomForestClassifier:
    return RandomForestClassifier(n_jobs=1, random_state=0, **options)


def xgb(n_trees: int) -> XGBClassifier:
    return XGBClassifier(n_estimators=n_trees, n_jobs=1, random_state=0)


def lgbm(n_trees: int) -> LGBMClassifier:
    return LGBMClassifier(n_estimators=n_trees, n_jobs=1, random_state=0, verbosity=-1)


MODELS: dict[str, Callable[[], Any]] = {
    "random forest 100": rf,
    "random forest 100, depth 5": lambda: rf(max_depth=5),
    "XGBoost 100": lambda: xgb(100),
    "XGBoost 500": lambda: xgb(500),
    "LightGBM 500": lambda: lgbm(500),
}
TABLE_BARS = {
    "random forest 100": {50: "≥ 30", 1000: "≥ 4"},
    "random forest 100, depth 5": {50: "≥ 150", 1000: "≥ 20"},
    "XGBoost 100": {50: "≥ 10", 1000: "≥ 3"},
    "XGBoost 500": {50: "≥ 6", 1000: "≥ 3"},
    "LightGBM 500": {50: "≥ 4.5", 1000: "≥ 3.5"},
}
STEP_BARS = {"random forest 100": "≥ 3", "XGBoost 500": "≥ 5", "LightGBM 500": "≥ 6"}
ROW_BARS = {"random forest 100": "≤ 1.5", "XGBoost 100": "≤ 10"}


def seconds(call: Callable[[], Any], n_loops: int = 1) -> float:
    began = time.perf_counter()
    for _ in range(n_loops):
        call()
    return (time.perf_counter() - began) / n_loops


def times_slower(call: Callable[[], Any], than: Callable[[], Any], repetitions: int) -> float:
    """How many times the median of `than` the median of `call` takes, in turns, after one call of each."""
    calls = (call, than)
    loops = [max(1, round(MIN_SECONDS / max(seconds(one), 1e-7))) for one in calls]
    loops = [max(1, round(MIN_SECONDS / max(seconds(one), 1e-7))) for one in calls] if max(loops) == 1 else loops
    taken = [[seconds(one, n) for one, n in zip(calls, loops, strict=True)] for _ in range(repetitions)]
    mine, theirs = (statistics.median(column) for column in zip(*taken, strict=True))
    return mine / theirs


@numba.njit(error_model="numpy")
def search_steps(
    table: Any, axes: Any, plan: Any, weights: Any, problems: Any, points: Any, margins: Any, reached: Any
) -> None:
    """Answer one search step of every problem as the compiled search does."""
    nearby = kernel.nearby_for(table, points.shape[1], points.shape[2])
    for p in range(points.shape[0]):
        kernel.answer_numbers(table, axes, plan, weights, problems, p, points[p], nearby, margins, reached)


class OnTable:
    """A model as its table, and rows as problems of it."""

    def __init__(self, model: Any, X: np.ndarray) -> None:
        self.explainer = macem.Explainer(model, X)
        copied = self.explainer._model.copy
        self.table, self.axes, self.plan = copied.table, copied.axes, copied.plan
        self.weights = problem.weights_from(self.explainer.options)

    def problems(self, X: np.ndarray) -> kernel.Problems:
        predicted = np.zeros(len(X), np.int64)
        return problem.pose(
            self.explainer.features, self.plan, X, X, predicted, ("negative",), target=None, away_from_base=True
        )

    def plain(self, problems: kernel.Problems, points: np.ndarray) -> Callable[[], Any]:
        """The table's answers to `points` (P, queries, d), row by row."""
        rows = np.repeat(np.arange(points.shape[0]), points.shape[1])
        numbers = points.reshape(rows.size, -1)
        return lambda: search.ask_table(self.table, self.axes, self.plan, problems, numbers, rows)

    def steps(self, problems: kernel.Problems, points: np.ndarray) -> Callable[[], None]:
        """The same as search steps, whose points lie close together."""
        margins, reached = np.empty(points.shape[1]), np.empty(points.shape[1], bool)
        return lambda: search_steps(self.table, self.axes, self.plan, self.weights, problems, points, margins, reached)


def onnxruntime_question(model: Any) -> Callable[[np.ndarray], Callable[[], Any]]:
    """From rows to the question, in float32, as the converters write thresholds."""
    import onnxmltools
    import onnxruntime
    import skl2onnx
    from onnxmltools.convert.common.data_types import FloatTensorType

    columns = [("X", FloatTensorType([None, model.n_features_in_]))]
    if isinstance(model, XGBClassifier):
        graph = onnxmltools.convert_xgboost(model, initial_types=columns)
    elif isinstance(model, LGBMClassifier):
        graph = onnxmltools.convert_lightgbm(model, initial_types=columns, zipmap=False)
    else:
        graph = skl2onnx.to_onnx(model, np.zeros((1, model.n_features_in_), np.float32), options={"zipmap": False})
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return lambda rows: partial(session.run, ["probabilities"], {"X": rows.astype(np.float32)})


def treelite_model(model: Any) -> Any:
    import treelite

    if isinstance(model, XGBClassifier):
        return treelite.frontend.from_xgboost(model.get_booster())
    if isinstance(model, LGBMClassifier):
        return treelite.frontend.from_lightgbm(model.booster_)
    return treelite.sklearn.import_model(model)


def gtil_question(model: Any) -> Callable[[np.ndarray], Callable[[], Any]]:
    """From rows to the question of treelite's interpreter, in the precision of the model's thresholds."""
    import treelite

    trees = treelite_model(model)
    return lambda rows: partial(treelite.gtil.predict, trees, rows.astype(trees.input_type), nthread=1)


def tl2cgen_question(model: Any) -> Callable[[np.ndarray], Callable[[], Any]]:
    """From rows to the question of the trees compiled by gcc, in the precision of the model's thresholds."""
    import tl2cgen

    trees = treelite_model(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trees.so"
        # -O1: as fast as tl2cgen's -O3 or with its quantized thresholds, and compiled in half the time
        tl2cgen.export_lib(trees, "gcc", path, params={"parallel_comp": 8}, options=["-O1"])
        compiled = tl2cgen.Predictor(path, nthread=1)

    def question(rows: np.ndarray) -> Callable[[], Any]:
        numbers = rows.astype(trees.input_type)
        return lambda: compiled.predict(tl2cgen.DMatrix(numbers))

    return question


RUNTIMES = {
    "onnxruntime": (onnxruntime_question, ("onnxruntime", "onnxmltools", "skl2onnx")),
    "treelite GTIL": (gtil_question, ("treelite",)),
    "tl2cgen": (tl2cgen_question, ("treelite", "tl2cgen")),
}


def tables(models: dict[str, Any], X: np.ndarray, repetitions: int) -> Iterator[Measurement]:
    """The table asked for many rows against the library's own call, and against other runtimes of its trees."""
    what = "table asked, times faster"
    runtimes = {name: question for name, (question, needs) in RUNTIMES.items() if all(map(find_spec, needs))}
    for name, model in models.items():
        table = OnTable(model, X)
        questions = {runtime: question(model) for runtime, question in runtimes.items()}
        for n, bar in TABLE_BARS[name].items():
            rows = np.ascontiguousarray(X[:n])
            ask = table.plain(table.problems(rows), rows[:, None, :])
            ratio = times_slower(partial(model.predict_proba, rows), ask, repetitions)
            yield Measurement(what, name, n, ratio, "its predict_proba", bar)
            for runtime, question in questions.items():
                yield Measurement(what, name, n, times_slower(question(rows), ask, repetitions), runtime, "")


def steps(models: dict[str, Any], X: np.ndarray, repetitions: int) -> Iterator[Measurement]:
    """The 51 points of a search step, answered together and one by one."""
    rows = np.ascontiguousarray(X[:50])
    directions = np.random.default_rng(0).standard_normal((len(rows), N_QUERIES, X.shape[1]))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    directions[:, 0] = 0.0
    points = rows[:, None, :] + STEP_RADIUS * X.std(axis=0) * directions
    for name, bar in STEP_BARS.items():
        table = OnTable(models[name], X)
        problems = table.problems(rows)
        ratio = times_slower(table.plain(problems, points), table.steps(problems, points), repetitions)
        yield Measurement(
            "search step of 51 points, times faster", name, len(rows), ratio, "the table, point by point", bar
        )


def one_row(models: dict[str, Any], X: np.ndarray, repetitions: int) -> Iterator[Measurement]:
    """One row's explanation, both kinds, in calls of the model for that row."""
    for name, bar in ROW_BARS.items():
        model, explainer = models[name], macem.Explainer(models[name], X)
        ratios = [
            times_slower(
                lambda row=row, explainer=explainer: explainer.explain(row),
                lambda row=row, model=model: model.predict_proba(row),
                min(repetitions, 3),
            )
            for row in (X[at : at + 1] for at in range(repetitions))
        ]
        yield Measurement(
            "one row explained, times its cost",
            name,
            1,
            statistics.median(ratios),
            "its predict_proba of that row",
            bar,
        )


class Timed:
    """A model as a black box that counts the time spent in it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.seconds = 0.0

    def __call__(self, X: Any) -> Any:
        began = time.perf_counter()
        answer = self.model.predict_proba(X)
        self.seconds += time.perf_counter() - began
        return answer


def paths(model: Any, X: np.ndarray, n: int, repetitions: int) -> Iterator[Measurement]:
    """Compiled against lockstep over the model's own predict_proba, and lockstep's time outside of it."""
    name = "random forest 100"
    box = Timed(model)
    asking, reading = macem.Explainer(box, X), macem.Explainer(model, X)
    reading.explain(X[:n])
    asking.explain(X[:1])
    compiled, lockstep, outside = [], [], []
    for _ in range(repetitions):
        compiled.append(seconds(lambda: reading.explain(X[:n])))
        box.seconds = 0.0
        lockstep.append(seconds(lambda: asking.explain(X[:n])))
        outside.append(1.0 - box.seconds / lockstep[-1])
    ratio = statistics.median(lockstep) / statistics.median(compiled)
    yield Measurement(
        "rows explained on the table, times faster", name, n, ratio, "lockstep over its predict_proba", "≥ 50"
    )
    yield Measurement(
        "lockstep, share of time outside predict_proba", name, n, statistics.median(outside), "the whole call", "≤ 0.15"
    )


def two_jobs(model: Any, X: np.ndarray, n: int, repetitions: int) -> Iterator[Measurement]:
    """Two threads on two cores; each part calls the model once, under the interpreter's lock, whatever its rows."""
    explainer = macem.Explainer(model, X)
    ratio = times_slower(lambda: explainer.explain(X[:n]), lambda: explainer.explain(X[:n], n_jobs=2), repetitions)
    yield Measurement("rows explained with n_jobs=2, times faster", "random forest 100", n, ratio, "n_jobs=1", "≥ 1.7")


def pipeline(n: int, repetitions: int) -> Iterator[Measurement]:
    """German Credit on raw columns: the pipeline folded into a table, against asking it."""
    X, y = macem.datasets.load_german_credit()
    model = credit_forest(X, y)
    asking, folded = macem.Explainer(model.predict_proba, X), macem.Explainer(model, X)
    rows = X.head(n)
    ratio = times_slower(lambda: asking.explain(rows), lambda: folded.explain(rows), repetitions)
    yield Measurement(
        "rows explained with the pipeline folded, times faster",
        "German Credit pipeline",
        n,
        ratio,
        "the pipeline as a black box",
        "",
    )


IMPORT = """
import time
began = time.process_time()
import macem
print(time.process_time() - began)
import sys
loaded = {"sklearn", "xgboost", "lightgbm", "catboost"} & set(sys.modules)
assert not loaded, loaded
"""
FIRST = """
import time
import numpy as np
from sklearn.ensemble import RandomForestClassifier
X = np.random.default_rng(0).standard_normal((500, 20))
model = RandomForestClassifier(n_jobs=1, random_state=0).fit(X, X[:, 0] > X[:, 1])
import macem
began, began_cpu = time.perf_counter(), time.process_time()
macem.Explainer(model, X).explain(X[:1])
print(time.perf_counter() - began, time.process_time() - began_cpu)
"""
FIT = """
import resource, sys
import numpy as np, pandas as pd
import macem, macem.explainer
def answer(X):
    positive = (X["number 0"].to_numpy() > 0).astype(float)
    return np.column_stack([1 - positive, positive])
n, random = int(sys.argv[1]), np.random.default_rng(0)
macem.Explainer(answer, pd.DataFrame({"number 0": [0.0, 1.0]}))
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
before = resident()
columns = {f"number {at}": random.standard_normal(n) for at in range(12)}
columns |= {f"count {at}": random.integers(0, 100, n) for at in range(4)}
levels = [f"level {at}" for at in range(8)]
for at in range(4):
    columns[f"category {at}"] = pd.Series(pd.Categorical.from_codes(random.integers(0, 8, n), levels)).astype(str)
X = pd.DataFrame(columns, copy=False)
size = X.memory_usage(deep=True).sum()
macem.Explainer(answer, X)
with open("/proc/self/status") as file:  # ru_maxrss begins at what the process that started this one had
    peak = next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))
print((peak - before) / size)
"""


def printed(script: str, *arguments: str, **environment: str) -> list[float]:
    """The numbers that a script prints in a fresh process."""
    answer = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return [float(number) for number in answer.stdout.split()]


def first_calls(repetitions: int) -> Iterator[Measurement]:
    """The first explanation in a fresh process, without and with machine code on disk."""
    with tempfile.TemporaryDirectory() as folder:
        cold = printed(FIRST, NUMBA_CACHE_DIR=folder)[1]
        warm = statistics.median(printed(FIRST, NUMBA_CACHE_DIR=folder)[0] for _ in range(repetitions))
    name = "random forest 100"
    yield Measurement("first explanation, machine code on disk, seconds", name, 1, warm, "none", "≤ 2")
    yield Measurement("first explanation, nothing on disk, seconds of CPU", name, 1, cold, "none", "≤ 30")


def imports_and_fits(n_background: int, repetitions: int) -> Iterator[Measurement]:
    """What happens once: import and fit."""
    imports = statistics.median(printed(IMPORT)[0] for _ in range(repetitions))
    yield Measurement("import macem, seconds of CPU", "none", 0, imports, "none", "≤ 0.5")
    if sys.platform == "linux":
        memory = printed(FIT, str(n_background))[0]
        yield Measurement(
            "fit on 20 mixed columns, times its memory at the peak", "none", n_background, memory, "the table", "≤ 3"
        )


def measurements(quick: bool) -> Iterator[Measurement]:
    repetitions = 1 if quick else 5
    X, y = make_classification(1000 if quick else 5000, 20, n_informative=10, random_state=0)
    X = np.ascontiguousarray(X)
    models = {name: make().fit(X, y) for name, make in MODELS.items()}
    yield from steps(models, X, 4 * repetitions)  # these two take milliseconds, and few of them spread by a third
    yield from one_row(models, X, 3 * repetitions)
    yield from paths(models["random forest 100"], X, 2 if quick else 50, 1 if quick else 3)
    yield from two_jobs(models["random forest 100"], X, 4 if quick else 200, repetitions)
    yield from pipeline(2 if quick else 20, 1)
    yield from tables(models, X, repetitions)  # after n_jobs=2, which runtimes that stay loaded slow to 1.05
    yield from imports_and_fits(10_000 if quick else 1_000_000, min(repetitions, 3))
    if not quick:  # compiling everything takes the time that a quick run has
        yield from first_calls(3)


def main() -> None:
    """Measure, print, and write the file unless quick."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and without repetitions; writes nothing")
    quick = parser.parse_args().quick
    results = []
    RESULTS.parent.mkdir(exist_ok=True)
    with threadpool_limits(1):
        for result in measurements(quick):
            print(
                f"{result.what}; {result.model}; {result.rows} rows; against {result.baseline}: {result.ratio:.3g} "
                f"({result.bar or 'no bar'})",
                flush=True,
            )
            results.append(result)
            if not quick:  # after each, so that a run that is cut short keeps what it has
                pd.DataFrame(results).to_csv(RESULTS, index=False, float_format="%.4g", lineterminator="\n")


if __name__ == "__main__":
    main()
