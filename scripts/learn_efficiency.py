"""Learn models/efficiency.csv from the measured latencies of ../shared/silicon. Takes a few minutes.

python scripts/learn_efficiency.py [FOLDER] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

from kernelroof.models.efficiency_table import TABLE_PATH
from kernelroof.roofline.learn_efficiency import all_gpus, learn_table, table_lines
from kernelroof.roofline.silicon_shapes import read_shapes

REPOSITORY = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=REPOSITORY.parent / "shared" / "silicon")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="date to write into the table")
    args = parser.parse_args()
    table = learn_table(read_shapes(args.folder), all_gpus())
    comments = [
        f"Made by scripts/learn_efficiency.py on {args.date}; do not edit by hand.",
        "Learned from the measured kernel latencies of NVIDIA aiconfigurator-core 0.12.0 (Apache-2.0): vLLM 0.14.0 on",
        "the A100; vLLM 0.24.0 on H100 and H200. Kernel time only. terms: of the rough time of models/kernel_work.py,",
        "shares of the datasheet's peak, or microseconds. first, second, third: knots of the axes. logs, third axis",
        "fastest: 100 * ln of measured over rough time. low, high: 100 * ln of the 10th and 90th percentile of",
        "measured over expected time, by interval of the first axis, then of the expected time; 'edges' has the limits",
        "of these intervals (low: sizes; high: microseconds); 'transfer' is for corrections learned on another GPU.",
        "SM counts: NVIDIA's whitepapers and product briefs; other figures: roofline/gpus.csv.",
    ]
    Path(TABLE_PATH).write_text("\n".join(table_lines(table, comments)) + "\n", encoding="utf-8")
    print(f"{len(table.corrections)} tables, {Path(TABLE_PATH).stat().st_size} bytes in {TABLE_PATH}")


if __name__ == "__main__":
    main()
