"""Everything that one GPU can prove, in one short run: `scripts/gpu_check.sh`.

Each step adds rows to one table; a missing piece (nsys, counters) is a row and no failure. Known work goes
first: if a product and a copy of known size are not counted right, no counter is trusted. The run folders'
small files end up in one archive.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernelroof.models.errors import KernelroofError
from kernelroof.profile import backends, ncu
from kernelroof.profile import gpu_check_compare as compare
from kernelroof.profile.count_options import CountOptions
from kernelroof.profile.gpu_check_compare import MISSING, OFF, OK, Row
from kernelroof.profile.runfolder import read_json, write_json, write_text
from kernelroof.profile.tool_errors import TargetFailed
from kernelroof.profile.tools import find_tool, run_tool

ARCHIVE_BYTES = 10_000_000
_MARKS = {OK: "ok ", OFF: "OFF", MISSING: "-- "}


class Setting(NamedTuple):
    """What is checked, where, and until when (`time.monotonic`)."""

    out: Path
    model: str
    layers: int
    prompt: int
    steps: int
    dtype: str
    device: str
    deadline: float
    gpu: backends.Gpu | None


def main(argv: Sequence[str] | None = None) -> int:
    """Run every step that there is time for; 0 unless something came out wrong."""
    args = _parser().parse_args(argv)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    gpu = backends.find_gpu(args.device)
    setting = Setting(out, args.model, args.layers, args.prompt, args.steps, args.dtype, args.device, deadline, gpu)
    rows: list[Row] = []
    for name, seconds, step in STEPS:
        left = deadline - time.monotonic()
        if left < seconds:
            rows.append(Row(name, MISSING, f"left out: {left:.0f} s are left of {args.minutes:g} minutes"))
        else:
            print(f"{name} ...", file=sys.stderr, flush=True)
            rows += _guarded(name, step, setting, rows)
        write_json(out / "gpu_check.json", [row._asdict() for row in rows])
    text = table(rows)
    write_text(out / "gpu_check.txt", text)
    print(text)
    print(f"archive: {archive(out)}")
    return int(any(row.result == OFF for row in rows))


def table(rows: list[Row]) -> str:
    """The rows as text."""
    width = max((len(row.check) for row in rows), default=0)
    return "".join(f"{_MARKS[row.result]} {row.check:<{width}}  {row.words}\n" for row in rows)


def archive(out: Path, limit: int = ARCHIVE_BYTES) -> Path:
    """Pack the files of a folder, smallest first, as long as together they are below `limit` unpacked.

    Returns the path of the archive beside the folder.
    """
    path = out.with_name(f"{out.name}.tar.gz")
    files = sorted((p for p in out.rglob("*") if p.is_file()), key=lambda p: (p.stat().st_size, str(p)))
    total = 0
    with tarfile.open(path, "w:gz") as packed:
        for file in files:
            total += file.stat().st_size
            if total > limit:
                break
            packed.add(file, arcname=str(file.relative_to(out.parent)))
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu_check", description="Everything one GPU can prove, in one table.")
    parser.add_argument("--out", default="runs/gpu-check", help="folder (default: runs/gpu-check)")
    parser.add_argument("--model", default="llama-3-8b", help="preset whose shape is used (default: llama-3-8b)")
    parser.add_argument("--layers", type=int, default=4, help="layers of it (default: 4)")
    parser.add_argument("--prompt", type=int, default=1024, help="prompt tokens (default: 1024)")
    parser.add_argument("--steps", type=int, default=8, help="decode steps (default: 8)")
    parser.add_argument("--dtype", default="bfloat16", help="default: bfloat16")
    parser.add_argument("--device", default="cuda", help="default: cuda")
    parser.add_argument("--minutes", type=float, default=7.5, help="no step begins that may end later (default: 7.5)")
    return parser


def _guarded(
    name: str, step: Callable[[Setting, list[Row]], list[Row]], setting: Setting, rows: list[Row]
) -> list[Row]:
    """A step's rows; an error of ours is one row."""
    try:
        return step(setting, rows)
    except KernelroofError as error:
        return [Row(name, MISSING, error.what)]


def _doctor(setting: Setting, rows: list[Row]) -> list[Row]:
    from kernelroof.profile.doctor import all_checks
    from kernelroof.profile.doctor_machine import this_place

    return [Row(c.name, OK if c.ok else MISSING, c.words) for c in all_checks(this_place(), setting.out)]


def _known(setting: Setting, rows: list[Row]) -> list[Row]:
    """The known product and copy, and the tensor counters of the product level by level."""
    import pandas as pd
    from kernelroof.parsers.ncu import read_ncu
    from kernelroof.profile.ncu_chips import chip_of
    from kernelroof.profile.ncu_metrics_plan import base_name, tensor_levels
    from kernelroof.profile.nsight_backend import purposes

    gpu = _need_gpu(setting)
    tool = find_tool("ncu")
    program = [sys.executable, "-m", "kernelroof.profile.known_work"]
    tables = []
    for purpose in purposes(tool, gpu, CountOptions()):
        counting = ncu.Counting(purpose.metrics, "", purpose.cache_control, "none", profile_from_start=False)
        counted = ncu.count(tool, program, setting.out, counting, name=f"known-{purpose.name}", timeout=_left(setting))
        csv = ncu.export_csv(tool, counted.report, setting.out / f"known-{purpose.name}.csv")
        tables.append(read_ncu(csv, own_run=True).counters)
    together = tables[-1].assign(dram_read_bytes=tables[0]["dram_read_bytes"])
    found = compare.known_rows(together)
    if not compare.trusted(found):
        found.append(Row("counters", OFF, "known work is counted wrong: no counter of this box is to be trusted"))
    chip = chip_of(gpu.cc, gpu.name)
    listed = ncu.query_metrics(tool, chip) or frozenset()
    levels = tuple(m for m in tensor_levels(chip) if base_name(m) in listed)
    both = [
        f"{m.removesuffix('.sum')}_sparsity_{s}.sum" for m in levels if "_sparsity_" not in m for s in ("off", "on")
    ]
    asked = tuple(dict.fromkeys([*levels, *(m for m in both if base_name(m) in listed)]))
    if asked:
        counting = ncu.Counting(asked, "", "all", "none", profile_from_start=False)
        counted = ncu.count(tool, program, setting.out, counting, name="known-tensor", timeout=_left(setting))
        csv = ncu.export_csv(tool, counted.report, setting.out / "known-tensor.csv")
        metrics = read_ncu(csv, own_run=True).metrics
        sums = {str(m): float(metrics[m].sum()) for m in asked if m in metrics and not pd.isna(metrics[m]).all()}
        found += compare.level_rows(sums)
    return found


def _profile(setting: Setting, rows: list[Row]) -> list[Row]:
    """The model under whatever this box has; what it counted against what was traced."""
    import pandas as pd

    _need_gpu(setting)
    folder = _run_profile(setting, "run")
    run, kernels = read_json(folder / "run.json"), pd.read_csv(folder / "kernels.csv")
    sources = run["sources"]
    out = [Row("sources", OK, f"timeline {sources['timeline']}, counters {sources['counters']}")]
    roofs = read_json(folder / "ceilings.json")
    words = f"{roofs['flop_s'] / 1e12:.0f} TFLOP/s {roofs['dtype']}, {roofs['byte_s'] / 1e9:.0f} GB/s"
    out.append(Row("measured ceilings", OK, words))
    record = read_json(folder / "counters.json") if (folder / "counters.json").exists() else {"status": "none"}
    if record["status"] != "counted":
        return [*out, Row("counters", MISSING, str(record.get("why", "ncu is not here")))]
    out.append(Row("counting", OK, f"{record['line']}; {_passes(folder)}"))
    for words in record["unjoined"][:3]:
        out.append(Row("unjoined", OFF, words))
    ops = pd.read_csv(folder / "ops.csv")
    return out + compare.work_rows(kernels, ops, read_json(folder / "estimate.json"))


def _every(setting: Setting, rows: list[Row]) -> list[Row]:
    """Representatives against every kernel counted."""
    import pandas as pd

    record = setting.out / "run" / "counters.json"
    if not record.exists() or read_json(record)["status"] != "counted":
        return [Row("representatives", MISSING, "nothing was counted to compare with")]
    every = _run_profile(setting, "every", "--every-kernel")
    return compare.spread_rows(*(pd.read_csv(f / "kernels.csv") for f in (setting.out / "run", every)))


def _caches(setting: Setting, rows: list[Row]) -> list[Row]:
    """Decode steps with both caches."""
    _need_gpu(setting)
    found: list[dict[str, Any]] = []
    for cache in ("dynamic", "static"):
        out = setting.out / f"bare-{cache}.json"
        command = [
            sys.executable,
            "-m",
            "kernelroof.profile.driver",
            "--model",
            str(_config(setting)),
            "--cache",
            cache,
        ]
        command += ["--prompt", str(setting.prompt), "--output", str(setting.steps), "--dtype", setting.dtype]
        _ran(
            [*command, "--device", setting.device, "--out", str(out)], setting.out / f"bare-{cache}.log", _left(setting)
        )
        found.append(read_json(out))
    return compare.cache_rows(*found)


STEPS: tuple[tuple[str, float, Callable[[Setting, list[Row]], list[Row]]], ...] = (
    ("doctor", 0, _doctor),
    ("known work", 60, _known),
    ("profile", 120, _profile),
    ("caches", 40, _caches),
    ("every kernel", 120, _every),
)
"""Name, the seconds that must be left for it to begin, and the step."""


def _need_gpu(setting: Setting) -> backends.Gpu:
    if setting.gpu is None:
        raise backends.BackendUnavailable("torch sees no GPU here")
    return setting.gpu


def _config(setting: Setting) -> Path:
    """The shape that is run: a preset with few layers."""
    from kernelroof.models.presets import load_config

    path = setting.out / f"{Path(setting.model).stem}-{setting.layers}-layers.json"
    content = {**load_config(setting.model), "num_hidden_layers": setting.layers}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _run_profile(setting: Setting, name: str, *more: str) -> Path:
    folder = setting.out / name
    command = [sys.executable, "-m", "kernelroof.profile", "profile", str(_config(setting)), "--out", str(folder)]
    command += ["--prompt", str(setting.prompt), "--output", str(setting.steps), "--dtype", setting.dtype]
    command += ["--device", setting.device, "--backend", "auto", "--clock-control", "none", *more]
    _ran(command, setting.out / f"{name}.log", _left(setting))
    return folder


def _left(setting: Setting) -> float:
    """Seconds that one program may take: what is left, and half a minute to end well."""
    return max(setting.deadline - time.monotonic(), 0) + 30


def _ran(command: list[str], log: Path, timeout: float) -> None:
    done = run_tool(command, log=log, timeout=timeout)
    if done.returncode:
        said = [line for line in done.output.splitlines() if line.strip()]
        raise TargetFailed(f"{said[-1] if said else 'no output'} (see {log.name})")


def _passes(folder: Path) -> str:
    found = [read_json(p) for p in sorted(folder.glob("counters-*.json"))]
    most = {p.stem: max((int(v) for v in f["passes"].values()), default=0) for p, f in
            zip(sorted(folder.glob("counters-*.json")), found, strict=True)}  # fmt: skip
    return "passes " + ", ".join(f"{name.removeprefix('counters-')} {count}" for name, count in most.items())


if __name__ == "__main__":
    sys.exit(main())
