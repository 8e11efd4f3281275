"""What ranges and the profiler add to a decode step, over the bare step of the same process."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from kernelroof.models.presets import load_config
from kernelroof.profile.driver import measure_bare, measure_ranges, prepare
from kernelroof.profile.driver_spec import DriverSpec
from kernelroof.profile.torch_backend import record

_ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="tiny-llama")
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--output", type=int, default=32)
    args = parser.parse_args()
    spec = DriverSpec(config=load_config(args.model), prompt=args.prompt, output=args.output, repeats=1)
    session = prepare(spec)
    steps: dict[str, list[int]] = {
        name: [] for name in ("bare", "phase ranges", "layer ranges", "module ranges", "torch.profiler, module ranges")
    }
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(_ROUNDS):
            runs = {
                "bare": measure_bare(session),
                **{f"{depth} ranges": measure_ranges(session, depth) for depth in ("phase", "layer", "module")},
                "torch.profiler, module ranges": record(session, Path(folder) / "trace.json.gz", "module"),
            }
            for name, times in runs.items():
                steps[name] += times["decode_step_ns"][0]
    bare = statistics.median(steps["bare"])
    print(f"{args.model}, prompt {args.prompt}, median of {len(steps['bare'])} decode steps")
    for name, found in steps.items():
        median = statistics.median(found)
        print(f"  {name:<32}{median / 1e6:8.2f} ms  {median / bare:5.2f} x bare")


if __name__ == "__main__":
    main()
