"""Corners of the kernel that whole explanations seldom visit."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from macem import refine
from macem.search import Limits, Work, begin
from tests.test_search import Setting, setting


@pytest.fixture(scope="module", params=["fma", "ssa"])
def forest(request: pytest.FixtureRequest) -> Setting:
    return setting(request.param)


LEVELS = 2  # the feature of levels in `setting`


def test_without_a_place_for_machine_code_there_is_none(
    plain_kernel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def njit(**options: Any) -> Any:
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(plain_kernel, "numba", SimpleNamespace(njit=njit))
    assert plain_kernel.compiled(len) is len
    assert [options.get("cache", False) for options in asked] == [True, False]
    assert numba.njit is not njit


def test_the_nearest_level_is_a_feasible_one(plain_kernel: ModuleType) -> None:
    s = setting("fma")
    first = s.plan.feature[LEVELS].first_level
    places = s.plan.level["place"][first:]
    random = np.random.default_rng(0)
    for _ in range(60):
        allowed = s.problems.allowed.copy()
        allowed[0, first:] = random.random(places.size) < 0.4
        own = int(random.integers(places.size))
        allowed[0, first + own] = True
        problems = s.problems._replace(allowed=allowed, cell=s.problems.cell.copy())
        problems.cell["own"][0, LEVELS], problems.cell["place"][0, LEVELS] = own, places[own]
        place = random.uniform(places.min() - 0.1, places.max() + 0.1)
        level = int(plain_kernel.nearest_level(s.plan, problems, 0, LEVELS, place))
        assert allowed[0, first + level]
        assert abs(places[level] - place) == np.abs(places[allowed[0, first:]] - place).min()


def test_a_level_never_seen_stays_where_a_simplex_draws_a_forbidden_one(plain_kernel: ModuleType) -> None:
    s = setting("ssa")
    problems = s.problems._replace(allowed=s.problems.allowed.copy(), cell=s.problems.cell.copy())
    problems.cell["own"][0, LEVELS], problems.cell["movable"][0, LEVELS] = -1.0, True
    first = s.plan.feature[LEVELS].first_level
    problems.allowed[0, first:] = [True, False, False, False, False]
    point = np.zeros(s.plan.feature[-1].first)
    point[s.plan.feature[LEVELS].first + np.arange(2)] = [-1.0, 1.0]  # from the base's corner to the next
    numbers = np.empty(3)
    plain_kernel.decode_point(s.plan, problems, 0, point, np.zeros((1, 3)), 0, numbers)
    assert numbers[LEVELS] == -1.0


@pytest.mark.parametrize("own", [3.0, -1.0])
def test_what_may_not_move_is_projected_to_itself(plain_kernel: ModuleType, own: float) -> None:
    s = setting("ssa")
    problems = s.problems._replace(cell=s.problems.cell.copy())
    problems.cell["own"][0, LEVELS], problems.cell["movable"][0, LEVELS] = own, False
    block = slice(s.plan.feature[LEVELS].first, s.plan.feature[-1].first)
    point = np.random.default_rng(0).normal(size=block.stop)
    plain_kernel.project(s.plan, problems, 0, point, np.empty(block.stop))
    base = int(s.plan.feature[LEVELS].base_value)
    corner = np.zeros(5)
    if own >= 0:
        corner[int(own)] += 1.0
        corner[base] -= 1.0
    assert_array_equal(point[block], corner)


@pytest.mark.parametrize("step", [1.0, -1.0])
def test_an_end_between_two_numbers_of_the_grid_may_be_the_only_one_in_a_cell(
    plain_kernel: ModuleType, forest: Setting, step: float
) -> None:
    plan, problems = forest.plan._replace(feature=forest.plan.feature.copy()), forest.problems
    problems = problems._replace(bound=problems.bound.copy(), cell=problems.cell.copy())
    plan.feature["grid"][0], problems.cell["reference"][0, 0] = 1.0, 0.0
    end = 2.25 * step
    problems.bound[0, 0] = [sorted([0.0, end]), [1.0, 0.0]]

    def nearest(near: float, far: float) -> tuple[float, float, bool]:
        low, high = sorted([near * step, far * step])
        found: tuple[float, float, bool] = plain_kernel.nearest_in_cell(forest.axes, plan, problems, 0, 0, low, high)
        return found

    assert nearest(2.125, 2.5) == (end, 2.25, True)  # 3 would be the next
    assert nearest(1.5, 2.5) == (2.0 * step, 2.0, True)
    assert not nearest(2.125, 2.1875)[2]
    assert not nearest(2.5, 3.5)[2]


def test_a_model_of_one_class_has_no_rival(plain_kernel: ModuleType, forest: Setting) -> None:
    problems = forest.problems._replace(row=forest.problems.row.copy())
    for keep, expected in ((1, (np.inf, True)), (0, (-np.inf, False))):
        problems.row["goal"][0], problems.row["keep"][0] = 0, keep
        assert plain_kernel.margin_of(forest.weights, problems, 0, np.ones(1)) == expected


@pytest.mark.parametrize("bound", [-1e9, -12.5, 0.0, 3.0, 1e9, 2.0**31 + 1.0])
@pytest.mark.parametrize("grid", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("single", [0, 1])
def test_numbers_beside_a_bound_hold_in_float32_too(
    plain_kernel: ModuleType, forest: Setting, single: int, grid: float, bound: float
) -> None:
    plan, axes = forest.plan._replace(feature=forest.plan.feature.copy()), forest.axes._replace(single=single)
    plan.feature["grid"][0] = grid
    bound = float(np.float32(bound)) if single else bound
    above, below = plain_kernel.number_above(plan, 0, bound), plain_kernel.number_at_most(axes, plan, 0, bound)
    assert min(above, float(np.float32(above))) > bound >= float(np.float32(below))
    assert single or bound >= below
    if grid:  # the next numbers of the grid are on the other side
        assert above == round(above * grid) / grid
        assert below == round(below * grid) / grid
        before, after = (round(above * grid) - 1.0) / grid, (round(below * grid) + 1.0) / grid
        assert min(before, float(np.float32(before))) <= bound
        assert max(float(np.float32(after)), float(np.float32(after)) if single else after) > bound
    else:
        assert above - below <= 2 * float(np.spacing(np.float32(abs(bound))))


def test_a_decimal_that_is_read_as_a_bound_is_at_most_that(plain_kernel: ModuleType, forest: Setting) -> None:
    plan = forest.plan._replace(feature=forest.plan.feature.copy())
    plan.feature["grid"][0] = 10.0
    bound = float(np.float32(-0.4))  # below -0.4
    found = [plain_kernel.number_at_most(forest.axes._replace(single=single), plan, 0, bound) for single in (0, 1)]
    assert found == [-0.5, -0.4]


def listed(plain_kernel: ModuleType, s: Setting, scratch: Any, p: int) -> set[Any]:
    """What the axis profile of a row says of its moves; sums in another order differ in their last digits."""
    own = s.problems.cell["own"][p].copy()
    n_moves, _, _ = s.profile(plain_kernel, p, own, np.inf, scratch)
    names = ["feature", "number", "probability"]
    return {(move[0], move[1], round(move[2], 9)) for move in scratch.moves[names][:n_moves].tolist()}


def test_branches_that_part_are_walked_in_later_batches(plain_kernel: ModuleType, forest: Setting) -> None:
    s = forest
    ample, scarce = (refine.scratch_for(s.table, s.axes, s.plan) for _ in range(2))
    scarce = scarce._replace(walked=scarce.walked[:2])
    problems = s.problems._replace(allowed=np.ones_like(s.problems.allowed), cell=s.problems.cell.copy())
    problems.cell["movable"] = True
    free = replace(s, problems=problems)
    for p in range(len(s.problems.row)):
        assert listed(plain_kernel, free, scarce, p) == listed(plain_kernel, free, ample, p)


def test_nothing_is_learned_from_a_state_without_a_margin(plain_kernel: ModuleType, forest: Setting) -> None:
    beam = refine._beam(1, 4, 3)
    plain_kernel.start_beam(forest.plan, forest.problems, forest.weights, beam, 0, 0)
    moves = plain_kernel.records(plain_kernel.MOVE, 2, margin=-1.0, cost=0.5)
    plain_kernel.absorb_moves(beam, 0, 0, np.inf, moves, 2, -np.inf)
    assert np.isinf(beam.child["cost"]).all()
    plain_kernel.absorb_moves(beam, 0, 0, np.inf, moves, 2, -2.0)
    assert (beam.child["cost"] == 0.5).sum() == 4


def test_a_move_that_would_end_no_nearer_is_no_child(plain_kernel: ModuleType, forest: Setting) -> None:
    beam = refine._beam(1, 4, 3)
    plain_kernel.start_beam(forest.plan, forest.problems, forest.weights, beam, 0, 0)
    # of a missing margin of 1, half is left, and what the best costs would buy it for 0.5
    moves = plain_kernel.records(plain_kernel.MOVE, 2, feature=[0, 1], number=7.0, margin=-0.5, cost=[0.6, 0.4])
    plain_kernel.absorb_moves(beam, 0, 0, 1.0, moves, 2, -1.0)
    assert (beam.child["cost"] == 0.4).all()


def test_no_more_inward_states_than_the_beam_is_wide(plain_kernel: ModuleType, forest: Setting) -> None:
    work, _ = forest.work()
    work.best.numbers[:] = forest.problems.anchor + 1.0
    beam = refine._beam(1, 4, 3)
    assert plain_kernel.inward_states(forest.problems, beam, 0, 0, work.best) == 4


def refined(plain_kernel: ModuleType, s: Setting, work: Work, n_rounds: int = 12) -> Work:
    scratch = refine.scratch_for(s.table, s.axes, s.plan)
    beam, rounds = refine._beam(1, 8, 3), plain_kernel.Rounds(n_rounds, n_rounds, n_rounds)
    plain_kernel.refine_rows(
        s.table, s.axes, s.plan, s.weights, s.problems, work.best, beam, scratch, rounds, np.empty((0, 0))
    )
    return work


def test_no_state_is_asked_twice(plain_kernel: ModuleType, forest: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    profile, asked = plain_kernel.axis_moves, []

    def noted(table: Any, axes: Any, plan: Any, weights: Any, problems: Any, p: int, numbers: Any, *rest: Any) -> Any:
        asked.append((p, *numbers))
        return profile(table, axes, plan, weights, problems, p, numbers, *rest)

    monkeypatch.setattr(plain_kernel, "axis_moves", noted)
    refined(plain_kernel, forest, forest.work()[0])
    assert len(asked) == len(set(asked)) > len(forest.problems.row)
    asked.clear()
    monkeypatch.setattr(plain_kernel, "was_state", lambda *_: False)
    refined(plain_kernel, forest, forest.work()[0])
    assert len(asked) > len(set(asked))


def test_what_is_known_before_the_refinement_comes_nearer(plain_kernel: ModuleType, forest: Setting) -> None:
    s = forest
    work, _ = s.work()
    begin(work, s.plan, s.weights, s.ask)
    numbers, row = np.empty((40, 3)), work.best.row
    margins, reached = np.empty(40), np.empty(40, bool)
    for p in np.flatnonzero(~row["done"])[1:]:  # the first has none
        plain_kernel.draw_rows(s.plan, s.problems, p, np.random.default_rng(p).random((40, 4, 2)), numbers)
        rows = np.full(40, p)
        plain_kernel.judge_rows(s.weights, s.problems, rows, s.ask(numbers, rows), margins, reached)
        plain_kernel.keep_rows(s.plan, s.weights, s.problems, work.best, rows, numbers, reached)
    drawn = row["cost"].copy()
    refined(plain_kernel, s, work, n_rounds=1)
    assert (row["cost"] < drawn).sum() > 2
    assert not (row["cost"] > drawn).any()


def test_a_beam_goes_on_from_what_it_found_last(plain_kernel: ModuleType, forest: Setting) -> None:
    s = forest
    work, _ = s.work()
    beam, best, row = refine._beam(1, 4, 3), work.best, work.best.row

    def n_rounds(rounds: Any, found: dict[int, float]) -> int:
        row["cost"][1] = np.inf
        plain_kernel.start_beam(s.plan, s.problems, s.weights, beam, 0, 1)
        for number in range(1, 60):
            row["cost"][1] = found.get(number, row["cost"][1])
            best.numbers[1] = s.problems.anchor[1]  # so that no inward state follows
            child = s.problems.anchor[1].copy()
            child[0] += number
            plain_kernel.offer_child(beam, 0, child, 0.01, -0.1)
            plain_kernel.next_states(s.plan, s.weights, s.problems, beam, 0, 1, best, rounds)
            if beam.slot[0].n_states == 0:
                return number
        raise AssertionError("it does not end")

    first, hard, black_box = (
        plain_kernel.Rounds(*rounds) for rounds in (refine.ON_TABLE, refine.HARD, refine.BLACK_BOX)
    )
    assert n_rounds(first, {}) == n_rounds(black_box, {}) == 12
    assert n_rounds(hard, {}) == 48
    assert n_rounds(first, {3: 9.0}) == 3 + 5
    assert n_rounds(first, {3: 9.0, 8: 8.0, 12: 7.0}) == 12 + 5
    assert n_rounds(first, {number: 9.0 - 0.1 * number for number in range(1, 50, 4)}) == 48
    assert n_rounds(black_box, {11: 9.0}) == 12
    assert n_rounds(hard, {20: 9.0}) == 48


def test_a_joint_move_to_a_former_state_is_no_child(plain_kernel: ModuleType) -> None:
    beam = refine._beam(1, 4, 3)
    plain_kernel.clear_children(beam, 0)
    numbers = np.array([1.0, 2.0, 3.0])
    assert plain_kernel.becomes_state(beam, 0, plain_kernel.fingerprint_of(numbers))
    plain_kernel.offer_child(beam, 0, numbers, 0.5, -0.1)
    assert np.isinf(beam.child["cost"]).all()
    plain_kernel.offer_child(beam, 0, numbers + 1.0, 0.5, -0.1)
    assert (beam.child["cost"] == 0.5).all()


def test_states_beyond_what_is_remembered_may_come_again(plain_kernel: ModuleType) -> None:
    beam = refine._beam(1, 4, 3)
    beam = beam._replace(seen=beam.seen[:, :1])
    assert [plain_kernel.becomes_state(beam, 0, np.uint64(one)) for one in (7, 7, 8, 8, 7)] == [
        True, False, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("width", [4, 192])
def test_a_beam_of_any_width_remembers_all_its_outward_rounds(plain_kernel: ModuleType, width: int) -> None:
    beam = refine._beam(1, width, 3)
    fingerprints = [np.uint64(one) for one in range(1, refine.ON_TABLE.most * width + 1)]
    assert all(plain_kernel.becomes_state(beam, 0, one) for one in fingerprints)
    assert not any(plain_kernel.becomes_state(beam, 0, one) for one in fingerprints)


def test_the_fingerprint_of_a_move_follows_from_its_state(plain_kernel: ModuleType) -> None:
    before, after = np.array([0.5, -3.0, np.nan, 0.0]), np.array([0.5, 0.5, np.nan, -0.0])
    moved = plain_kernel.fingerprint_of_cell(1, -3.0) ^ plain_kernel.fingerprint_of_cell(1, 0.5)
    assert plain_kernel.fingerprint_of(after) == plain_kernel.fingerprint_of(before) ^ moved
    permuted = [np.array(numbers, float) for numbers in itertools.permutations([0.0, 1.0, 2.0, 3.0])]
    assert len({plain_kernel.fingerprint_of(numbers) for numbers in permuted}) == 24


def test_the_refinement_keeps_its_budget(plain_kernel: ModuleType, forest: Setting) -> None:
    s = forest
    work = Work.on(s.problems, Limits(max_queries=3))
    begin(work, s.plan, s.weights, s.ask)
    refined(plain_kernel, s, work)
    row = work.best.row
    assert row["exhausted"].any()
    assert row["n_queries"].max() <= 3 + 1 + plain_kernel.JUMPS + 3  # a state is finished when it was begun


def test_what_only_the_profile_believes_is_not_kept(
    plain_kernel: ModuleType, forest: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = forest
    work, _ = s.work()
    begin(work, s.plan, s.weights, s.ask)
    judge = plain_kernel.judge_state

    def judged(table: Any, weights: Any, problems: Any, p: int, scratch: Any) -> None:
        judge(table, weights, problems, p, scratch)
        own = scratch.own[0]
        own["margin"], own["reached"] = min(own["margin"], -1e-3), False

    monkeypatch.setattr(plain_kernel, "judge_state", judged)
    refined(plain_kernel, s, work)
    assert np.isinf(work.best.row["cost"][~work.best.row["done"]]).all()


def test_a_joint_move_stops_where_it_costs_more_than_the_best(plain_kernel: ModuleType, forest: Setting) -> None:
    s = forest
    work, _ = s.work()
    begin(work, s.plan, s.weights, s.ask)
    row = work.best.row
    scratch, beam = refine.scratch_for(s.table, s.axes, s.plan), refine._beam(1, 4, 3)
    n_asked = {np.inf: 0, 1e-9: 0}
    for p in np.flatnonzero(~row["done"]):
        plain_kernel.start_beam(s.plan, s.problems, s.weights, beam, 0, p)
        n_moves, margin, _ = s.profile(plain_kernel, p, s.problems.anchor[p], np.inf, scratch)
        for bound in n_asked:
            row["cost"][p], row["n_queries"][p] = bound, 0
            plain_kernel.jump(
                s.table, s.axes, s.plan, s.weights, s.problems, p, work.best, beam, 0, 0, n_moves, margin, scratch
            )
            n_asked[bound] += int(row["n_queries"][p])
    assert n_asked[np.inf] > 0 == n_asked[1e-9]


def test_a_joint_move_is_asked_only_where_its_gains_add_up(plain_kernel: ModuleType, forest: Setting) -> None:
    s = forest
    work, _ = s.work()
    begin(work, s.plan, s.weights, s.ask)
    row = work.best.row
    scratch, beam = refine.scratch_for(s.table, s.axes, s.plan), refine._beam(1, 4, 3)
    for p in np.flatnonzero(~row["done"]):
        plain_kernel.start_beam(s.plan, s.problems, s.weights, beam, 0, p)
        n_moves, margin, _ = s.profile(plain_kernel, p, s.problems.anchor[p], np.inf, scratch)
        gains = scratch.moves["margin"][:n_moves] - margin
        scratch.moves["margin"][:n_moves] = margin + 1e-3 * gains  # all together do not reach the class
        row["n_queries"][p] = 0
        plain_kernel.jump(
            s.table, s.axes, s.plan, s.weights, s.problems, p, work.best, beam, 0, 0, n_moves, margin, scratch
        )
        assert row["n_queries"][p] == 0


def test_levels_that_all_go_right_are_not_parted(plain_kernel: ModuleType) -> None:
    s = setting("fma")
    axes = s.axes._replace(level_word=np.array([0, 0b0110, 0b1111], np.uint64))
    scratch = refine.scratch_for(s.table, s.axes, s.plan)
    for place, node, levels, n_branches in ((0, 8, 0b0011, 0), (1, 7, 0b0010, 1), (2, 7, 0b0011, 0)):
        branch = scratch.walked[0]
        branch.levels, branch.low = 0b0011, 0
        parted = plain_kernel.part_branch(scratch, axes, branch, 0, place, np.uint64(7))
        assert (*parted, branch.levels) == (node, n_branches, levels)


@pytest.mark.parametrize("bound", [2.5, 2.0**24, 2.0**40, 2.0**53, 2.0**60, -(2.0**53), -(2.0**54)])
def test_beside_a_cut_there_is_a_next_whole_number_however_large(
    plain_kernel: ModuleType, forest: Setting, bound: float
) -> None:
    above = plain_kernel.number_above(forest.plan, 0, bound)  # beyond 2**53 it once never came
    below = plain_kernel.number_at_most(forest.axes._replace(single=0), forest.plan, 0, bound)
    assert below <= bound < above
    assert np.float32(below) <= bound < np.float32(above)
    assert above == np.floor(above)
    assert below == np.floor(below)
