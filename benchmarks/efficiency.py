"""How well the expected time of a kernel is predicted, against the measured latencies of ../shared/silicon.

    python benchmarks/efficiency.py [FOLDER] [--only TEXT]

Prints, from one run: where an ideal time exceeds the measured one; errors on shapes and on families of shapes that
were left out of learning; errors on the H200 when only other GPUs were learned; how fast a prediction is. Errors are
|expected / measured - 1|. Learning everything three times over takes several minutes.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from kernelroof.models.efficiency import expected_attention, expected_gemm
from kernelroof.models.efficiency_table import EfficiencyTable, kind_of, pool_of, shipped_table
from kernelroof.models.kernel_work import Attention, Gemm
from kernelroof.roofline.gpus import find_gpu
from kernelroof.roofline.learn_efficiency import (
    IRREGULAR,
    all_gpus,
    borrowing,
    learn_table,
    predictions,
    transfer_bands,
)
from kernelroof.roofline.silicon_shapes import Floats, Measured, chip_of, read_shapes

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "silicon"
HALF_SEED = 7
_HOPPER_L2_BYTES = 52_428_800
"""The H200's L2 is on no sheet; it has the H100's chip."""


def ideal_above_measured(measured: Iterable[Measured]) -> None:
    """Count and list rows that ran faster than their roof."""
    print("\nideal over measured (share of the roof), and rows above 1")
    print(
        f"{'GPU':<12}{'kernels':<18}{'rows':>8}{'median':>8}{'99 %':>8}{'max':>8}{'above':>7}  largest operands above"
    )
    listed: list[str] = []
    for (gpu, pool), groups in _pooled(measured).items():
        shares, above_bytes = [], [0]
        for group in groups:
            chip = chip_of(find_gpu(gpu), group.dtype)
            for shape, seconds in zip(group.shapes, group.seconds, strict=True):
                work = group.kind.work(shape)
                share = max(work.flops / chip.flop_s, work.moved_bytes / chip.byte_s) / seconds
                shares.append(share)
                if share > 1:
                    above_bytes.append(work.moved_bytes)
                    listed.append(
                        f"  {gpu} {group.table} {_sizes(shape)}: {share:.3f}, {work.moved_bytes / 1e6:.1f} MB"
                    )
        values = np.array(shares)
        largest = f"{max(above_bytes) / 1e6:.1f} MB of {_HOPPER_L2_BYTES / 1e6:.1f} MB L2" if max(above_bytes) else ""
        print(
            f"{gpu:<12}{pool:<18}{len(values):>8}{np.median(values):>8.2f}{np.quantile(values, 0.99):>8.2f}"
            f"{values.max():>8.2f}{(values > 1).sum():>7}  {largest}"
        )
    print(f"the {len(listed)} rows above 1:")
    print("\n".join(listed))


def left_out(measured: list[Measured], title: str, family: Callable[[Gemm | Attention], object]) -> None:
    """Learn on one half of the families, predict the other."""
    rng = np.random.default_rng(HALF_SEED)
    learned, tested = [], []
    for group in measured:
        keys = [family(shape) for shape in group.shapes]
        names = sorted(set(keys), key=repr)
        chosen = {names[i] for i in rng.permutation(len(names))[: (len(names) + 1) // 2]}
        inside = np.array([key in chosen for key in keys])
        learned.append(group.take(np.flatnonzero(inside)))
        tested.append(group.take(np.flatnonzero(~inside)))
    table = learn_table(learned, all_gpus())
    _errors(title, [(table, group) for group in tested if group.shapes])


def across(measured: list[Measured]) -> None:
    """Learn on A100 and H100, predict the H200; the band comes from the opposite direction."""
    h100 = [group for group in measured if group.gpu_key == "h100-sxm"]
    h200 = [group for group in measured if group.gpu_key == "h200"]
    without = learn_table([group for group in measured if group.gpu_key != "h200"], all_gpus())
    opposite = borrowing(learn_table(h200, all_gpus()), "h100-sxm", "h200")
    bands = transfer_bands(opposite._replace(transfer={}), h100)
    table = without._replace(transfer=bands)
    _errors("learned on A100 and H100, tested on H200 (band of the opposite direction)", [(table, g) for g in h200])


def speed(measured: list[Measured]) -> None:
    """Predictions per second of CPU time through the public functions, one at a time, nothing memoised."""
    shipped_table()
    rng = np.random.default_rng(HALF_SEED)
    print("\npredictions per second of CPU time, one at a time")
    for name in ("gemm bfloat16", "gemm fp8", "prefill d128 kv-bfloat16 full", "decode d128 kv-bfloat16 full"):
        group = next(group for group in measured if group.gpu_key == "h100-sxm" and group.table == name)
        sample = group.take(rng.permutation(len(group.seconds))[:5000])
        phase, rates = kind_of(name), []
        for _ in range(3):
            began = time.process_time()
            for shape in sample.shapes:
                if isinstance(shape, Gemm):
                    expected_gemm("h100-sxm", name.split()[1], shape.m, shape.n, shape.k)
                else:
                    expected_attention("h100-sxm", phase, *shape[:6], "bfloat16", "bfloat16")
            rates.append(len(sample.shapes) / (time.process_time() - began))
        print(f"{name:<34}{max(rates):>10,.0f}")


def _errors(title: str, cases: list[tuple[EfficiencyTable, Measured]]) -> None:
    print(f"\n{title}")
    print(f"{'GPU':<12}{'kernels':<18}{'rows':>8}{'median %':>10}{'90th %':>8}{'in band %':>11}  worst table")
    by_pool: dict[tuple[str, str], list[tuple[str, Floats, Floats]]] = defaultdict(list)
    for table, group in cases:
        if group.table in IRREGULAR:
            continue
        seconds, low, high, _ = predictions(table, group).T
        error = np.abs(seconds / group.seconds - 1)
        by_pool[group.gpu_key, pool_of(group.table)].append(
            (group.table, error, (low <= group.seconds) & (group.seconds <= high))
        )
    for (gpu, pool), parts in by_pool.items():
        error, inside = np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts])
        name, worst, _ = max(parts, key=lambda part: float(np.quantile(part[1], 0.9)))
        detail = f"{name}: {100 * np.median(worst):.1f}, {100 * np.quantile(worst, 0.9):.1f}" if len(parts) > 1 else ""
        print(
            f"{gpu:<12}{pool:<18}{len(error):>8}{100 * np.median(error):>10.1f}{100 * np.quantile(error, 0.9):>8.1f}"
            f"{100 * inside.mean():>11.1f}  {detail}"
        )


def _pooled(measured: Iterable[Measured]) -> dict[tuple[str, str], list[Measured]]:
    found: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for group in measured:
        found[group.gpu_key, pool_of(group.table)].append(group)
    return found


def _sizes(shape: Gemm | Attention) -> str:
    names = ("m", "n", "k") if isinstance(shape, Gemm) else shape._fields
    return " ".join(f"{name}={getattr(shape, name)}" for name in names)


def _family(shape: Gemm | Attention) -> object:
    """Weights of one shape, or one arrangement of heads: all its sizes are learned or tested together."""
    return (shape.n, shape.k) if isinstance(shape, Gemm) else (shape.heads, shape.kv_heads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--only", default="", help="only tables whose name contains this")
    args = parser.parse_args()
    measured = [group for group in read_shapes(args.folder) if args.only in group.table]
    ideal_above_measured(measured)
    speed(read_shapes(args.folder))
    left_out(measured, "half of the distinct shapes left out", lambda shape: shape)
    left_out(measured, "half of the (n, k) or (heads, KV heads) left out", _family)
    across(measured)


if __name__ == "__main__":
    main()
