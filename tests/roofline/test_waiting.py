"""Time in which nothing ran, given to the launch that ended it: against counting it nanosecond by nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.roofline.waiting import idle_before

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)


@given(INTERVALS, st.integers(0, 30))
def test_equals_counting_each_nanosecond(pairs: list[tuple[int, int]], begun: int) -> None:
    start = np.array([s for s, _ in pairs], np.int64)
    end = start + np.array([n for _, n in pairs], np.int64)
    found = idle_before(start, end, begun)
    ran = {ns for s, e in zip(start.tolist(), end.tolist(), strict=True) for ns in range(s, e)}
    last = max(start.tolist(), default=0)
    assert found.sum() == len([ns for ns in range(begun, last) if ns not in ran])
    for own, s in zip(found.tolist(), start.tolist(), strict=True):
        assert own == 0 or (own <= s - begun and not ran & set(range(s - own, s)))


def test_streams_side_by_side_wait_for_nothing() -> None:
    start, end = np.array([10, 12, 40, 30]), np.array([25, 20, 50, 35])
    assert idle_before(start, end, 4).tolist() == [6, 0, 5, 5]
