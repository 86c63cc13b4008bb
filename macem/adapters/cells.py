"""Cells: the parts of one user column within which every question of every tree has one answer.

A column of categories has a cell for each value of its vocabulary and one for all others. A column of numbers is cut
where an answer changes, which bisection over its numbers finds; many thresholds of many columns are looked for at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macem.adapters.number_line import NumberLine
from macem.adapters.probing import B1, Probe
from macem.adapters.transformers import NotColumnwise
from macem.adapters.vocabularies import REFUSED
from macem.kernel import F8, I8

__all__ = ["Cells", "number_cells", "vocabulary_cells"]

GRID = 512  # numbers that a column is first looked at with
SECANTS = 3  # interpolations before the search for a threshold widens step by step
GROWTH = 8  # factor by which it widens
BATCH = 1 << 22  # numbers that are transformed at a time
LIMITS = (np.finfo(np.float64).max, 1e38, 1e15)  # numbers up to the first that the transformers take are looked at


@dataclass(frozen=True)
class Cells:
    """The parts of one user column that the model can tell apart.

    Attributes
    ----------
    upper : ndarray of float64, shape (n_cells,), or None
        Largest number of each cell, in order; None where the cells are the entries of a vocabulary and the unseen.
    values : dict of int to ndarray
        Of each column behind the transformers that the user's feeds: its value in each cell, and last that of a
        missing value.
    """

    upper: F8 | None
    values: dict[int, F8]


def vocabulary_cells(
    probe: Probe,
    types: Sequence[np.dtype[Any]],
    feeds: Mapping[int, list[int]],
    missing_codes: F8,
    missing: B1,
) -> tuple[dict[int, dict[Any, int]], B1, dict[int, Cells]]:
    """Number the values of every vocabulary, and ask for all of them, all columns at once."""
    sources = sorted(feeds)
    none_codes, none = probe.ask_none(sources, types)
    unseen_codes, unseen = probe.ask_unseen(sources, types)
    known = {source: probe.known_values(source) for source in sources}
    n_rows = max((values.size for values in known.values()), default=0)
    cycled = {source: np.resize(values, n_rows) for source, values in known.items() if values.size}
    codes = probe.ask(probe.table(cycled, n_rows, types))[0] if n_rows else np.zeros((0, len(probe.columns)))
    vocabularies, cells = {}, {}
    for source, columns in feeds.items():
        vocabulary = {value: code for code, value in enumerate(known[source].tolist())}
        rows = list(codes[: len(vocabulary)])
        alike = np.array_equal(none_codes[columns], missing_codes[columns], equal_nan=True)
        if none[source] != missing[source] or not alike:
            vocabulary[None] = len(vocabulary) if none[source] else REFUSED
            rows.append(none_codes)
        vocabularies[source] = vocabulary
        rows.append(unseen_codes)
        cells[source] = Cells(None, {column: np.array([row[column] for row in rows]) for column in columns})
    return vocabularies, unseen, cells


def number_cells(
    probe: Probe, types: Sequence[np.dtype[Any]], feeds: Mapping[int, list[int]], targets: Mapping[int, F8]
) -> dict[int, Cells]:
    """Cut columns of numbers where an answer changes."""
    if not feeds:
        return {}
    search = _Search(probe, types, sorted(feeds))
    grids = {source: _with_breaks(search.lines[source], probe.sources.breaks.get(source, [])) for source in feeds}
    sources = np.repeat(list(grids), [grid.size for grid in grids.values()])
    codes, numbers = search.ask(sources, np.concatenate(list(grids.values())), None)
    keys = np.concatenate(list(grids.values()))
    tasks: list[list[NDArray[Any]]] = []
    for source, columns in feeds.items():
        mine = np.flatnonzero(sources == source)
        for column in columns:
            left = codes[mine, column] <= targets[column][:, None]
            which, turn = np.nonzero(left[:, 1:] != left[:, :-1])
            size = which.size
            tasks.append([np.full(size, source), np.full(size, column), targets[column][which], mine[turn]])
    task_source, task_column, target, place = (np.concatenate(part) for part in zip(*tasks, strict=True))
    ends = np.stack([numbers[place, task_column], numbers[place + 1, task_column]])
    found = search.cut(task_source, task_column, target, keys[place], keys[place + 1], ends)
    cuts = {}
    for source in feeds:
        line = search.lines[source]
        own = np.append(found[task_source == source], _break_keys(line, probe.sources.breaks.get(source, [])))
        cuts[source] = np.unique(own[(own >= line.low) & (own < line.high)])
    return _checked_cells(search, cuts, feeds, targets)


def _with_breaks(line: NumberLine, breaks: Sequence[float]) -> I8:
    """Keys to begin with: over the whole line, close together near zero, and on both sides of each break."""
    double = NumberLine(np.dtype(float), LIMITS[0])
    spread = line.keys(double.numbers(np.linspace(double.low, double.high, GRID).astype(np.int64)))
    cuts = _break_keys(line, breaks)
    return np.unique(np.clip(np.concatenate([spread, cuts, cuts + 1]), line.low, line.high))


def _break_keys(line: NumberLine, breaks: Sequence[float]) -> I8:
    """Last keys before and at each break."""
    at = line.keys(np.array(breaks, dtype=np.float64))
    return np.concatenate([at - 1, at])


def _checked_cells(
    search: _Search, cuts: Mapping[int, I8], feeds: Mapping[int, list[int]], targets: Mapping[int, F8]
) -> dict[int, Cells]:
    """Ask for the largest number of each cell, and make sure that the others of the cell are answered alike."""
    keys: dict[int, I8] = {}
    for source, ends in cuts.items():
        line = search.lines[source]
        others = np.append(line.low, ends + 1)
        if source in search.probe.sources.rough:
            others = np.append(others, np.clip(ends[:, None] + np.arange(-4, 6), line.low, line.high))
        keys[source] = np.concatenate([np.append(ends, line.high), others])
    sources = np.repeat(list(keys), [own.size for own in keys.values()])
    codes, _ = search.ask(sources, np.concatenate(list(keys.values())), None)
    cells = {}
    for source, ends in cuts.items():
        n_cells = ends.size + 1
        own = codes[sources == source]
        home = np.searchsorted(ends, keys[source][n_cells:])
        for column in feeds[source]:
            rank = np.searchsorted(targets[column], own[:, column])
            if (rank[:n_cells][home] != rank[n_cells:]).any():
                name = search.probe.name(source)
                raise NotColumnwise(f"column {name!r} passes a function that is not monotone to the last bit")
        upper = search.lines[source].numbers(keys[source][:n_cells]).astype(np.float64)
        cells[source] = Cells(upper, {column: own[:n_cells, column] for column in feeds[source]})
    return cells


# Bisection ------------------------------------------------------------------------------------------------------------


class _Search:
    """Bisection for many thresholds of many columns at once; a row of a table serves one threshold of each column."""

    def __init__(self, probe: Probe, types: Sequence[np.dtype[Any]], sources: Sequence[int]) -> None:
        self.probe = probe
        self.types = types
        for limit in LIMITS:
            self.lines = {source: NumberLine(types[source], limit) for source in sources}
            try:
                ends = [np.array([line.low, line.high]) for line in self.lines.values()]
                self.ask(np.repeat(sources, 2), np.concatenate(ends), None)
                return
            except NotColumnwise as error:
                refusal = error
        raise refusal

    def ask(self, sources: I8, keys: I8, columns: I8 | None) -> tuple[F8, F8]:
        """Codes and numbers behind the transformers where a column has the number of a key, the others their usual one.

        Parameters
        ----------
        sources, keys : ndarray of int, shape (n,)
        columns : ndarray of int, shape (n,), or None
            The transformed column of interest; None for all.
        """
        from sklearn import config_context

        rank = np.empty(sources.size, np.int64)
        for source in np.unique(sources):
            mine = sources == source
            rank[mine] = np.arange(np.count_nonzero(mine))
        n_columns = len(self.probe.columns)
        shape = (sources.size,) if columns is not None else (sources.size, n_columns)
        codes, numbers = np.empty(shape), np.empty(shape)
        step = max(1, BATCH // max(n_columns, self.probe.n_features))
        for first in range(0, int(rank.max(initial=-1)) + 1, step):
            now = np.flatnonzero((rank >= first) & (rank < first + step))
            n_rows = int(rank[now].max()) - first + 1
            values = {}
            for source in np.unique(sources[now]).tolist():
                mine = now[sources[now] == source]
                number = self.lines[source].numbers(keys[mine])
                values[source] = np.append(number, np.repeat(number[-1:], n_rows - mine.size))
            with config_context(assume_finite=True):  # ask with numbers that no user would
                answers = self.probe.ask(self.probe.table(values, n_rows, self.types))
            rows = rank[now] - first
            for whole, answer in zip((codes, numbers), answers, strict=True):
                whole[now] = answer[rows] if columns is None else answer[rows, columns[now]]
        return codes, numbers

    def cut(self, sources: I8, columns: I8, targets: F8, low: I8, high: I8, ends: F8) -> I8:
        """Find the last key before the answer to "is the code at most the target?" changes.

        It differs between `low` and `high`. `ends` holds the numbers behind the transformers at both, shape (2, n);
        they guide the search, and decide nothing.
        """
        low, high, ends = low.copy(), high.copy(), ends.copy()
        aim = targets
        if self.probe.single:  # the code turns half way to the next float32
            aim = (targets + np.nextafter(targets.astype(np.float32), np.float32(np.inf))) / 2
        first_left = self._left(sources, low, columns, targets)[0]
        step, side = np.ones(low.size, np.int64), np.zeros(low.size, np.int64)
        turn = 0
        while (active := np.flatnonzero(high - low > 1)).size:
            bottom, top, width = low[active], high[active], high[active] - low[active]
            middle = bottom + width // 2
            if turn < SECANTS:
                key = self._interpolate(sources[active], bottom, top, ends[:, active], aim[active], middle)
            else:
                near = np.where(side[active] < 0, bottom + step[active], top - step[active])
                key = np.where(step[active] < width // 2, near, middle)
            key = np.clip(key, bottom + 1, top - 1)
            left, number = self._left(sources[active], key, columns[active], targets[active])
            up = left == first_left[active]
            low[active] = np.where(up, key, bottom)
            high[active] = np.where(up, top, key)
            ends[0, active] = np.where(up, number, ends[0, active])
            ends[1, active] = np.where(up, ends[1, active], number)
            turned = side[active] * np.where(up, -1, 1) < 0
            side[active] = np.where(up, -1, 1)
            if turn >= SECANTS:
                step[active] = np.where(turned, 1 << 60, np.minimum(step[active], 1 << 56) * GROWTH)
            turn += 1
        return low

    def _left(self, sources: I8, keys: I8, columns: I8, targets: F8) -> tuple[B1, F8]:
        codes, numbers = self.ask(sources, keys, columns)
        return codes <= targets, numbers

    def _interpolate(self, sources: I8, low: I8, high: I8, ends: F8, aim: F8, middle: I8) -> I8:
        keys = middle.copy()
        with np.errstate(all="ignore"):
            for source in np.unique(sources):
                mine = np.flatnonzero(sources == source)
                line = self.lines[int(source)]
                bottom = line.numbers(low[mine]).astype(np.float64)
                top = line.numbers(high[mine]).astype(np.float64)
                share = (aim[mine] - ends[0, mine]) / (ends[1, mine] - ends[0, mine])
                guess = bottom + share * (top - bottom)
                good = np.isfinite(guess) & (share >= 0.0) & (share <= 1.0)
                keys[mine] = np.where(good, line.keys(np.where(good, guess, 0.0)), middle[mine])
        return keys
