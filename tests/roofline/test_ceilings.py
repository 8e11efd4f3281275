"""The ceilings' own arithmetic and their file."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
from kernelroof.models.errors import ReportError
from kernelroof.roofline.ceilings import Ceilings, checked, from_json, highest, to_json

A100 = Ceilings("NVIDIA A100-SXM4-80GB", 312e12, 2039e9, None, "bfloat16", "datasheet", 80 * 10**9, "sheet")


def test_ridge_roof_and_ideal_time() -> None:
    assert A100.ridge == pytest.approx(153.016, abs=1e-3)
    assert A100.roof_flop_s(1) == 2039e9
    assert A100.roof_flop_s(1000) == 312e12
    assert A100.roof_flop_s(A100.ridge) == pytest.approx(312e12)
    assert A100.ideal_ns(312e9, 0) == pytest.approx(1e6)
    assert A100.ideal_ns(312e9, 2039e7) == pytest.approx(1e7)


def test_file_round_trip() -> None:
    details = {"dram_byte_s": {"copy": {"best": 1.0, "median": 0.5}}}
    text = to_json(A100, details)
    assert json.loads(text)["ridge_flop_per_byte"] == A100.ridge
    assert from_json(text) == (A100, details)
    measured = A100._replace(cache_byte_s=5e12, origin="measured")
    assert from_json(to_json(measured)) == (measured, {})


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, None, "312", True])
def test_absurd_rate_is_refused_by_name(value: object) -> None:
    with pytest.raises(ReportError, match="byte_s"):
        checked(A100._replace(byte_s=value))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "no object"),
        (json.dumps({"name": "x"}), "flop_s"),
        (to_json(A100).replace("datasheet", "guess"), "guess"),
    ],
)
def test_broken_file_is_an_error(text: str, words: str) -> None:
    with pytest.raises(ReportError, match=words):
        from_json(text)


def test_importing_ceilings_is_light() -> None:
    code = (
        "import sys, kernelroof.roofline.ceilings\n"
        "print([m for m in ('torch','numpy','pandas','matplotlib','rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_highest_of_several_rounds():
    low = Ceilings("m", 90e9, 40e9, None, "float32", "measured", 7, "2 threads, m; product; memory")
    high = low._replace(flop_s=160e9, byte_s=30e9, cache_byte_s=100e9)
    both = highest([low, high])
    assert (both.flop_s, both.byte_s, both.cache_byte_s) == (160e9, 40e9, 100e9)
    assert both.note.startswith("2 threads, m; highest of 2 rounds")
    assert highest([low]) == low
