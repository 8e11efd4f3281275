"""A trace of torch.profiler to the launch table, against HolisticTraceAnalysis on the same file.

    python benchmarks/kineto.py [--hta PYTHON] [--events 500000] [--runs 3] [--plain]

Generates a trace as torch 2.13 exports it (CPU ops with shapes, ranges, Python frames, launches, kernels, flow
arrows), packed with gzip unless `--plain`. Then both read it in turn, each in a fresh process: our reader to
the launch table; `TraceAnalysis(trace_dir=...)`, the ordinary entry of HolisticTraceAnalysis, which leaves
the events in a data frame. Wanted: 10 times as fast, and half the peak memory at most.

HolisticTraceAnalysis brings all of Jupyter and its own choice of pandas, so it never goes into the
environment of kernelroof: `--hta` names the Python of another one that has it; without it a throw-away
environment is made (a minute, 500 MB) and removed at the end.
"""

from __future__ import annotations

import argparse
import gzip
import random
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import IO, Any

from decode_walk import Walk
from fresh import CLOCKS, generated, median, run, seconds

HTA = "HolisticTraceAnalysis==0.5.0"
PID, STREAM = 4242, 7
EPOCH_US = 5_144_380_813_820
READ = f"""{CLOCKS}
began = clocks()
from kernelroof.parsers.kineto import launches, read_kineto
imports, began = since(began), clocks()
table = launches(read_kineto(sys.argv[1]))
print(len(table), (table["phase"] != "(unattributed)").sum(), *imports, *since(began))
"""
THEIRS = f"""{CLOCKS}
import pathlib
began = clocks()
from hta.trace_analysis import TraceAnalysis
imports, began = since(began), clocks()
found = TraceAnalysis(trace_dir=str(pathlib.Path(sys.argv[1]).parent)).t.get_trace(0)
spent = since(began)
import pandas
print((found["stream"] > 0).sum(), pandas.__version__, *imports, *spent)
"""
HEAD = """ {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936,
      "computeMajor": 9, "computeMinor": 0,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 65536, "warpSize": 32,
      "sharedMemPerBlock": 49152, "numSms": 132
    }
    ],
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
      "with_stack": 1,
      "record_shapes": 1,
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
"""
EVENT = """  {
    "ph": "X",
    "cat": "%s",
    "name": "%s",
    "pid": %d,
    "tid": %d,
    "ts": %s,
    "dur": %s
    ,
    "args": {
      %s
    }
  }"""
FLOW = """  {
    "ph": "%s",
    "id": %d,
    "pid": %d,
    "tid": %d,
    "ts": %s,
    "cat": "ac2g",
    "name": "ac2g"%s
  }"""


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _at(ns: int) -> str:
    return f"{EPOCH_US + ns // 1000}.{ns % 1000:03d}"


class Trace(Walk):
    """A trace while it is made: the host's events in order of their start, then what CUPTI saw."""

    def __init__(self, events: int) -> None:
        super().__init__()
        self.wanted = events
        self.random = random.Random(1)
        self.host: list[str] = []
        self.device: list[str] = []
        self.kernels = 0

    @property
    def events(self) -> int:
        return len(self.host) + len(self.device)

    def full(self) -> bool:
        return self.events >= self.wanted

    def begun(self) -> int:
        self.host.append("")
        return len(self.host) - 1

    def ended(self, token: int, start: int, text: str) -> None:
        ids = f'"External id": {token + 1},"Record function id": 0, '
        if text.startswith("aten::"):
            width = 2 ** self.random.randint(10, 14)
            args = (
                f'{ids}"Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"], '
                f'"Input Strides": [[{width}, 1], [1, {width}]], "Input Dims": [[1, {width}], [{width}, 4096]], '
                f'"Ev Idx": {token}'
            )
            self.host[token] = self._event("cpu_op", text, start, self.now, args)
            return
        self.host[token] = self._event("user_annotation", text, start, self.now, f'{ids}"Ev Idx": {token}')
        frame = f'"Python parent id": {token - 1}, "Python id": {token}, "Python module id": {token % 400}'
        name = f"nn.Module: Linear_{token % 400}"
        self.host.append(self._event("python_function", name, start + 1, self.now - 1, f'{frame}, "Ev Idx": {token}'))

    def called(self, start: int, end: int, text: str) -> None:
        args = f'"External id": {len(self.host)}, "cbid": 211, "correlation": {self.correlation}'
        self.device.append(self._event("cuda_runtime", text, start, end, args))
        if text == "cudaLaunchKernel":
            self.device.append(FLOW % ("s", self.correlation, PID, PID, _at(start), ""))

    def ran(self, start: int, end: int, text: str) -> None:
        blocks = self.random.randint(1, 512)
        args = (
            f'"External id": {len(self.host)}, "queued": 0, "device": 0, "context": 1, "stream": {STREAM}, '
            f'"correlation": {self.correlation}, "registers per thread": 32, "shared memory": 0, '
            f'"blocks per SM": {blocks / 132:.6f}, "warps per SM": {blocks / 33:.6f}, '
            f'"grid": [{blocks}, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 25'
        )
        self.kernels += 1
        self.device.append(self._event("kernel", text, start, end, args, (0, STREAM)))
        self.device.append(FLOW % ("f", self.correlation, 0, STREAM, _at(start), ',\n    "bp": "e"'))

    def _event(
        self, category: str, name: str, start: int, end: int, args: str, place: tuple[int, int] = (PID, PID)
    ) -> str:
        return EVENT % (category, name, *place, _at(start), _us(end - start), args)

    def write(self, stream: IO[str]) -> None:
        """The trace as JSON."""
        stream.write(HEAD)
        for number, event in enumerate((*self.host, *self.device)):
            stream.write(f",\n{event}" if number else event)
        stream.write('\n  ],"traceName": "generated.json" }\n')


def generate(path: Path, events: int) -> tuple[int, int]:
    """Write a trace of at least that many events; returns how many, and how many kernels."""
    trace = Trace(events)
    trace.walk()
    with gzip.open(path, "wt", 6) if path.suffix == ".gz" else path.open("w") as stream:
        trace.write(stream)
    return trace.events, trace.kernels


def _environment(folder: Path) -> str:
    """The Python of a new environment with HolisticTraceAnalysis in it."""
    print(f"making an environment with {HTA} ...", flush=True)
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", HTA], check=True)
    return python


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--plain", action="store_true", help="a .json instead of a .json.gz")
    options: Any = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = options.hta or _environment(Path(folder) / "hta")
        # HolisticTraceAnalysis reads every trace in a folder: this one holds nothing else.
        path = Path(folder) / "traces" / ("generated.json" if options.plain else "generated.json.gz")
        path.parent.mkdir()
        events, kernels = generated(generate, path, options.events)
        print(
            f"trace:      {events:,} events, {kernels:,} kernels, {path.stat().st_size / 1e6:.0f} MB {path.suffix[1:]}"
        )
        ours, theirs = [], []
        for _ in range(options.runs):
            ours.append(run([sys.executable, "-c", READ, str(path)]))
            theirs.append(run([python, "-I", "-c", THEIRS, str(path)]))
            rows, attributed = map(int, ours[-1].output.split()[:2])
            if not rows == attributed == kernels == int(theirs[-1].output.split()[0]):
                sys.exit(f"{kernels} kernels recorded; kernelroof: {ours[-1].output}HTA: {theirs[-1].output}")
    mine, other = median(ours), median(theirs)
    imports, _, read, read_cpu = (seconds(ours, word) for word in range(2, 6))
    their_imports, _, load, load_cpu = (seconds(theirs, word) for word in range(2, 6))
    print(f"kernelroof: {imports:.2f} s importing, {read:.2f} s to the launch table (CPU {read_cpu:.2f} s)")
    print(f"            process {mine.wall_s:.2f} s (CPU {mine.cpu_s:.2f} s), peak {mine.peak_mb:.0f} MB")
    print(f"HTA:        {their_imports:.2f} s importing, {load:.2f} s loading (CPU {load_cpu:.2f} s)")
    print(f"            process {other.wall_s:.2f} s (CPU {other.cpu_s:.2f} s), peak {other.peak_mb:.0f} MB")
    print(f"            with pandas {other.output.split()[1]}")
    print(f"faster:     {load / read:.1f} x reading, CPU {load_cpu / read_cpu:.1f} x (wanted: at least 10)")
    print(f"            {other.wall_s / mine.wall_s:.1f} x process, CPU {other.cpu_s / mine.cpu_s:.1f} x")
    print(f"memory:     {mine.peak_mb / other.peak_mb:.2f} of theirs (wanted: at most 0.5)")


if __name__ == "__main__":
    main()
