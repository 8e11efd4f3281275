"""Layers that differ from their siblings: a planted one is found, noise and a slow step are not."""

import numpy as np
import pandas as pd
import pytest
from kernelroof.parsers.schema import KERNELS
from kernelroof.roofline.siblings import odd_layers


def kernels(times, work=None):
    """Rows of kernels.csv from ns by [step][layer]: half of it in mlp, half in self_attn."""
    rows = []
    for step, layers in enumerate(times):
        for layer, ns in enumerate(layers):
            for module in ("mlp", "self_attn"):
                flops = work[layer] if work else 1000
                rows.append(
                    {
                        **{"phase": "decode", "step": step, "module": f"model.layers.{layer}.{module}", "count": 1},
                        **{"kernel": "gemm", "op": "mm", "ordinal": len(rows), "kind": module, "time_ns": ns / 2},
                        **{"flops": flops, "dram_read_bytes": 10 * flops, "dram_write_bytes": 0},
                    }
                )
    names = [c.name for c in KERNELS]
    return pd.DataFrame([{**dict.fromkeys(names), **row} for row in rows], columns=names).astype(
        {"step": "Int64", "count": "Int64", "flops": "Int64", "module": "string", "op": "string", "kernel": "string"}
    )


def noisy(steps, layers, spread, seed, slow=None, factor=1.0):
    """Each step its own length, each layer its own noise around it, one layer slower by a factor."""
    draw = np.random.default_rng(seed)
    times = 1e6 * draw.uniform(0.8, 1.5, (steps, 1)) * draw.normal(1, spread, (steps, layers))
    if slow is not None:
        times[:, slow] *= factor
    return times.tolist()


def test_by_hand():
    found = odd_layers(kernels([[100, 100, 150, 100], [200, 200, 300, 200], [100, 100, 150, 100]]))
    assert found["layer"].tolist() == ["model.layers.2"]
    row = found.iloc[0]
    assert (row["phase"], row["time_ns"], row["typical_ns"], row["samples"]) == ("decode", 150, 100, 3)
    assert row["excess_pct"] == pytest.approx(50)
    assert row["words"] == "model.layers.2 is 50 % slower than its siblings: 150 ns a step, its siblings 100 ns"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("layers", "slow"), [(4, 2), (16, 5), (32, 31)])
def test_a_planted_layer_is_found_alone(seed, layers, slow):
    found = odd_layers(kernels(noisy(24, layers, 0.03, seed, slow, 1.3)))
    assert found["layer"].tolist() == [f"model.layers.{slow}"]
    assert 20 < found["excess_pct"].iloc[0] < 40


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("steps", "layers", "spread"), [(24, 16, 0.05), (24, 3, 0.2), (8, 32, 0.1), (1, 16, 0.03)])
def test_noise_is_no_odd_layer(seed, steps, layers, spread):
    assert odd_layers(kernels(noisy(steps, layers, spread, seed))).empty


def test_one_slow_step_is_no_slow_layer():
    times = [[100] * 6 for _ in range(9)]
    times[4][3] = 10_000
    times[7] = [900] * 6
    assert odd_layers(kernels(times)).empty


def test_layers_of_other_work_are_no_siblings():
    """Every second layer has a window and half the work."""
    times = [[100, 50, 100, 50, 100, 50]] * 5
    assert odd_layers(kernels(times, work=[1000, 500] * 3)).empty
    slow = [[100, 50, 100, 80, 100, 50, 100, 50]] * 5
    found = odd_layers(kernels(slow, work=[1000, 500] * 4))
    assert found["layer"].tolist() == ["model.layers.3"]
    assert found["typical_ns"].tolist() == [50]


def test_two_layers_have_no_majority():
    assert odd_layers(kernels([[100, 300]] * 5)).empty


def test_the_first_layer_is_said_to_be_the_first_and_a_single_sample_is_said():
    found = odd_layers(kernels([[200, 100, 100, 100]]))
    assert "as the first of a pass often is" in found["words"].iloc[0]
    assert found["words"].iloc[0].endswith("; one sample")
    assert "first" not in odd_layers(kernels([[100, 200, 100, 100]]))["words"].iloc[0]


def test_only_the_first_layer_of_a_pass_is_excused():
    """Of siblings further down, none is the first of a pass; 10 comes after 2, whatever its name sorts like."""
    times = [[100] * 8 + [50, 50, 80, 50, 50]] * 3
    found = odd_layers(kernels(times, work=[1000] * 8 + [500] * 5))
    assert found["layer"].tolist() == ["model.layers.10"]
    assert "first" not in found["words"].iloc[0]


def test_layers_whose_work_only_a_group_of_kernels_tells_are_no_siblings_of_others():
    """A window's attention in two kernels: neither has FLOPs, but the group has."""
    times = [[100, 100, 60, 100, 100, 60, 100, 100, 60]] * 5
    rows = kernels(times)
    window = rows["module"].isin([f"model.layers.{i}.self_attn" for i in (2, 5, 8)])
    attention = rows["module"].str.endswith("self_attn")
    rows = rows.assign(
        group_flops=np.where(attention, np.where(window, 300, 1000), np.nan),
        group_bytes=np.where(attention, np.where(window, 3000, 10000), np.nan),
        flops=rows["flops"].mask(attention),
        dram_read_bytes=rows["dram_read_bytes"].mask(attention),
    )
    assert odd_layers(rows).empty
    assert len(odd_layers(rows.assign(group_flops=None, group_bytes=None))) == 3


def test_a_table_without_layers_has_no_odd_ones():
    assert odd_layers(kernels([])).empty
