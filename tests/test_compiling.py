"""The garbage collector rests while the kernel is compiled, and only then."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
from numba.core import event

import macem.kernel


def compiling(function: Any) -> Any:
    """What numba tells its listeners while it compiles a function."""
    return event.trigger_event("numba:compile", {"dispatcher": SimpleNamespace(py_func=function)})


def ours() -> None:
    """A function that claims to be the kernel's."""


ours.__module__ = macem.kernel.__name__


def test_collector_rests_until_the_outermost_function_is_compiled() -> None:
    assert gc.isenabled()
    with compiling(ours):
        assert not gc.isenabled()
        with compiling(ours):
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_works_again_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), compiling(ours):
        1 / 0  # noqa: B018  # the failure
    assert gc.isenabled()


def test_collector_is_left_alone_for_functions_of_others() -> None:
    with compiling(compiling):
        assert gc.isenabled()


def test_collector_that_the_user_stopped_stays_so() -> None:
    gc.disable()
    try:
        with compiling(ours):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
