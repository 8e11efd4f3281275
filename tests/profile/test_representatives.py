"""Representatives on generated tables whose true figures are known."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.profile.representatives import (
    COLLECTIVE,
    EXPERT,
    TOLERANCE,
    Window,
    choose,
    classify,
    count_classes,
    split,
    windows_of,
)
from kernelroof.profile.spreading import COUNTED, INTERPOLATED, REPRESENTED, spread

MB = 1_000_000
GEMM, FLASH, COPY, NORM = "void gemm<128, 4>(float*)", "flash_fwd_kernel", "CatArrayBatchedCopy", "rms_norm_kernel"


def model(layers, steps, *, growth=MB, odd_from=None, odd=1.0, experts=False, noise=None):
    """Launches of a small decoder in launch order, with their true reads and FLOPs.

    Attention reads 10 MB and `growth` more each step; layers from `odd_from` on read `odd` times as much in
    the down projection. `noise` draws a factor for each launch.
    """
    rows = []

    def add(phase, step, module, kernel, read, flops, grid="64,1,1"):
        factor = 1.0 if noise is None else noise()
        row = {"phase": phase, "step": step, "module": module, "kernel": kernel, "grid": grid, "block": "128,1,1"}
        rows.append({**row, "read": round(read * factor), "true_flops": flops})

    for phase, count in (("prefill", 1), ("decode", steps)):
        big = 20 if phase == "prefill" else 1
        for step in range(count):
            add(phase, step, "model.embed_tokens", "gather", MB * big, 0)
            for layer in range(layers):
                at = f"model.layers.{layer}"
                grown = growth * step if phase == "decode" else 0
                add(phase, step, f"{at}.norm", NORM, MB * big, 3 * MB * big)
                add(phase, step, f"{at}.self_attn.q_proj", GEMM, 40 * MB, 80 * MB * big)
                add(phase, step, f"{at}.self_attn", COPY, 10 * MB + grown, 0)
                add(phase, step, f"{at}.self_attn", FLASH, 10 * MB + grown, 20 * MB + 2 * grown)
                factor = odd if odd_from is not None and layer >= odd_from else 1.0
                if experts:
                    for expert in range((layer + step) % 3):
                        add(phase, step, f"{at}.mlp.experts.{expert}", GEMM, MB * (1 + expert + step), MB)
                add(phase, step, f"{at}.mlp.down_proj", GEMM, 90 * MB * factor, 180 * MB * big, grid="32,1,1")
            add(phase, step, "lm_head", GEMM, 200 * MB, 400 * MB)
    return pd.DataFrame(rows).astype({"step": "Int64"})


def counter(table):
    """A counting run that returns the truth, and a list of what it was asked."""
    asked = []

    def count(windows, rows):
        asked.append(windows)
        truth = table.loc[rows, ["read", "true_flops"]].astype("Int64")
        return truth.set_axis(["dram_read_bytes", "flops"], axis=1)

    return count, asked


def solve(table):
    count, asked = counter(table)
    classified, figures, said = count_classes(classify(table), count)
    return spread(classified, figures), asked, said


def off(table, result):
    """Relative error of every known launch's reads."""
    known = result.figures["dram_read_bytes"].notna()
    truth = table.loc[known, "read"].to_numpy(float)
    return np.abs(result.figures.loc[known, "dram_read_bytes"].to_numpy(float) - truth) / truth


@settings(deadline=None, max_examples=12)
@given(layers=st.integers(1, 6), steps=st.integers(1, 7), growth=st.integers(0, 5 * MB))
def test_a_uniform_model_is_known_exactly(layers, steps, growth):
    table = model(layers, steps, growth=growth)
    result, asked, said = solve(table)
    assert result.known == result.total == len(table)
    assert not said
    assert len(asked) == 1
    assert result.figures["dram_read_bytes"].tolist() == table["read"].tolist()
    assert result.figures["flops"].tolist() == table["true_flops"].tolist()
    assert all(abs(r.share) < 1e-6 for r in result.residuals)


@settings(deadline=None, max_examples=12)
@given(
    layers=st.integers(2, 6), steps=st.integers(1, 6), odd_from=st.integers(1, 5), odd=st.sampled_from([0.5, 1.2, 3.0])
)
def test_layers_that_differ_are_split_and_then_known_exactly(layers, steps, odd_from, odd):
    table = model(layers, steps, odd_from=odd_from, odd=odd)
    result, asked, said = solve(table)
    assert result.figures["dram_read_bytes"].tolist() == table["read"].tolist()
    if odd_from < layers:
        assert any("split into" in words for words in said)
        assert len(asked) > (layers > 2)
    else:
        assert not said


@settings(deadline=None, max_examples=12)
@given(layers=st.integers(1, 5), steps=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_noise_below_the_tolerance_stays_below_it(layers, steps, seed):
    draw = np.random.default_rng(seed)
    table = model(layers, steps, noise=lambda: 1 + draw.uniform(-0.01, 0.01))
    result, asked, _ = solve(table)
    assert len(asked) == 1
    assert result.known == result.total
    assert off(table, result).max() < 0.021


@settings(deadline=None, max_examples=8)
@given(layers=st.integers(1, 5), steps=st.integers(2, 6))
def test_experts_and_collectives_are_never_represented(layers, steps):
    table = model(layers, steps, experts=True)
    ring = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    extra = [
        {"phase": "decode", "step": k, "module": "model.layers.0.mlp", "kernel": ring, "grid": "8,1,1",
         "block": "512,1,1", "read": MB, "true_flops": 0}
        for k in range(steps)
    ]  # fmt: skip
    table = pd.concat([table, pd.DataFrame(extra)], ignore_index=True)
    result, asked, _ = solve(table)
    figures = result.figures
    expert = table["module"].str.contains("experts").to_numpy()
    nccl = (table["kernel"] == ring).to_numpy()
    assert (figures.loc[expert, "why"] == EXPERT).all()
    assert (figures.loc[nccl, "why"] == COLLECTIVE).all()
    assert figures.loc[expert | nccl, "dram_read_bytes"].isna().all(), "missing is never zero"
    assert figures.loc[~(expert | nccl), "dram_read_bytes"].notna().all()
    assert not [w for windows in asked for w in windows if "experts" in w.module or w.module.endswith(".mlp")]


def test_two_members_of_a_class_first_and_last_layer():
    table = classify(model(5, 4))
    chosen = table[choose(table)]
    gemms = chosen[(chosen["role"] == "model.layers.*.mlp.down_proj") & (chosen["phase"] == "decode")]
    assert gemms[["layer", "step"]].to_numpy().tolist() == [[0, 0], [4, 3]]
    flash = chosen[(chosen["kernel"] == FLASH) & (chosen["phase"] == "decode")]
    found = sorted(map(tuple, flash[["step", "layer"]].to_numpy().tolist()))
    assert found == [(0, 0), (0, 4), (2, 0), (2, 4), (3, 0), (3, 4)]


def test_how_each_figure_came_about():
    table = model(3, 5)
    figures = solve(table)[0].figures
    flash = (table["kernel"] == FLASH) & (table["phase"] == "decode") & (table["module"] == "model.layers.1.self_attn")
    assert set(figures.loc[flash, "counted_as"]) == {INTERPOLATED}
    gemm = (table["module"] == "model.layers.1.mlp.down_proj") & (table["phase"] == "decode")
    assert set(figures.loc[gemm, "counted_as"]) == {REPRESENTED}
    assert figures.loc[table["module"] == "model.embed_tokens", "counted_as"].iloc[0] == COUNTED


def test_a_middle_step_off_the_line_is_the_residual():
    table = model(2, 5)
    table["read"] = table["read"].astype(float)
    bent = (table["kernel"] == FLASH) & (table["phase"] == "decode") & (table["step"] == 2)
    truth = float(table.loc[bent, "read"].iloc[0])
    table.loc[bent, "read"] = truth * 1.25
    result, _, _ = solve(table.astype({"read": "int64"}))
    worst = max(result.residuals, key=lambda r: abs(r.share))
    assert worst.share == pytest.approx(0.2, abs=1e-6)
    assert (worst.kernel, worst.step) == (FLASH, 2)
    assert "off by at most 20.0 %" in result.line()


def test_an_unexpected_dependence_on_the_context_is_found():
    table = model(2, 6)
    rows = (table["module"] == "lm_head") & (table["phase"] == "decode")
    table.loc[rows, "read"] = 200 * MB + 50 * MB * table.loc[rows, "step"]
    result, asked, said = solve(table)
    assert result.figures["dram_read_bytes"].tolist() == table["read"].tolist()
    assert len(asked) == 2
    assert any("taken to depend on the context" in words for words in said)


def test_members_that_still_differ_represent_nothing():
    table = model(3, 1, odd_from=2, odd=2.0)
    count, _ = counter(table)
    classified, figures, _ = count_classes(classify(table), count, rounds=1)
    unsplit = classify(table)
    result = spread(unsplit, figures)
    middle = (table["module"] == "model.layers.1.mlp.down_proj") & (table["phase"] == "decode")
    assert result.figures.loc[middle, "dram_read_bytes"].isna().all()
    assert result.figures.loc[middle, "why"].str.contains("differ by 50 %").all()
    assert classified["class"].nunique() > unsplit["class"].nunique()


def test_unknown_figures_stay_unknown():
    table = model(2, 2)
    classified = classify(table)
    chosen = choose(classified)
    figures = pd.DataFrame({"dram_read_bytes": pd.array([pd.NA] * int(chosen.sum()), dtype="Int64"), "flops": 1})
    figures = figures.set_axis(table.index[chosen]).astype({"flops": "Int64"})
    assert not split(classified, figures)[1]
    result = spread(classified, figures)
    assert result.figures["dram_read_bytes"].isna().all()
    assert (result.figures["flops"] == 1).all()


def test_shapes_split_classes_but_not_where_the_context_changes_them():
    table = model(2, 3)
    table["shapes"] = "[1,64]"
    wide = (table["module"] == "model.layers.1.mlp.down_proj") & (table["phase"] == "decode")
    table.loc[wide, "shapes"] = "[1,128]"
    flash = (table["kernel"] == FLASH) & (table["phase"] == "decode")
    table.loc[flash, "shapes"] = [f"[1,{8 + s}]" for s in table.loc[flash, "step"]]
    out = classify(table)
    down = out[(out["role"] == "model.layers.*.mlp.down_proj") & (out["phase"] == "decode")]
    assert down["class"].nunique() == 2
    assert out.loc[flash, "class"].nunique() == 1


def test_a_call_with_a_collective_is_not_opened():
    table = model(2, 1)
    ring = table.iloc[[-1]].assign(module="lm_head", kernel="ncclDevKernel_AllGather_RING")
    table = pd.concat([table, ring], ignore_index=True)
    classified = classify(table)
    windows = windows_of(classified, choose(classified))
    assert Window("decode", 0, "lm_head") not in windows
    assert Window("prefill", 0, "lm_head") in windows


def test_an_empty_table():
    table = model(1, 1).iloc[:0]
    result, asked, said = solve(table)
    assert (result.total, asked, said) == (0, [], [])


def test_tolerance_is_the_documented_one():
    assert TOLERANCE == 0.05


@pytest.mark.parametrize("growth", [0, MB])
def test_flops_by_type_add_up_to_the_flops_of_every_launch(growth):
    table = model(2, 5, growth=growth)

    def count(windows, rows):
        flops = table.loc[rows, "true_flops"].astype("Int64")
        parts = [json.dumps({"fp32": f // 4, "tensor:bf16->fp32": f - f // 4}) for f in flops.tolist()]
        reads = table.loc[rows, "read"].astype("Int64")
        by_type = pd.array(parts, dtype="string")
        return pd.DataFrame({"dram_read_bytes": reads, "flops": flops, "flops_by_type": by_type}, index=flops.index)

    classified, figures, _ = count_classes(classify(table), count)
    found = spread(classified, figures).figures
    assert set(found["counted_as"]) >= {COUNTED, REPRESENTED}
    sums = [sum(json.loads(text).values()) for text in found["flops_by_type"]]
    assert np.abs(np.array(sums) - found["flops"].to_numpy(float)).max() <= 1
    assert found["flops"].tolist() == table["true_flops"].tolist()


def test_shared_memory_tells_classes_apart():
    table = model(4, 1).assign(shared_bytes=pd.array([None] * len(model(4, 1)), dtype="Int64"))
    alike = classify(table)
    down = table["module"].str.endswith("down_proj") & (table["phase"] == "decode")
    other = down & table["module"].str.contains("layers.3")
    table.loc[down, "shared_bytes"] = 1024
    table.loc[other, "shared_bytes"] = 49152
    assert alike.loc[down, "class"].nunique() == 1
    assert classify(table).loc[down, "class"].nunique() == 2
    assert classify(table).loc[~down, "class"].nunique() == alike.loc[~down, "class"].nunique()
