"""Medians and spreads over steps and recordings: by hand, by brute force, with and without a trend."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.roofline.spread import (
    FIGURES,
    LAUNCH,
    all_steps,
    levelled,
    role_steps,
    step_spread,
    trend,
    wall_spread,
    with_launches,
    with_spread,
)


def row(phase: str, step: int | None, module: str, time_ns: int | None, **more: Any) -> dict[str, Any]:
    kernel = more.get("kernel", "aten::mm")
    return {
        "phase": phase, "step": step, "module": module, "kind": "mlp", "op": kernel, "kernel": kernel, "count": 1,
        "time_ns": time_ns, "idle_before_ns": 0, **more,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows).astype({"step": "Int64", "time_ns": "Int64", "count": "Int64"})


def one(spread: pd.DataFrame, scope: str, phase: str = "decode", **keys: str) -> dict[str, Any]:
    found = spread[(spread["scope"] == scope) & (spread["phase"] == phase)]
    for name, value in keys.items():
        found = found[found[name] == value]
    assert len(found) == 1
    return {str(k): v for k, v in found.iloc[0].to_dict().items()}


UP, DOWN = "model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"


def test_by_hand() -> None:
    """Two layers, three steps: the role's steps take 30, 40, 60; the module adds an op of 1 in each."""
    rows = [row("decode", k, UP, a) for k, a in enumerate((10, 20, 30))]
    rows += [row("decode", k, DOWN, a) for k, a in enumerate((20, 20, 30))]
    rows += [row("decode", k, UP, 1, kernel="aten::t") for k in range(3)]
    rows += [row("prefill", 0, UP, 700)]
    spread = step_spread(role_steps(table(rows)))
    kernel = one(spread, "kernel", kernel="aten::mm")
    assert kernel["role"] == "model.layers.*.mlp.up_proj"
    assert (kernel["samples"], kernel["recordings"]) == (3, 1)
    assert [kernel[f"step_{k}_ns"] for k in ("median", "low", "high", "min", "max")] == [40, 35, 50, 30, 60]
    assert kernel["noise_pct"] == pytest.approx(100 * (60 - 30) / 2 / 40), "of three samples half their range"
    assert pd.isna(kernel["growth_pct"])
    assert pd.isna(kernel["between_pct"])
    assert pd.isna(kernel["reason"])
    assert one(spread, "module")["step_median_ns"] == 41
    assert one(spread, "phase")["step_max_ns"] == 61


def test_one_sample_has_no_spread_and_says_why() -> None:
    spread = step_spread(role_steps(table([row("prefill", 0, UP, 700), row("prefill", 0, DOWN, 300)])))
    assert set(spread["scope"]) == {"phase", "module", "kernel"}
    for _, found in spread.iterrows():
        assert (found["samples"], found["step_median_ns"]) == (1, 1000)
        assert found[[f for f in FIGURES if f not in ("samples", "recordings", "step_median_ns")]].isna().all()
        assert "one sample" in found["reason"]


def test_what_took_no_time_has_no_share_and_says_why() -> None:
    found = one(step_spread(role_steps(table([row("decode", k, UP, 0) for k in range(6)]))), "kernel")
    assert (found["step_min_ns"], found["step_max_ns"]) == (0, 0)
    assert pd.isna(found["noise_pct"])
    assert "median is 0" in found["reason"]


def test_counts_weigh_and_what_has_no_step_or_no_time_is_left_out() -> None:
    rows = [row("decode", 0, UP, 10, count=3), row("decode", None, UP, 99), row("decode", 1, UP, None)]
    rows += [row("decode", 1, UP, 50)]
    steps = role_steps(table(rows), recording=4)
    assert steps[["recording", "step", "time_ns", "launches"]].to_numpy().tolist() == [[4, 0, 30, 3], [4, 1, 50, 1]]
    assert "1 to 3 launches a step" in one(step_spread(steps), "kernel")["reason"]


def test_nothing_recorded_is_an_empty_table() -> None:
    steps = role_steps(table([row("decode", None, UP, 99)]))
    spread = step_spread(steps)
    assert len(spread) == 0
    assert list(spread.columns) == ["phase", "scope", "role", "kind", "op", "kernel", *FIGURES, "reason"]
    assert len(with_launches(spread, table([row("decode", None, UP, 99)]))) == 0


def test_growth_is_no_noise() -> None:
    """Attention takes 3 % longer with each step, with noise of ± 1 %: the noise is told, and the growth apart."""
    draw = random.Random(1)
    times = [round(1e6 * (1 + 0.03 * k) * (1 + draw.uniform(-0.01, 0.01))) for k in range(64)]
    found = one(step_spread(role_steps(table([row("decode", k, UP, t) for k, t in enumerate(times)]))), "kernel")
    middle = 1 + 0.03 * 31.5
    assert found["growth_pct"] == pytest.approx(100 * 0.03 * 63 / middle, rel=0.03)
    assert found["noise_pct"] < 1.0
    assert 100 * (found["step_high_ns"] - found["step_low_ns"]) / 2 / found["step_median_ns"] > 20


def test_a_line_alone_is_no_noise_at_all() -> None:
    found = one(step_spread(role_steps(table([row("decode", k, UP, 1000 + 7 * k) for k in range(9)]))), "kernel")
    assert found["noise_pct"] == pytest.approx(0, abs=1e-9)
    assert found["growth_pct"] == pytest.approx(100 * 7 * 8 / 1028)


@pytest.mark.parametrize("steps", [40, 500])
def test_disturbed_steps_do_not_turn_the_line(steps: int) -> None:
    """One step in ten takes ten times as long, mostly the last ones."""
    times = [1000.0 + 2 * k for k in range(steps)]
    for k in range(steps - steps // 10, steps):
        times[k] *= 10
    number = np.arange(steps)
    slope = trend(number, np.array(times), np.zeros(steps, np.int64))
    assert slope == pytest.approx(2, abs=1e-6 if steps > 200 else 0.1)


def test_recordings_that_differ_are_seen_though_their_steps_do_not() -> None:
    """Two recordings, each steady, one 10 % slower."""
    recordings = [role_steps(table([row("decode", k, UP, t) for k in range(8)]), i) for i, t in enumerate((1000, 1100))]
    found = one(step_spread(all_steps(recordings)), "kernel")
    assert (found["samples"], found["recordings"]) == (16, 2)
    assert found["step_median_ns"] == 1050
    assert found["between_pct"] == pytest.approx(100 * 100 / 2 / 1050)
    assert found["noise_pct"] == pytest.approx(100 * 100 / 2 / 1050)
    assert found["growth_pct"] == pytest.approx(0)


def test_a_slow_recording_is_seen_though_its_times_were_brought_to_the_same_total() -> None:
    steps = all_steps(role_steps(table([row("prefill", 0, UP, 100)]), i, {"prefill": 1 + i / 10}) for i in range(3))
    assert steps["time_ns"].tolist() == [100] * 3
    assert steps["pace"].tolist() == pytest.approx([1, 1.1, 1.2])
    found = one(step_spread(steps), "kernel", "prefill")
    assert found["step_median_ns"] == pytest.approx(110)
    assert found["between_pct"] == pytest.approx(100 * 10 / 110)


@pytest.mark.parametrize("paces", [(1.0, 1.1, 1.2), (1.0, 0.5, 0.8), (1.0, 3.0)])
def test_the_middle_recording_is_on_the_bare_clock_whichever_was_first(paces) -> None:
    """Each was brought to 100 ns; the bare run's median is 100 ns too, so 100 ns is the middle of the spread."""
    one_of = [role_steps(table([row("prefill", 0, UP, 100)]), i, {"prefill": pace}) for i, pace in enumerate(paces)]
    steps = levelled(all_steps(one_of))
    found = one(step_spread(steps), "kernel", "prefill")
    assert found["step_median_ns"] == pytest.approx(100)
    assert found["step_max_ns"] / found["step_min_ns"] == pytest.approx(max(paces) / min(paces))


def test_prefill_has_one_sample_a_recording() -> None:
    found = one(
        step_spread(all_steps(role_steps(table([row("prefill", 0, UP, t)]), i) for i, t in enumerate((90, 100, 130)))),
        "phase",
        "prefill",
    )
    assert (found["samples"], found["recordings"], found["step_median_ns"]) == (3, 3, 100)
    assert found["noise_pct"] == found["between_pct"] == pytest.approx(20)


def test_single_launches() -> None:
    rows = [row("decode", k, m, t) for k, m, t in ((0, UP, 10), (0, DOWN, 20), (1, UP, 30), (1, DOWN, 90))]
    rows += [row("decode", 0, UP, 5, kernel="summary", count=4)]
    spread = with_launches(step_spread(role_steps(table(rows))), table(rows))
    found = one(spread, "kernel", kernel="aten::mm")
    assert [found[name] for name in LAUNCH] == [4, 25, 17.5, 45, 10, 90]
    summed = one(spread, "kernel", kernel="summary")
    assert summed["launches"] == 4
    assert pd.isna(summed["launch_median_ns"]), "means of four launches say nothing of one"
    assert spread.loc[spread["scope"] != "kernel", list(LAUNCH)].isna().all().all()


def test_the_bare_wall_time() -> None:
    bare = {"prefill_ns": [100, 140, 120], "decode_step_ns": [[10, 12], [14, 16], [10, 12]]}
    spread = wall_spread(bare)
    prefill, decode = one(spread, "wall", "prefill"), one(spread, "wall")
    assert (prefill["samples"], prefill["step_median_ns"], prefill["noise_pct"]) == (3, 120, pytest.approx(100 / 6))
    assert (decode["samples"], decode["recordings"], decode["step_median_ns"]) == (6, 3, 12)
    assert decode["between_pct"] == pytest.approx(100 * 4 / 2 / 12)


def test_columns_for_a_table_of_roles() -> None:
    spread = step_spread(role_steps(table([row("decode", k, UP, 10 + k) for k in range(3)])))
    roles = pd.DataFrame({"role": ["model.layers.*.mlp.up_proj", "lm_head"], "time_ns": [33, 5]})
    found = with_spread(roles, spread, "decode", ["role"])
    assert found["time_ns"].tolist() == [33, 5]
    assert found["step_median_ns"].iloc[0] == 11
    assert found[list(FIGURES)].iloc[1].isna().all(), "estimated only: nothing is known"
    assert with_spread(roles, spread, "prefill", ["role"])["samples"].isna().all()


LAUNCHES = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(["prefill", "decode"]), st.integers(0, 9),
        st.sampled_from([UP, DOWN, "lm_head"]), st.sampled_from(["a", "b"]), st.integers(0, 10**9), st.integers(1, 3),
    ),
    min_size=1, max_size=60,
)  # fmt: skip


@settings(max_examples=40)
@given(LAUNCHES)
def test_any_launches_by_brute_force(launches: list[tuple[int, str, int, str, str, int, int]]) -> None:
    recordings = sorted({launch[0] for launch in launches})
    steps = all_steps(
        role_steps(
            table([row(p, s, m, t, kernel=k, count=c) for r, p, s, m, k, t, c in launches if r == recording]), recording
        )
        for recording in recordings
    )
    spread = step_spread(steps)
    seen = 0
    for scope in ("phase", "module", "kernel"):
        samples: dict[tuple[str, ...], dict[tuple[int, int], int]] = {}
        for r, p, s, m, k, t, c in launches:
            role = m.replace("layers.0", "layers.*").replace("layers.1", "layers.*")
            key = {"phase": (p,), "module": (p, role), "kernel": (p, role, k)}[scope]
            own = samples.setdefault(key, {})
            own[r, s] = own.get((r, s), 0) + t * c
        for key, own in samples.items():
            names = dict(zip(("role", "kernel"), key[1:], strict=False))
            found = one(spread, scope, key[0], **names)
            seen += 1
            values = list(own.values())
            middle = statistics.median(values)
            assert found["samples"] == len(values)
            assert found["recordings"] == len({r for r, _ in own})
            assert found["step_median_ns"] == middle
            if len(values) < 2:
                assert pd.isna(found["noise_pct"])
                continue
            low, _, high = statistics.quantiles(values, n=4, method="inclusive")
            assert found["step_low_ns"] == pytest.approx(low)
            assert found["step_high_ns"] == pytest.approx(high)
            assert (found["step_min_ns"], found["step_max_ns"]) == (min(values), max(values))
            if not middle:
                continue
            slope = 0.0
            if len({s for _, s in own}) >= 5:
                slopes = [
                    (t2 - t1) / (s2 - s1)
                    for ((r1, s1), t1), ((r2, s2), t2) in itertools.combinations(own.items(), 2)
                    if r1 == r2 and s1 != s2
                ]
                slope = statistics.median(slopes) if slopes else 0.0
                numbers = [s for _, s in own]
                growth = 100 * slope * (max(numbers) - min(numbers)) / middle
                assert found["growth_pct"] == pytest.approx(growth, rel=1e-6, abs=1e-6)
            centre = statistics.median(s for _, s in own)
            rest = [t - slope * (s - centre) for (_, s), t in own.items()]
            near, _, far = statistics.quantiles(rest, n=4, method="inclusive")
            width = far - near if len(rest) >= 5 else max(rest) - min(rest)
            assert found["noise_pct"] == pytest.approx(50 * width / middle, rel=1e-6, abs=1e-6)
    assert seen == len(spread)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 10**6), min_size=5, max_size=30), st.integers(2, 50))
def test_noise_is_a_share(times: list[int], factor: int) -> None:
    """A machine that is slower throughout is as noisy; one that is steadier is less so."""
    plain, slow = (
        one(step_spread(role_steps(table([row("decode", k, UP, t * f) for k, t in enumerate(times)]))), "kernel")
        for f in (1, factor)
    )
    assert slow["noise_pct"] == pytest.approx(plain["noise_pct"], rel=1e-9, abs=1e-9)
    assert math.isfinite(plain["noise_pct"])
    assert plain["noise_pct"] >= 0
