"""Expected times: what must hold whatever was learned, and the measured tables where they are at hand."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.efficiency import Expected, NotLearned, expected_attention, expected_gemm
from kernelroof.models.efficiency_table import parse_table, shipped_table
from kernelroof.models.errors import UsageError
from kernelroof.models.kernel_work import KINDS, Attention, Chip, Gemm, attention_work, gemm_work
from kernelroof.roofline.gpus import find_gpu
from kernelroof.roofline.grid_fit import at_places, fit_grid
from kernelroof.roofline.learn_efficiency import (
    borrowing,
    learn,
    predictions,
    table_lines,
    transfer_bands,
)
from kernelroof.roofline.silicon_shapes import SMS, Measured, chip_of, read_shapes

SHARED = Path(os.environ.get("KERNELROOF_SHARED") or Path(__file__).parents[3] / "shared") / "silicon"

GPUS = st.sampled_from(sorted(SMS))
SIZES = st.integers(1, 200_000)


def gemm(gpu: str, dtype: str, m: int, n: int, k: int) -> Expected:
    found = expected_gemm(gpu, dtype, m, n, k)
    assert isinstance(found, Expected)
    return found


def attention(gpu: str, phase: str, batch: int, queries: int, context: int, window: int | None = None) -> Expected:
    found = expected_attention(gpu, phase, batch, queries, context, 32, 8, 128, "bfloat16", "bfloat16", window)
    assert isinstance(found, Expected)
    return found


@given(gpu=GPUS, m=SIZES, n=SIZES, k=SIZES)
@settings(deadline=None)
def test_a_product_is_never_faster_than_its_roof_unless_it_fits_the_cache(gpu: str, m: int, n: int, k: int) -> None:
    found = gemm(gpu, "bfloat16", m, n, k)
    figures = find_gpu(gpu)
    moved = gemm_work(Gemm(m, n, k, 2, False)).moved_bytes
    assert figures.bf16_flop_s is not None
    assert found.ideal_s == pytest.approx(max(2 * m * n * k / figures.bf16_flop_s, moved / figures.byte_s))
    if moved > (figures.l2_bytes or 0):
        assert found.ideal_s <= found.low_s
    assert 0 < found.low_s <= found.seconds <= found.high_s < math.inf


@given(
    gpu=GPUS, phase=st.sampled_from(("prefill", "decode")), batch=st.integers(1, 4000), context=st.integers(1, 10**6)
)
@settings(deadline=None)
def test_attention_is_never_faster_than_its_roof(gpu: str, phase: str, batch: int, context: int) -> None:
    found = attention(gpu, phase, batch, context if phase == "prefill" else 1, context)
    shape = Attention(batch, context if phase == "prefill" else 1, context, 32, 8, 128, 2, context)
    if attention_work(shape).moved_bytes > (find_gpu(gpu).l2_bytes or 0):
        assert found.ideal_s <= found.low_s
    assert 0 < found.low_s <= found.seconds <= found.high_s < math.inf


@given(
    context=st.integers(1, 60),
    queries=st.integers(1, 60),
    window=st.integers(1, 70),
)
def test_work_of_attention_equals_a_count_of_pairs(context: int, queries: int, window: int) -> None:
    queries = min(queries, context)
    first = context - queries
    pairs, read = 0, set()
    for query in range(first, context):
        seen = range(max(0, query - window + 1), query + 1)
        pairs += len(seen)
        read |= set(seen)
    work = attention_work(Attention(2, queries, context, 6, 3, 16, 1, min(window, context)))
    assert work.flops == 4 * 2 * 6 * 16 * pairs
    assert work.moved_bytes == 2 * 16 * (2 * 6 * queries * 2 + 2 * 3 * len(read) * 1)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (expected_gemm("rtx-4090", "bfloat16", 1, 1, 1), "no kernel was measured on rtx-4090"),
        (expected_gemm("b200", "bfloat16", 1, 1, 1), "no kernel was measured on b200"),
        (expected_gemm("a100-80gb", "fp8", 1, 1, 1), "no peak for fp8"),
        (expected_gemm("h100-sxm", "float32", 1, 1, 1), "no peak for float32"),
        (expected_attention("a100-80gb", "decode", 1, 1, 9, 8, 8, 64, "bfloat16", "bfloat16"), "d64"),
        (expected_attention("a100-80gb", "decode", 1, 1, 9, 8, 8, 128, "bfloat16", "bfloat16", 4), "window"),
        (expected_attention("h200", "decode", 1, 1, 9, 8, 8, 512, "bfloat16", "bfloat16"), "d512"),
        (expected_attention("h200", "decode", 1, 2, 9, 8, 8, 128, "bfloat16", "bfloat16"), "several queries"),
        (expected_attention("h200", "decode", 1, 1, 9, 8, 8, 128, "fp8", "fp8"), "attention in fp8"),
    ],
)
def test_what_was_not_measured_has_a_reason_and_no_guess(found: Expected | NotLearned, reason: str) -> None:
    assert isinstance(found, NotLearned)
    assert reason in found.reason


def test_an_ideal_is_kept_where_only_the_kind_is_missing() -> None:
    found = expected_attention("a100-80gb", "decode", 1, 1, 4096, 8, 8, 64, "bfloat16", "bfloat16")
    assert isinstance(found, NotLearned)
    assert found.ideal_s == pytest.approx(64 * (2 * 8 * 2 + 2 * 8 * 4096 * 2) / 2039e9)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="no size"):
        expected_gemm("h100-sxm", "bfloat16", 0, 1, 1)
    with pytest.raises(UsageError, match="phase"):
        expected_attention("h100-sxm", "train", 1, 1, 1, 1, 1, 128, "bfloat16", "bfloat16")
    with pytest.raises(UsageError, match="context 3"):
        expected_attention("h100-sxm", "prefill", 1, 4, 3, 1, 1, 128, "bfloat16", "bfloat16")
    with pytest.raises(UsageError, match="3 heads"):
        expected_attention("h100-sxm", "prefill", 1, 4, 4, 3, 2, 128, "bfloat16", "bfloat16")


def test_prediction_is_plain_python() -> None:
    code = (
        "import sys; from kernelroof.models.efficiency import expected_gemm; expected_gemm('h200', 'fp8', 1, 2, 3);"
        "sys.exit(bool({'numpy', 'pandas', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_half_precision_is_taken_as_bfloat16() -> None:
    assert expected_gemm("h200", "float16", 64, 4096, 4096) == expected_gemm("h200", "bfloat16", 64, 4096, 4096)


def test_a_window_that_covers_the_context_is_none() -> None:
    assert attention("h200", "decode", 4, 1, 1000, window=1000) == attention("h200", "decode", 4, 1, 1000)
    assert (
        attention("h200", "decode", 4, 1, 1000, window=128).seconds < attention("h200", "decode", 64, 1, 1000).seconds
    )


@pytest.mark.parametrize(
    ("found", "extrapolated"),
    [
        (gemm("h100-sxm", "bfloat16", 1, 4096, 4096), False),
        (gemm("h100-sxm", "bfloat16", 32768, 4096, 4096), False),
        (gemm("h100-sxm", "bfloat16", 32769 * 2, 4096, 4096), True),
        (gemm("h100-sxm", "bfloat16", 16, 4096, 128_256), True),
        (gemm("h100-sxm", "bfloat16", 16, 16, 4096), True),
        (attention("h100-sxm", "prefill", 1, 4096, 4096), False),
        (attention("h100-sxm", "prefill", 1, 512, 4096), True),
        (attention("h100-sxm", "prefill", 1, 40_000, 40_000), True),
        (attention("h100-sxm", "decode", 1, 1, 4096, window=128), False),
        (attention("h100-sxm", "decode", 1, 1, 4096, window=2048), True),
    ],
)
def test_sizes_outside_the_measured_ones_are_marked(found: Expected, extrapolated: bool) -> None:
    assert found.extrapolated is extrapolated


@pytest.mark.parametrize(
    ("gpu", "like"),
    [("h100-pcie", "h100-sxm"), ("h100-nvl", "h100-sxm"), ("h20", "h100-sxm"), ("a100-40gb", "a100-80gb"),
     ("a100-80gb-pcie", "a100-80gb"), ("gh200-144gb", "h200")],
)  # fmt: skip
def test_a_gpu_of_the_same_architecture_borrows_with_a_wider_band(gpu: str, like: str) -> None:
    assert shipped_table().gpus[gpu].like == like
    borrowed, own = gemm(gpu, "bfloat16", 8, 4096, 4096), gemm(like, "bfloat16", 8, 4096, 4096)
    assert borrowed.transferred
    assert not own.transferred
    low, high = shipped_table().transfer["gemm bfloat16"]
    assert borrowed.low_s <= max(borrowed.seconds * low, borrowed.ideal_s) * 1.0001
    assert borrowed.high_s >= borrowed.seconds * high * 0.9999
    assert borrowed.ideal_s / own.ideal_s == pytest.approx(find_gpu(like).byte_s / find_gpu(gpu).byte_s)


def test_the_table_has_the_figures_of_the_gpu_table_and_only_one_architecture_lends() -> None:
    for key, figures in shipped_table().gpus.items():
        gpu = find_gpu(key)
        assert find_gpu(figures.like).cc == gpu.cc
        assert figures.l2_bytes == (gpu.l2_bytes or 0)
        for dtype, chip in figures.chips.items():
            assert chip == chip_of(gpu, dtype)


def test_what_is_written_is_what_is_read() -> None:
    table = shipped_table()
    again = parse_table(table_lines(table, ["a comment"]))
    assert again.gpus == table.gpus
    assert again.transfer == table.transfer
    for key, found in table.corrections.items():
        read = again.corrections[key]
        assert read._replace(low=found.low, high=found.high, axes=found.axes) == found, key
        for name in ("low", "high"):
            assert getattr(read, name) == pytest.approx(getattr(found, name)), key
        for mine, theirs in zip(read.axes, found.axes, strict=True):
            assert mine == pytest.approx(theirs, abs=1e-4), key


def test_a_damaged_table_is_refused() -> None:
    lines = table_lines(shipped_table(), [])
    lines[-1] = lines[-1].rsplit(" ", 1)[0]
    with pytest.raises(ValueError, match="incomplete"):
        parse_table(lines)


def test_a_grid_follows_a_plane_and_ignores_outliers() -> None:
    rng = np.random.default_rng(1)
    axes = ((0.0, 1.0, 3.0), (0.0, 2.0), (0.0, 1.0))
    places = rng.random((4000, 3)) * (3, 2, 1)
    values = 0.3 * places[:, 0] - 0.2 * places[:, 1] + 0.1 * places[:, 2]
    spoilt = np.where(rng.random(4000) < 0.05, values + 4, values)
    grid = fit_grid(axes, places, spoilt, smoothness=0.01)
    assert np.abs(at_places(axes, grid, places) - values).max() < 0.02


@pytest.mark.parametrize("name", ["gemm bfloat16", "prefill d128 kv-bfloat16 full", "decode d128 kv-bfloat16 full"])
def test_learning_finds_a_known_law_again(name: str) -> None:
    """Times made from the rough time and a smooth factor, with 3 % of noise."""
    rng = np.random.default_rng(2)
    chip = Chip(132, 989.4e12, 3.35e12)
    kind = KINDS[name.split()[0]]
    terms = {"gemm": (4.0, 0.7, 0.8, 0.7, 0.6, 2.0, 1.0, 0.5), "prefill": (9.0, 0.4, 0.6, 2.0, 1.0)}
    law = terms.get(name.split()[0], (11.0, 0.75, 3.5))
    shapes: list[Gemm] | list[Attention]
    sizes = np.exp2(rng.integers(0, 8, (1500, 3))).astype(int).tolist()
    if name.startswith("gemm"):
        shapes = [Gemm(8 * m, 64 * n, 64 * k, 2, False) for m, n, k in sizes]
    elif name.startswith("prefill"):
        shapes = [Attention(b, 32 * q, 32 * q, 8 * g, 8, 128, 2, 32 * q) for b, q, g in sizes]
    else:
        shapes = [Attention(b, 1, 32 * c, 8 * g, 8, 128, 2, 32 * c) for b, c, g in sizes]
    factors = []
    for shape in shapes:
        rough = kind.rough(shape, kind.work(shape), chip, law)
        factors.append(rough.seconds * (1.2 if rough.place[0] > 256 else 1.1))
    seconds = np.array(factors) * np.exp(0.03 * rng.standard_normal(len(shapes)))
    measured = Measured("h100-sxm", name, "bfloat16", shapes, seconds)
    table = shipped_table()._replace(corrections={("h100-sxm", name): learn(measured, chip)})
    found, low, high, ideal = predictions(table, measured).T
    error = np.abs(found / np.maximum(seconds, ideal) - 1)
    assert np.median(error) < 0.05
    assert np.quantile(error, 0.9) < 0.12
    assert 0.7 < ((low <= seconds) & (seconds <= high)).mean() < 0.95


def test_the_band_between_gpus_is_that_of_the_ratios() -> None:
    """Two GPUs that differ by a known factor at every shape."""
    table, rng = shipped_table(), np.random.default_rng(3)
    sizes = np.exp2(rng.integers(5, 13, (300, 3))).astype(int).tolist()
    shapes = [Gemm(m, n, k, 2, False) for m, n, k in sizes]
    only = {key: found for key, found in table.corrections.items() if key == ("h100-sxm", "gemm bfloat16")}
    blank = Measured("h200", "gemm bfloat16", "bfloat16", shapes, np.ones(len(shapes)))
    seconds = predictions(borrowing(table, "h200", "h100-sxm"), blank)[:, 0] * 1.5
    got = transfer_bands(table._replace(corrections=only, transfer={}), [blank._replace(seconds=seconds)])
    assert got["gemm bfloat16"] == pytest.approx((1 / 1.5, 1.5))


@pytest.fixture(scope="module")
def measured() -> list[Measured]:
    pytest.importorskip("pyarrow")
    if not SHARED.is_dir():
        pytest.skip("no measured tables here")
    return read_shapes(SHARED)


def test_only_what_fits_the_cache_was_faster_than_its_roof(measured: list[Measured]) -> None:
    above: dict[tuple[str, str], int] = {}
    for group in measured:
        chip = chip_of(find_gpu(group.gpu_key), group.dtype)
        for shape, seconds in zip(group.shapes, group.seconds, strict=True):
            work = group.kind.work(shape)
            if max(work.flops / chip.flop_s, work.moved_bytes / chip.byte_s) > seconds:
                above[group.gpu_key, group.table] = above.get((group.gpu_key, group.table), 0) + 1
                assert work.moved_bytes < 52_428_800, shape
    assert above == {("h100-sxm", "gemm bfloat16"): 49, ("h200", "gemm bfloat16"): 3}


def test_the_shipped_table_is_near_what_was_measured(measured: list[Measured]) -> None:
    """On a sample of every table; the honest test, with shapes left out, is benchmarks/efficiency.py."""
    rng, checked = np.random.default_rng(4), 0
    for group in measured:
        if (group.gpu_key, group.table) not in shipped_table().corrections:
            assert group.table == "decode d512 kv-bfloat16 full"
            continue
        sample = group.take(rng.permutation(len(group.seconds))[:200])
        found, low, high, _ = predictions(shipped_table(), sample).T
        error = np.abs(found / sample.seconds - 1)
        assert np.median(error) < 0.15, (group.gpu_key, group.table)
        assert np.quantile(error, 0.9) < 0.5, (group.gpu_key, group.table)
        assert ((low <= sample.seconds) & (sample.seconds <= high)).mean() > 0.65, (group.gpu_key, group.table)
        checked += 1
    assert checked == 75
