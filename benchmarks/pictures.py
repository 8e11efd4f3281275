"""What a kernel picture costs beside the floor: an empty Matplotlib figure of the same size, saved as PNG.

    python benchmarks/pictures.py [N]

Prints both in milliseconds of CPU time (medians of N) and their ratio.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.figure import new_figure, save_png
from kernelroof.roofline.place import place
from kernelroof.roofline.plot_kernel import kernel_roofline

MACHINE = Ceilings("benchmark", 186e9, 35.3e9, 140e9, "float32", "measured", None, "")
LAUNCHES = 96


def launches() -> pd.DataFrame:
    """Launches of one role, each a little slower than the one before."""
    rows = [
        {
            "phase": "decode", "step": i, "module": "model.layers.0.mlp.up_proj", "kind": "mlp", "op": "aten::mm",
            "kernel": "gemv", "count": 1, "reason": None, "time_ns": 1_000_000 + 9_000 * i,
            "flops": 11_500_000, "dram_read_bytes": 23_000_000, "dram_write_bytes": 4_480,
        }
        for i in range(LAUNCHES)
    ]  # fmt: skip
    names = ("time_ns", "flops", "dram_read_bytes", "dram_write_bytes", "count", "step")
    return place(pd.DataFrame(rows).astype(dict.fromkeys(names, "Int64")), MACHINE)


def cpu_ms(draw: Callable[[], object], times: int) -> float:
    """Median CPU time of a call, after one that fills the caches of fonts."""
    draw()
    found = []
    for _ in range(times):
        start = time.process_time()
        draw()
        found.append(1e3 * (time.process_time() - start))
    return statistics.median(found)


def main() -> None:
    """Print picture, floor, ratio."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    rows = launches()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.png"

        def empty() -> None:
            figure, _ = new_figure(11, 6.9)
            figure.add_axes((0.115, 0.24, 0.66, 0.62))
            save_png(figure, path)

        picture = cpu_ms(lambda: kernel_roofline(rows, MACHINE, {"own": (11.5e6, 23e6)}, path, title="mlp mm"), times)
        floor = cpu_ms(empty, times)
    print(f"kernel picture {picture:.0f} ms, empty figure {floor:.0f} ms (CPU time): ratio {picture / floor:.2f}")


if __name__ == "__main__":
    main()
