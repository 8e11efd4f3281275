"""One sentence for each kernel: the bound, the cure, and contradictions that are said to be such."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.roofline.verdict import CURES, Evidence, verdict

KNOWN: dict[str, Any] = {
    **dict.fromkeys(Evidence._fields), "kernel": "k", "bound": "unknown", "where": "inside ncu", "reason": "",
    "one_block": False,
}  # fmt: skip
NOTHING = Evidence(**KNOWN)


def of(**known: Any) -> tuple[str | None, str]:
    return verdict(NOTHING._replace(**known))


@pytest.mark.parametrize(
    ("known", "cure", "words"),
    [
        ({"bound": "memory", "pct": 84.0, "kernel": "gemv_kernel"}, "fewer bytes", "84 % of the DRAM roof inside ncu"),
        ({"bound": "memory", "pct": 84.0, "kernel": "flash_fwd"}, "fewer bytes", "KV"),
        ({"bound": "memory", "pct": 77.0, "kernel": "silu_kernel", "intensity": 3.2}, "fusion", "3.2 FLOP a byte"),
        ({"bound": "compute", "pct": 90.0, "roof_type": "tensor:bf16->fp32"}, "nothing", "bf16 roof"),
        ({"bound": "compute", "pct": 90.0, "kernel": "sgemm", "roof_type": "fp32"}, "tensor cores", "CUDA cores"),
        ({"bound": "compute", "sm_pct": 71.0}, None, "FLOP counters would tell"),
        ({"bound": "latency", "pct": 3.0, "waves": 0.4}, "more parallelism", "0.4 waves"),
        ({"bound": "latency", "pct": 3.0, "time_ns": 2100.0}, "fusion", "2.1 µs"),
        ({"bound": "latency", "reason": "no work: dispatch only"}, "fusion", "only its launch costs"),
        ({"bound": "inefficient", "pct": 30.0, "l2_pct": 75.0}, "better reuse", "L2 is at 75 %"),
        ({"bound": "inefficient", "pct": 19.0, "waves": 1.12}, "more parallelism", "1.12 waves"),
        ({"bound": "inefficient", "pct": 19.0, "occupancy_pct": 12.0, "registers": 255.0}, "more parallelism", "255"),
        ({"bound": "inefficient", "pct": 19.0, "kernel": "gemm", "tensor_pct": 0.0}, "tensor cores", "idle"),
        ({"bound": "inefficient", "pct": 19.0, "kernel": "gemm", "tensor_pct": 40.0}, "more parallelism", "loads"),
        ({"bound": "unknown", "reason": "FLOPs: no FLOP counter in the report"}, None, "no FLOP counter"),
    ],
)
def test_the_cure_follows_from_the_evidence(known: dict[str, Any], cure: str | None, words: str) -> None:
    got = of(**known)
    assert got[0] == cure
    assert words in got[1]


@pytest.mark.parametrize(
    "known",
    [
        {"bound": "memory", "pct": 89.0, "dram_pct": 89.0, "one_block": True},
        {"bound": "memory", "pct": 70.0, "dram_pct": 70.0, "own_dram_pct": 12.0},
        {"bound": "unknown", "reason": "impossible: 369 % of the compute peak"},
        {"bound": "unknown", "reason": "inconsistent: counted DRAM bytes ..."},
    ],
)
def test_contradictions_name_no_cure(known: dict[str, Any]) -> None:
    cure, words = of(**known)
    assert cure is None
    assert words.startswith(("inconsistent", "impossible"))


def test_shares_that_agree_are_no_contradiction() -> None:
    assert of(bound="memory", pct=77.0, dram_pct=77.0, own_dram_pct=76.0)[1].startswith("memory-bound")


def test_a_flagged_duration_is_said() -> None:
    assert "2.10 times the timeline's" in of(bound="memory", pct=77.0, duration_ratio=2.1)[1]
    assert "times the timeline's" not in of(bound="memory", pct=77.0, duration_ratio=1.4)[1]


SHARE = st.none() | st.floats(0, 120)


@settings(deadline=None)
@given(
    st.builds(
        Evidence,
        kernel=st.sampled_from(["gemm", "flash", "silu", "x"]),
        bound=st.sampled_from(["memory", "compute", "latency", "inefficient", "unknown"]),
        where=st.just("inside ncu"), pct=SHARE, reason=st.just(""), time_ns=SHARE, intensity=SHARE, dram_pct=SHARE,
        own_dram_pct=SHARE, sm_pct=SHARE, tensor_pct=SHARE, l2_pct=SHARE, l1_pct=SHARE, occupancy_pct=SHARE,
        waves=SHARE, registers=SHARE, roof_type=st.sampled_from([None, "fp32", "tensor:bf16->fp32"]),
        one_block=st.booleans(), duration_ratio=SHARE,
    )
)  # fmt: skip
def test_any_evidence_makes_one_sentence(evidence: Evidence) -> None:
    cure, words = verdict(evidence)
    assert cure is None or cure in CURES
    assert words.strip() == words != ""
    assert "None" not in words
    assert "nan" not in words
