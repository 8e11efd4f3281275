"""`kernelroof diff` against itself: runs of one set-up, in which nothing changed, and a run whose MLP works twice.

Runs of a small model are made one after another and each is compared with the one before it: how many comparisons
report a change? Then a run is made in which every layer's MLP is computed twice, and compared with the run before it:
is it found, is the MLP alone blamed, and is the extra time what the second computations take when timed bare? That
truth is their share of bare forwards (timed together, so that the machine's mood cancels) of the wall time in which
the run says that it found them.

The plant is a hook of this script only: `python benchmarks/diff.py --plant FOLDER MODEL ...` replaces the forward of
the MLPs of the model that the driver builds, and then runs `kernelroof profile` as anyone would.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 512,
    "intermediate_size": 1536, "max_position_embeddings": 1024, "num_attention_heads": 8, "num_hidden_layers": 4,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-05, "tie_word_embeddings": False, "torch_dtype": "float32",
    "vocab_size": 4096,
}  # fmt: skip
_WORKLOAD = ["--prompt", "128", "--output", "16"]
_PASSES = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=10, help="pairs of runs in which nothing changed (default: 10)")
    parser.add_argument("--planted", type=int, default=2, help="runs with a doubled MLP (default: 2)")
    parser.add_argument("--work", type=Path, help="keep the runs here, and use those that are there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = args.work or Path(temporary)
        model = work / "model"
        model.mkdir(parents=True, exist_ok=True)
        (model / "config.json").write_text(json.dumps(_CONFIG))
        quiet = 0
        for number in range(args.tries + 1):
            _profile(model, work / f"same_{number}")
            if number:
                pair = _diff(work / f"same_{number - 1}", work / f"same_{number}")
                quiet += not _reported(pair)
                print(f"pair {number}: {'; '.join(_reported(pair)) or 'no change'} ({_mood(pair)})", flush=True)
        print(f"no change reported in {quiet} of {args.tries} pairs")
        errors: dict[str, list[float]] = {}
        for number in range(args.planted):
            before, after = work / f"before_{number}", work / f"doubled_{number}"
            _profile(model, before)
            _profile(model, after, plant=True)
            for phase, error in _print_planted(_diff(before, after), json.loads((after / "truth.json").read_text())):
                errors.setdefault(phase, []).append(error)
        for phase, found in errors.items():
            print(f"its size in {phase} against bare timing, median of {len(found)}: {statistics.median(found):+.0f} %")


def _profile(model: Path, out: Path, *, plant: bool = False) -> None:
    if not (out / "report.html").exists():
        how = [__file__, "--plant", str(out)] if plant else ["-m", "kernelroof.profile", "profile"]
        subprocess.run([sys.executable, *how, str(model), *_WORKLOAD, "--out", str(out)],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip


def _diff(a: Path, b: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "kernelroof.profile", "diff", str(a), str(b), "--json"],
                          check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _reported(found: dict[str, Any]) -> list[str]:
    phases = [f"{name} {c['change_pct']:+.1f} %" for name, c in found["phases"].items() if c["changed"]]
    return phases + [f"{line['phase']} {line['module']} {line['says']}" for line in found["lines"] if line["changed"]]


def _mood(found: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {c['change_pct']:+.1f} % of a noise floor of {c['noise_pct']:.1f} %, all alike {c['drift_pct']:+.1f} %"
        for name, c in found["phases"].items()
    )


def _print_planted(found: dict[str, Any], truth: dict[str, float]) -> list[tuple[str, float]]:
    """Print what was found of the plant; by phase, by how much its size is off in per cent."""
    errors = []
    for phase, share in truth.items():
        true_ns = share * found["phases"][phase]["b_ns"]
        lines = [line for line in found["lines"] if line["phase"] == phase]
        changed = [line for line in lines if line["changed"]]
        others = [line["module"] for line in changed if ".mlp" not in line["module"]]
        extra = sum((line["b_time_ns"] or 0) - line["expected_ns"] for line in lines if ".mlp" in line["module"])
        print(
            f"doubled MLP, {phase}: {'found' if len(changed) > len(others) else 'NOT FOUND'}, "
            f"also named: {', '.join(others) or 'nothing else'}; "
            f"{extra / 1e6:.2f} ms a forward against {true_ns / 1e6:.2f} timed bare "
            f"({100 * (extra / true_ns - 1):+.0f} %)",
            flush=True,
        )
        errors.append((phase, 100 * (extra / true_ns - 1)))
    return errors


def plant(folder: Path, arguments: list[str]) -> int:
    """Run `kernelroof profile` with MLPs that work twice; then time the second work bare: its shares, to truth.json."""
    from kernelroof.profile import driver
    from kernelroof.profile.cli import main as kernelroof

    seconds: list[int] = []
    made: list[driver.Session] = []
    prepare = driver.prepare

    def prepare_doubled(spec: Any) -> driver.Session:
        session = prepare(spec)
        for name, module in session.model.named_modules():
            if name.endswith(".mlp"):
                _double(module, seconds)
        made.append(session)
        return session

    driver.prepare = prepare_doubled
    status = kernelroof(["profile", *arguments])
    found: dict[str, list[float]] = {"prefill": [], "decode": []}
    session = made[-1]
    for _ in range(_PASSES):
        del seconds[:]
        bare = driver.measure_bare(session, repeats=1)
        layers = session.model.config.num_hidden_layers
        forwards = [sum(seconds[i : i + layers]) for i in range(0, len(seconds), layers)][-(1 + session.spec.output) :]
        found["prefill"].append(forwards[0] / bare["prefill_ns"][-1])
        found["decode"] += [own / whole for own, whole in zip(forwards[1:], bare["decode_step_ns"][-1], strict=True)]
    truth = {phase: statistics.median(shares) for phase, shares in found.items()}
    (folder / "truth.json").write_text(json.dumps(truth))
    return status


def _double(module: Any, seconds: list[int]) -> None:
    once = module.forward

    def twice(*args: Any, **kwargs: Any) -> Any:
        once(*args, **kwargs)
        begin = time.perf_counter_ns()
        out = once(*args, **kwargs)
        seconds.append(time.perf_counter_ns() - begin)
        return out

    module.forward = twice


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plant"]:
        sys.exit(plant(Path(sys.argv[2]), sys.argv[3:]))
    main()
