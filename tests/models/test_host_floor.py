"""The host's floor is a product, with a range and a source."""

from __future__ import annotations

import pytest
from kernelroof.models.errors import UsageError
from kernelroof.models.host_floor import LAUNCH_COSTS, host_floor


@pytest.mark.parametrize("way", sorted(LAUNCH_COSTS))
def test_a_floor_is_kernels_times_the_cost_of_a_launch(way: str) -> None:
    cost, found = LAUNCH_COSTS[way], host_floor(1000, way)
    assert (found.low_s, found.seconds, found.high_s) == pytest.approx(
        (cost.low_us * 1e-3, cost.us * 1e-3, cost.high_us * 1e-3)
    )
    assert found.low_s < found.seconds < found.high_s
    assert found.source


def test_an_own_figure_replaces_the_assumption() -> None:
    found = host_floor(500, launch_us=4.0)
    assert found.seconds == found.low_s == found.high_s == pytest.approx(2e-3)
    assert found.source == "as given"


def test_no_kernels_need_no_time() -> None:
    assert host_floor(0).high_s == 0


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="negative"):
        host_floor(-1)
    with pytest.raises(UsageError, match="negative"):
        host_floor(1, launch_us=-1.0)
    with pytest.raises(UsageError, match="teleport"):
        host_floor(1, "teleport")
