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
        "the A100; vLLM 0.24.0 on H100 and H200. Kernel time only. Numbers under 'at', 'band low', 'band high' and",
        "'transfer' are 100 * ln of a factor: on the rough time of models/kernel_work.py ('at'), else on the expected",
        "time. Rows 'at' hold the second axis by the third, third fastest. Terms without _us are shares of the peak.",
        "SM counts: NVIDIA's whitepapers and product briefs; other figures: roofline/gpus.csv.",
    ]
    Path(TABLE_PATH).write_text("\n".join(table_lines(table, comments)) + "\n", encoding="utf-8")
    print(f"{len(table.corrections)} tables, {Path(TABLE_PATH).stat().st_size} bytes in {TABLE_PATH}")


if __name__ == "__main__":
    main()
