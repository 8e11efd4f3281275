"""How fast the estimate starts and answers, against floors measured in the same run."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from kernelroof.models.coefficients import Coefficients, coefficients
from kernelroof.models.estimate import costs_of, flags_of, ideal_times
from kernelroof.models.precision import precision
from kernelroof.models.presets import load_config, preset_names
from kernelroof.models.spec import read_spec
from kernelroof.models.sweep import Points, estimate_points
from kernelroof.models.workload import Workload

_STARTS = 21
_SINGLES = 40_000
_POINTS = 1_000_000


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def starts() -> None:
    """Start and answer of the command over a bare interpreter's start."""
    script = shutil.which("kernelroof", path=str(Path(sys.executable).parent)) or "kernelroof"
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "kernelroof estimate": [script, "estimate", "llama-3-8b", "--gpu", "a100-80gb"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        # Bytecode is kept, as on a machine where the package is installed.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def start(command: list[str]) -> None:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

        for command in commands.values():
            start(command)
        for _ in range(_STARTS):
            for name, command in commands.items():
                times[name].append(seconds(lambda c=command: start(c)))
    floor, ours = (statistics.median(t) for t in times.values())
    print(f"start and answer    {1e3 * ours:8.1f} ms over {1e3 * floor:.1f} ms bare Python: {ours / floor:.2f} x")


def models() -> list[Coefficients]:
    """Every preset with weights in 16, 8 and 4 bits and the cache in 16 and 8."""
    specs = [read_spec(load_config(n), n) for n in preset_names()]
    formats = [precision("bfloat16", w, kv) for w in ("bfloat16", "fp8", "int4") for kv in ("bfloat16", "fp8")]
    return [coefficients(spec, f) for spec in specs for f in formats]


def inputs(n: int) -> list[tuple[int, int, int, int, float, float]]:
    """`n` different questions: model in its formats, batch, prompt, output, peaks."""
    rng = random.Random(1)
    sizes = itertools.product(range(1, 200), range(1, 20_000))
    return [
        (rng.randrange(48), b, p, 1 + i % 500, rng.uniform(1e14, 1e15), 2e12 + i)
        for i, (b, p) in enumerate(itertools.islice(sizes, n))
    ]


def singles() -> None:
    """Single estimates (sizes, both phases, all ideal times), one at a time, nothing memoised but the models."""
    known = models()
    flags = flags_of(Workload())
    questions = inputs(_SINGLES)
    if len(set(questions)) != len(questions):
        raise AssertionError("the questions must all differ")

    def ours() -> None:
        for model, batch, prompt, output, flop_s, byte_s in questions:
            ideal_times(costs_of(known[model], batch, prompt, output, flags), flop_s, byte_s)

    def nothing(*_: object) -> None:
        return None

    def floor() -> None:
        for question in questions:
            nothing(*question)

    mine, bare = min(seconds(ours) for _ in range(3)), min(seconds(floor) for _ in range(3))
    print(
        f"single estimates    {_SINGLES / mine:12,.0f} /s "
        f"({mine / bare:.0f} x an empty Python call with the same arguments)"
    )


def arrays() -> None:
    """Sweep points as arrays."""
    known = models()
    rng = np.random.default_rng(1)
    n = _POINTS
    points = Points(
        model=rng.integers(0, len(known), n),
        batch=rng.integers(1, 512, n),
        prompt=rng.integers(1, 100_000, n),
        output=rng.integers(1, 5_000, n),
        flop_s=rng.uniform(1e14, 1e15, n),
        byte_s=rng.uniform(1e12, 8e12, n),
    )
    mine = min(seconds(lambda: estimate_points(known, points, flags_of(Workload()))) for _ in range(3))
    floor = min(seconds(lambda: points.batch * points.prompt + points.output) for _ in range(3))
    print(f"sweep points        {n / mine:12,.0f} /s ({mine / floor:.0f} x one multiply-add over the same arrays)")


if __name__ == "__main__":
    starts()
    singles()
    arrays()
