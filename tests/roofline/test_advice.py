"""Sentences on kernels and phases: each follows from the figures beside it, for any figures."""

import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.roofline.advice import Setting, phase_answers, sentence
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.summary import PhaseSummary
from kernelroof.roofline.waterfall import TERMS

ROOFS = Ceilings("here", 1e12, 1e11, None, "float32", "measured", None, "")


def setting(phase="decode", on_gpu=False, cache="dynamic", steps=10):
    return Setting(phase, steps, on_gpu, 1, cache, ROOFS)


def row(**more):
    found = {
        **{"label": "mlp.up_proj mm", "role": "model.layers.*.mlp.up_proj", "kind": "mlp", "op": "aten::mm"},
        **{"kernel": "aten::mm", "launches": 40, "time_ns": 4e7, "recoverable_ns": 2e7, "ideal_ns": 2e7},
        **{"bound": "memory", "pct_of_roof": 50.0, "intensity": 0.5, "reason": None},
        **{"attained_flop_s": 2.5e10, "attained_byte_s": 5e10},
    }
    return {**found, **more}


def test_what_each_bound_asks_of_a_product():
    assert "fewer bytes" in sentence(row(pct_of_roof=90.0), setting())
    assert "narrower type" in sentence(row(bound="compute", pct_of_roof=90.0), setting())
    assert "batch" in sentence(row(bound="latency", pct_of_roof=5.0), setting())
    assert "streams 50.0 GB/s where 100 GB/s are there" in sentence(row(bound="inefficient"), setting())
    many = sentence(row(bound="inefficient", intensity=400.0, attained_flop_s=2.5e11), setting("prefill"))
    assert "reaches 250 GFLOP/s of 1.00 TFLOP/s" in many


def test_what_is_not_known_is_said():
    assert sentence(row(bound="unknown", reason="no bytes", pct_of_roof=None), setting()) == "not judged: no bytes"
    assert "figures are missing" in sentence(row(bound="unknown", pct_of_roof=None), setting())
    assert sentence(row(time_ns=None), setting()).startswith("estimated, but not recorded")


def test_copies_of_the_cache_are_cured_only_where_there_are_any():
    copy = {"kind": "cache", "op": "aten::cat", "kernel": "aten::cat"}
    assert "static cache" in sentence(row(**copy), setting())
    assert "static cache" not in sentence(row(**copy), setting(cache="static"))
    assert "static cache" not in sentence(row(**copy), setting(phase="prefill"))


def test_a_bound_that_its_mean_does_not_show_is_not_left_as_a_contradiction():
    words = sentence(row(bound="inefficient", pct_of_roof=98.0), setting())
    assert words.startswith("inefficient for most of its time, though 98 % of its roof on the whole")
    assert sentence(row(bound="inefficient", pct_of_roof=0.03), setting()).startswith("inefficient, under 0.1 %")


@given(
    bound=st.sampled_from(("memory", "compute", "latency", "inefficient", "unknown")),
    pct=st.none() | st.floats(0, 150),
    op=st.sampled_from(("aten::mm", "aten::mul", "aten::cat", "aten::scaled_dot_product_attention")),
    kind=st.sampled_from(("mlp", "cache", "norm", "attention", "head")),
    phase=st.sampled_from(("prefill", "decode")),
    cache=st.sampled_from(("dynamic", "static")),
    gpu=st.booleans(),
)
def test_no_sentence_contradicts_its_figures(bound, pct, op, kind, phase, cache, gpu):
    words = sentence(row(bound=bound, pct_of_roof=pct, op=op, kernel=op, kind=kind), setting(phase, gpu, cache))
    for name in ("memory", "compute", "latency"):
        if bound != name:
            assert f"{name}-bound" not in words
    if bound == "unknown":
        assert words.startswith("not judged")
    elif pct is not None and pct >= 10:
        assert f"{pct:.0f} % of its roof" in words
    if not gpu:
        assert not re.search(r"tensor core|CUDA|occupancy|waves|SM\b", words)
    assert "nan" not in words
    assert "None" not in words


def summary(**more):
    found = {
        **{"phase": "decode", "steps": 10, "wall_ns": 1e9, "kernel_ns": 6e8, "overlap_ns": 0.0, "launches": 400},
        **{"unplaced": 0, "unplaced_ns": 0.0, "flops": 10**9, "bytes": 2 * 10**9, "intensity": 0.5, "ideal_ns": 3e8},
        **{"recoverable_ns": 3e8, "bound": "inefficient", "bound_pct": 80.0, "estimated": None},
        **{"model": (10**9, 2 * 10**10), "model_ns": 2e8, "mfu_pct": 1.0, "mbu_pct": 20.0},
        **{"top_role": "mlp.up_proj mm", "top_recoverable_ns": 2e7},
    }
    return PhaseSummary(**{**found, **more})


WASTES = "Which module wastes most?"


def answers(terms, *, on_gpu=False, kernels=None, compiled=False, doubts=()):
    modules = pd.DataFrame([{**row(), "recoverable_ns": 2e8, "time_ns": 3e8}])
    table = pd.DataFrame([row()] if kernels is None else kernels)
    kinds = pd.DataFrame({"kind": ["cache", "attention"], "recoverable_ns": [1.2e8, 8e7]})
    terms = {**dict.fromkeys(TERMS, 0), **terms}
    where = setting(on_gpu=on_gpu)._replace(compiled=compiled)
    return dict(phase_answers(summary(), modules, kinds, table, terms, where, doubts))


def test_a_phases_answers_by_hand():
    found = answers({"ideal_ns": 2 * 10**8, "kernels_ns": 4 * 10**8, "idle_ns": 4 * 10**8})
    bounds = found["What bounds it?"]
    assert "By the model, memory: 2.00 GB at 100 GB/s take 20.0 ms" in bounds
    assert "It takes 100 ms per step; lost: " in bounds
    assert "40.0 ms for kernels slower than their roofs" in bounds
    assert "40.0 ms for no kernel running" in bounds
    assert "80 % of their time" in bounds
    assert "model.layers.*.mlp.up_proj: 20.0 ms per step recoverable of 30.0 ms" in found["Which module wastes most?"]
    by_kind = "By kind of work, cache: 12.0 ms per step, 12 % of the wall time."
    assert found["Which module wastes most?"].endswith(by_kind)
    # Idle time is the larger: it comes first.
    assert found["What to do?"].startswith("1. no kernel runs for 40.0 ms per step (40 %)")
    assert "up to 2.00 ms per step" in found["What to do?"]


def test_time_without_a_verdict_is_said_with_its_largest_kernel_and_why():
    reason = "compiled: a generated kernel: not known (ops of model.layers.0)"
    unknown = row(bound="unknown", recoverable_ns=None, pct_of_roof=None, reason=reason, time_ns=4e8, label="fused_3")
    found = answers({}, kernels=[row(), unknown], compiled=True)
    assert "40.0 ms per step (40 %) have no verdict, most of it in fused_3 (40.0 ms): compiled: a" in found[WASTES]
    assert "ops of" not in found[WASTES]
    assert found["What to do?"].startswith("1. 40.0 ms per step (40 %) have no verdict: profile without --compile")
    together = {**unknown, "reason": "one op, several kernels: FLOPs and bytes are those of the group"}
    for small in ({**unknown, "time_ns": 4e7}, together):
        assert "no verdict" not in " ".join(answers({}, kernels=[row(), small], compiled=True).values())


def test_where_figures_are_in_doubt_advice_begins_with_that():
    doubts = ["NOT STEADY: scaled by 1.3; a busy machine", "bare repeats spread from 1 ms to 2 ms: a busy machine?"]
    words = answers({}, doubts=doubts)["What to do?"]
    assert words.startswith("1. first run again on a quiet machine, the figures are in doubt (NOT STEADY; bare repeats")
    assert "2. mlp.up_proj mm" in words
    assert "quiet" not in answers({}, doubts=["3 graph breaks: parts ran eagerly"])["What to do?"]
    nothing = answers({}, doubts=doubts, kernels=[row(recoverable_ns=0.0)])["What to do?"]
    assert nothing.startswith("1. first run again")
    assert "2. Nothing measured stands out" in nothing


def test_few_long_launches_take_the_place_of_the_usual_advice():
    assert sentence(row(few="1 of its 96 launches took most"), setting()) == "1 of its 96 launches took most"
    assert sentence(row(few=float("nan")), setting()) == sentence(row(), setting())
    unknown = row(few="1 of its 96 launches", bound="unknown", reason="no bytes")
    assert sentence(unknown, setting()) == "not judged: no bytes; 1 of its 96 launches"


def test_more_than_the_roof_is_not_left_without_a_word():
    assert "112 % of its roof (operands in a cache, or the roof" in sentence(row(pct_of_roof=112.0), setting())
    assert "cache" not in sentence(row(pct_of_roof=104.0), setting())


def test_cuda_graphs_are_for_gpus_and_only_where_the_device_is_idle():
    idle = {"idle_ns": 4 * 10**8}
    assert "CUDA graphs" in answers(idle, on_gpu=True)["What to do?"]
    assert "CUDA" not in answers(idle)["What to do?"]
    # The gaps are the recording's own: the bare run does not have them.
    assert "no kernel runs" not in answers({**idle, "dilation_ns": -4 * 10**8}, on_gpu=True)["What to do?"]
    assert "no kernel runs" not in answers({}, on_gpu=True)["What to do?"]


def test_what_is_lost_of_the_bare_time_is_without_the_recordings_own():
    found = answers({"kernels_ns": 2 * 10**8, "idle_ns": 4 * 10**8, "dilation_ns": -3 * 10**8}, on_gpu=True)
    lost = "lost: 20.0 ms for kernels slower than their roofs, 10.0 ms for no kernel running"
    assert lost in found["What bounds it?"]


def test_what_the_counters_said_of_a_kernel_stands_in_the_answer():
    found = answers({}, kernels=[{**row(), "advice": "so said the counters"}])
    assert "so said the counters" in found["What to do?"]


@pytest.mark.parametrize("recoverable", [0.0, None])
def test_nothing_to_recover_is_said(recoverable):
    found = answers({}, kernels=[row(recoverable_ns=recoverable)])
    assert found["What to do?"].startswith("Nothing measured stands out")
