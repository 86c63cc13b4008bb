"""What the kernel needs of numba beyond its decorators: a few instructions, and rest for Python while it compiles."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

from llvmlite import ir
from numba import config, types
from numba.core import event
from numba.extending import intrinsic

from macem import vectors

__all__ = ["Instructions", "instructions", "rest_collector_for"]


class _RestingCollector(event.Listener):
    """Keeps Python's garbage collector at rest while functions of one module are compiled.

    It walks millions of objects of numba's again and again and frees next to none: 24.4 s of CPU without it, 27.9 with
    it (medians of seven), for 80 MiB more memory at the peak. numba compiles one function and those it calls at a time,
    under a lock of its own, so a count of functions under way is safe. The collector rests for all threads meanwhile,
    and is then as it was before the first function, whatever the program asked of it in between.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self.under_way = 0
        self.was_enabled = False

    def on_start(self, started: event.Event) -> None:
        """A function begins to compile."""
        if self._is_ours(started):
            if self.under_way == 0:
                self.was_enabled = gc.isenabled()
                gc.disable()
            self.under_way += 1

    def on_end(self, ended: event.Event) -> None:
        """A function is compiled, or failed to."""
        if self._is_ours(ended):
            self.under_way -= 1
            if self.under_way == 0 and self.was_enabled:
                gc.enable()

    def _is_ours(self, told: event.Event) -> bool:
        return bool(told.data["dispatcher"].py_func.__module__ == self.module)


def rest_collector_for(module: str) -> None:
    """Keep the garbage collector at rest whenever functions of a module are compiled."""
    event.register("numba:compile", _RestingCollector(module))  # type: ignore[no-untyped-call]  # numba's own


class Instructions(NamedTuple):
    """What the kernel asks of a processor by name, compiled or as plain Python, whichever the kernel is to be.

    Attributes
    ----------
    prefetch : callable
        ``prefetch(array, place)`` asks memory for an element of a contiguous array some time before it is read.
    trailing_zeros : callable
        ``trailing_zeros(word)`` is the place of the lowest bit set in a word.
    has_vectors : callable
        ``has_vectors()``: `descend` may be called, since there is AVX-512.
    descend : callable
        ``descend(nodes, keys, row, leaves, levels)`` sends `vectors.ROWS` rows, from `row` on, some levels further down
        in eight trees of narrow nodes: ``leaves[row, tree]`` is where they are. True where one of them may not be at
        its leaf. A row has at most `vectors.MOST_KEYS` keys; so many words are read from its first on.
    """

    prefetch: Any
    trailing_zeros: Any
    has_vectors: Any
    descend: Any


def instructions() -> Instructions:
    """Make them for this process."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]  # set by numba when it is imported
        return Instructions(
            prefetch=lambda array, place: None,
            trailing_zeros=lambda word: (int(word) & -int(word)).bit_length() - 1,
            has_vectors=lambda: True,
            descend=vectors.descend_plainly,
        )
    return Instructions(
        prefetch=intrinsic(_prefetch),
        trailing_zeros=intrinsic(_trailing_zeros),
        has_vectors=intrinsic(vectors.has_vectors),
        descend=intrinsic(vectors.descend),
    )


def _prefetch(context: Any, array: Any, place: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = target.make_array(array)(target, builder, arguments[0]).data
        address = builder.gep(first, [arguments[1]])
        word = ir.IntType(32)
        told = ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], told)
        builder.call(function, [address, word(0), word(3), word(1)])  # to be read, soon again, as data
        return target.get_dummy_value()

    return types.void(array, place), generate


def _trailing_zeros(context: Any, word: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))  # of a word that is not zero

    return types.int64(word), generate
