from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

from macem.lazy import lazy


class Counted:
    """Counts how often its attribute is computed."""

    n = 0

    @lazy
    def value(self) -> list[int]:
        """What is counted."""
        self.n += 1
        return [self.n]


def test_computed_once_and_kept() -> None:
    one = Counted()
    assert one.value is one.value
    assert one.n == 1
    assert Counted().value is not one.value
    assert pickle.loads(pickle.dumps(one)).value == [1]
    assert Counted.value.__doc__ == "What is counted."


def test_two_threads_do_not_wait_for_each_other_and_keep_the_same() -> None:
    both = threading.Barrier(2, timeout=30)

    class Met:
        @lazy
        def value(self) -> object:
            both.wait()
            return object()

    met = Met()
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: met.value, range(2))
    assert one is other is met.value
