"""One question asked of this estimator and of two public ones, in one run: answers and speed.

    python benchmarks/estimators.py [--python PATH]

The others (ridgepoint 0.1.2, whose core is Rust, and servcalc 0.1.0) need an environment of their own:
PATH is its Python; without it one is made in a temporary folder (half a minute). Each estimator runs in a
fresh process and answers the same question again and again, with other prompt lengths.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import venv
from pathlib import Path

from fresh import CLOCKS, run
from kernelroof.models.presets import load_config

_PACKAGES = ("ridgepoint==0.1.2", "servcalc==0.1.0")
_QUESTION = "Llama-3-8B in 16 bit on one A100 80GB, batch 1, prompt 1024, 256 decode steps"

_OURS = """
import json
from kernelroof.models.coefficients import coefficients
from kernelroof.models.estimate import costs_of, flags_of, ideal_times
from kernelroof.models.expected import expected_phase
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload, precision_of
spec = read_spec(load_config("llama-3-8b"), "llama-3-8b")
load = make_workload(spec, prompt=1024, output=256)
model, flags = coefficients(spec, precision_of(spec, load)), flags_of(load)
def ask(prompt):
    cost = costs_of(model, 1, prompt, 256, flags)
    return cost, ideal_times(cost, 312e12, 2039e9)
cost, times = ask(1024)
band = [expected_phase(spec, load, "a100-80gb", p, flop_s=312e12, byte_s=2039e9) for p in ("prefill", "decode")]
answer = {"weights_gb": cost.weight_bytes / 1e9, "kv_mb": cost.kv_bytes / 1e6,
  "ttft_ms": [1e3 * x for x in (band[0].low_s, band[0].seconds, band[0].high_s)],
  "tpot_ms": [1e3 * x for x in (band[1].low_s, band[1].seconds, band[1].high_s)],
  "ideal_ms": [1e3 * times.prefill_s, 1e3 * times.first_step_s]}
"""
_ARRAYS = """
import numpy as np
from kernelroof.models.sweep import Points, estimate_points
prompts = np.arange(1, 200_001)
def sweep():
    return estimate_points([model], Points(0, 1, prompts, 256, 312e12, 2039e9), flags)
assert sweep()[1].first_step_s[1023] == times.first_step_s
began = clocks()
for _ in range(5):
    sweep()
answer["arrays_per_s"] = 5 * len(prompts) / since(began)[1]
"""
_RIDGEPOINT = """
import json, ridgepoint
def ask(prompt):
    size = {"dtype": "fp16", "ctx": prompt + 256, "prompt": prompt}
    return ridgepoint.fit("llama-3-8b", "a100-80gb", count=1, as_json=True, **size)
found = ask(1024)
found = json.loads(found) if isinstance(found, str) else found
speed, memory = found["speed"], found["memory"]
answer = {"weights_gb": memory["weights_bytes"]["best"] / 1e9, "kv_mb": found["capacity"]["bytes_per_seq"] / 1e6,
  "ttft_ms": [1e3 * speed["ttft_s"][k] for k in ("low", "best", "high")],
  "tpot_ms": [1e3 / speed["decode_tok_s"][k] for k in ("high", "best", "low")]}
"""
_SERVCALC = """
import json, sys
from servcalc import Workload, estimate
def ask(prompt):
    load = Workload(prompt_len=prompt, gen_len=257, concurrency=(1,))
    return estimate(sys.argv[1], "A100 80GB", profile="hf", workload=load)
found = ask(1024)
point = found.points[0]
answer = {"weights_gb": found.weight_bytes / 1e9, "kv_mb": found.kv_bytes_per_token * 1280 / 1e6,
  "ttft_ms": [point.ttft_ms.low, point.ttft_ms.mid, point.ttft_ms.high],
  "tpot_ms": [point.itl_ms.low, point.itl_ms.mid, point.itl_ms.high]}
"""
_REPEAT = """
n, began = 0, clocks()
while since(began)[1] < 2:
    for prompt in range(1, 101):
        ask(prompt)
    n += 100
answer["per_s"] = n / since(began)[1]
print(json.dumps(answer))
"""


def main() -> None:
    """Ask all three and print what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", metavar="PATH", help="Python of an environment that has both packages")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        theirs = args.python or _environment(Path(folder) / "environment")
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(load_config("llama-3-8b")))
        asked = {
            "kernelroof": [sys.executable, "-c", CLOCKS + _OURS + _ARRAYS + _REPEAT],
            "ridgepoint": [theirs, "-c", CLOCKS + _RIDGEPOINT + _REPEAT],
            "servcalc (hf)": [theirs, "-c", CLOCKS + _SERVCALC + _REPEAT, str(config)],
        }
        answers = {name: json.loads(run(command).output) for name, command in asked.items()}
    _print(answers)


def _environment(folder: Path) -> str:
    print(f"installing {' and '.join(_PACKAGES)} ...", file=sys.stderr)
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    run([python, "-m", "pip", "install", "-q", *_PACKAGES])
    return python


def _print(answers: dict[str, dict[str, object]]) -> None:
    print(_QUESTION)
    print(f"{'':<15}{'weights':>10}{'KV':>10}{'prefill, ms':>24}{'decode step, ms':>24}{'estimates/s (CPU)':>20}")
    for name, a in answers.items():
        bands = [_band(a[key]) for key in ("ttft_ms", "tpot_ms")]
        print(
            f"{name:<15}{a['weights_gb']:>7.2f} GB{a['kv_mb']:>7.1f} MB{bands[0]:>24}{bands[1]:>24}{a['per_s']:>20,.0f}"
        )
    ideal = answers["kernelroof"]["ideal_ms"]
    assert isinstance(ideal, list)
    ours = answers["kernelroof"]["per_s"]
    arrays = answers["kernelroof"]["arrays_per_s"]
    print(f"{'  ideal':<15}{'':>20}{ideal[0]:>24.1f}{ideal[1]:>24.2f}{arrays:>20,.0f}  (ideal times as arrays)")
    for name, a in answers.items():
        if name != "kernelroof":
            print(f"kernelroof answers {ours / a['per_s']:.1f} times as often as {name}")  # type: ignore[operator]
    print(
        "Why they differ. Weights and KV: all three count the same. Decode: ridgepoint divides the weights (embedding\n"
        "table included) and KV by a fixed share of bandwidth (MBU 0.61, vLLM with its host time); servcalc adds a\n"
        "prior efficiency, a per-step overhead, and the copies of a cache that is reallocated each step; kernelroof\n"
        "adds up vLLM's kernels as measured on the A100, without the host. Prefill: ridgepoint takes a band of MFU\n"
        "from literature, servcalc prior curves, kernelroof measured products and attention. Speed: ridgepoint's core\n"
        "is Rust; one at a time, Python is slower than that, and as arrays it is not."
    )


def _band(values: object) -> str:
    assert isinstance(values, list)
    low, best, high = values
    return f"{best:.1f} ({low:.1f} - {high:.1f})"


if __name__ == "__main__":
    main()
