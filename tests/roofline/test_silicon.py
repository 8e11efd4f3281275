"""Measured kernels: work from shapes by hand, and the real tables where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from kernelroof.models.errors import ReportError
from kernelroof.roofline import plot_silicon
from kernelroof.roofline.silicon import read_silicon, summary

pytest.importorskip("pyarrow")
SHARED = Path(os.environ.get("KERNELROOF_SHARED") or Path(__file__).parents[3] / "shared") / "silicon"
COMMON: dict[str, Any] = {"device": "NVIDIA A100-SXM4-80GB", "kernel_source": "x", "latency": 1.0}
ATTENTION: dict[str, Any] = {
    **COMMON, "batch_size": 2, "isl": 4, "num_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
    "attn_dtype": "bfloat16", "kv_cache_dtype": "fp8", "step": 0,
}  # fmt: skip


def points(folder: Path, **row: Any) -> pd.Series[Any]:
    path = folder / "x.parquet"
    pd.DataFrame([row]).to_parquet(path)
    return read_silicon([path])[0].points.iloc[0]


def test_a_matrix_product(tmp_path: Path) -> None:
    got = points(tmp_path, **COMMON, op_name="gemm", gemm_dtype="bfloat16", m=8, n=16, k=32)
    assert got["flops"] == 2 * 8 * 16 * 32
    assert got["bytes"] == 2 * (8 * 32 + 32 * 16 + 8 * 16)
    assert got["pct_of_roof"] == pytest.approx(100 * got["bytes"] / 2039e9 / 1e-3)


@pytest.mark.parametrize(("window", "pairs"), [(0, 10), (2, 1 + 2 + 2 + 2), (9, 10)])
def test_prefill_attention_is_causal_and_windowed(tmp_path: Path, window: int, pairs: int) -> None:
    got = points(tmp_path, **ATTENTION, op_name="context_attention", window_size=window)
    assert got["flops"] == 4 * 2 * 8 * 64 * pairs
    assert got["bytes"] == 2 * 4 * 64 * (2 * 8 * 2 + 2 * 2 * 1)


@pytest.mark.parametrize(("window", "context"), [(0, 100), (64, 64)])
def test_decode_attention_reads_the_context_capped_by_the_window(tmp_path: Path, window: int, context: int) -> None:
    row = {**ATTENTION, "isl": 1, "step": 100, "window_size": window, "op_name": "generation_attention"}
    got = points(tmp_path, **row)
    assert got["flops"] == 4 * 2 * 8 * 64 * context
    assert got["bytes"] == 2 * 64 * (2 * 8 * 2 + 2 * 2 * context)


def test_another_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no table of measured kernels"):
        points(tmp_path, a=1)
    with pytest.raises(ReportError, match="lacks k"):
        points(tmp_path, **COMMON, op_name="gemm", gemm_dtype="bfloat16", m=1, n=1)
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ReportError, match="parquet"):
        read_silicon([tmp_path / "x.parquet"])


@pytest.mark.skipif(not SHARED.is_dir(), reason="no measured tables here")
@pytest.mark.parametrize(
    ("gpu", "rows", "median", "p99", "above"),
    [("a100", 9240, 48, 93, 0), ("h200", 35742, 58, 87, 3), ("h100", 35742, 65, 91, 49)],
)
def test_an_ideal_time_is_below_the_measured_one(gpu: str, rows: int, median: int, p99: int, above: int) -> None:
    found = read_silicon([SHARED / f"{gpu}_sxm_gemm_perf.parquet"])[0]
    row = summary(found).query("dtype == 'bfloat16'").iloc[0]
    assert row["rows"] == rows
    assert row["median_pct"] == pytest.approx(median, abs=1)
    assert row["p99_pct"] == pytest.approx(p99, abs=1)
    assert row["above"] == above
    over = found.points[(found.points["dtype"] == "bfloat16") & (found.points["pct_of_roof"] > 100)]
    assert (over["bytes"] < 60e6).all()  # operands within L2


def test_the_picture_holds_its_note_and_names_only_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    pd.DataFrame([{**COMMON, "op_name": "gemm", "gemm_dtype": "bfloat16", "m": 8, "n": 16, "k": 32}]).to_parquet(path)
    figures: list[Any] = []
    monkeypatch.setattr(plot_silicon, "save_png", lambda figure, path, formats: figures.append(figure))
    plot_silicon.silicon_roofline(read_silicon([path]), "bfloat16", tmp_path / "x.png")
    (figure,) = figures
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["matrix products"]
    renderer, width = figure.canvas.get_renderer(), figure.bbox.x1
    assert all(t.get_window_extent(renderer).x1 <= width for t in figure.texts)
