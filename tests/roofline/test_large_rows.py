"""Rows without a verdict are shown where they take much time."""

from hypothesis import given
from hypothesis import strategies as st
from kernelroof.roofline.large_rows import leading


def test_the_two_largest_without_a_verdict_take_the_place_of_the_last():
    gains = [9.0, 8.0, 7.0, 6.0, None, None, None, None]
    times = [10.0, 10.0, 10.0, 10.0, 30.0, 20.0, 15.0, 1.0]
    assert leading(gains, times, 4, 106.0) == [0, 1, 4, 5]
    assert leading(gains, times, 1, 106.0) == [0, 4, 5]
    assert leading(gains, times, 4, 10_000.0) == [0, 1, 2, 3]
    assert leading(gains, times, 20, 106.0) == list(range(8))


@given(
    rows=st.lists(st.tuples(st.none() | st.floats(0, 1e9), st.none() | st.floats(0, 1e9)), max_size=30),
    top=st.integers(1, 12),
)
def test_no_large_row_is_hidden_behind_smaller_ones(rows, top):
    gains, times = [g for g, _ in rows], [t for _, t in rows]
    whole = sum(t or 0.0 for t in times)
    shown = leading(gains, times, top, whole)
    assert len(set(shown)) == len(shown) <= max(top, 3)
    large = [i for i, (g, t) in enumerate(rows) if g is None and (t or 0.0) > 0.05 * whole]
    hidden = [times[i] for i in large if i not in shown]
    assert not hidden or sum(times[i] >= max(hidden) for i in large if i in shown) >= 2
