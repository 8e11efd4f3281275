"""Pictures: what is on them, that labels do not cover one another, and that awkward data draws."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.models.errors import OutputError
from kernelroof.models.kinds import KINDS
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.labels import Mark, covers, place_labels
from kernelroof.roofline.palette import KINDS as COLOURS
from kernelroof.roofline.place import place
from kernelroof.roofline.plot import estimated_points, phase_roofline
from kernelroof.roofline.plot_kernel import kernel_roofline

MACHINE = Ceilings("test", 62.9e9, 22.7e9, 110e9, "float32", "measured", None, "2 threads, test")
GPU = Ceilings("NVIDIA H100", 989.4e12, 3.35e12, None, "bfloat16", "datasheet", None, "sheet")
ESTIMATE = {"phase": (10**9, 2 * 10**9), "modules": {"mlp": (10**9, 2 * 10**9), "norm": (0, 10**6)}}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def launches(*rows: dict[str, Any], ceilings: Ceilings = MACHINE) -> pd.DataFrame:
    base = {
        "phase": "decode", "step": 0, "module": "model.layers.0.mlp", "kind": "mlp", "op": None,
        "count": 1, "reason": None, "time_ns": 1_000_000, "dram_write_bytes": 0,
    }  # fmt: skip
    frame = pd.DataFrame([{**base, **row} for row in rows])
    names = ("time_ns", "flops", "dram_read_bytes", "dram_write_bytes", "count", "step")
    return place(frame.astype(dict.fromkeys(names, "Int64")), ceilings)


def row(kernel: str, flops: int | None, read: int | None, **more: Any) -> dict[str, Any]:
    return {"kernel": kernel, "flops": flops, "dram_read_bytes": read, **more}


def many(n: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [
        row(
            f"kernel_{i}<float, 4>(int, float const*)", int(10 ** random.uniform(3, 9)),
            int(10 ** random.uniform(3, 8)), kind=KINDS[i % len(KINDS)], module=f"block{i}.proj",
            time_ns=int(10 ** random.uniform(4, 8)),
        )
        for i in range(n)
    ]  # fmt: skip


FIVE = [
    row("a", 2 * 10**9, 10**6), row("b", 10**6, 10**9), row("c", 0, 4096), row("d", 1000, 0), row("e", 0, 0)
]  # fmt: skip


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def test_zeros_are_listed_beneath_not_lost(tmp_path: Path) -> None:
    got = phase_roofline(launches(*FIVE), MACHINE, "decode", ESTIMATE, tmp_path / "decode.png")
    assert set(got.plotted["kernel"]) == {"a", "b"}
    assert dict(zip(got.listed["kernel"], got.listed["why"], strict=True)) == {
        "c": "no FLOPs: bytes only",
        "d": "no bytes: FLOPs only",
        "e": "no FLOPs, no bytes",
    }
    assert got.path.read_bytes().startswith(PNG)
    assert [p.name for p in tmp_path.iterdir()] == ["decode.png"]


@pytest.mark.parametrize(
    ("rows", "plotted", "listed"),
    [
        ([row("only", 10**7, 2 * 10**7)], 1, 0),
        (many(200), 200, 0),
        ([row("a", 0, 9), row("b", 0, 0), row("c", None, None)], 0, 3),
        ([row(f"k{i}", 10**8, 2 * 10**7, module=f"m{i}") for i in range(9)], 9, 0),
        ([row("huge", 10**15, 10**3), row("tiny", 1, 10**12, time_ns=10**9)], 2, 0),
        ([row("instant", 10**6, 10**6, time_ns=0)], 0, 1),
        ([row("elsewhere", 1, 1, phase="prefill")], 0, 0),
    ],
    ids=["one", "200 roles", "no FLOPs", "identical", "far out", "no time", "empty"],
)
@pytest.mark.parametrize("ceilings", [MACHINE, GPU], ids=["cpu", "gpu"])
def test_awkward_data_draws_and_labels_stay_apart(
    rows: list[dict[str, Any]], plotted: int, listed: int, ceilings: Ceilings, tmp_path: Path
) -> None:
    got = phase_roofline(launches(*rows, ceilings=ceilings), ceilings, "decode", ESTIMATE, tmp_path / "x.png")
    assert (len(got.plotted), len(got.listed)) == (plotted, listed)
    assert got.path.stat().st_size > 10_000
    boxes = [*got.label_boxes, *got.other_boxes]
    for i, a in enumerate(got.label_boxes):
        assert not any(overlap(a, b) for b in boxes[i + 1 :])
    assert len(got.label_boxes) <= 8
    if plotted == 9:
        assert len(got.label_boxes) == 8


def test_layers_of_one_role_are_one_point(tmp_path: Path) -> None:
    rows = [row("aten::mm", 10**7, 2 * 10**7, module=f"model.layers.{i}.mlp.up_proj") for i in range(12)]
    got = phase_roofline(launches(*rows), MACHINE, "decode", None, tmp_path / "x.png")
    assert list(got.plotted["launches"]) == [12]
    assert list(got.plotted["label"]) == ["mlp.up_proj mm"]


def test_estimated_points_lie_on_the_roof() -> None:
    got = estimated_points({"phase": (10**9, 10**7), "modules": {"mlp": (10**8, 10**9), "norm": (0, 5)}}, MACHINE)
    assert got == [("mlp", 0.1, pytest.approx(2.27e9)), ("", 100.0, 62.9e9)]
    assert estimated_points(None, MACHINE) == []


def test_every_kind_has_a_colour_of_its_own() -> None:
    assert set(COLOURS) == set(KINDS)
    assert len(set(COLOURS.values())) == len(KINDS)


OWN = {"own": (10**7, 2 * 10**7), "phase": (10**9, 10**8)}


@pytest.mark.parametrize(
    ("rows", "estimate", "shows", "points", "without"),
    [
        ([row("mm", 10**7, 2 * 10**7)] * 3, OWN, "roofline", 3, 0),
        ([row("mm", 10**7, 2 * 10**7), row("mm", None, None)], None, "roofline", 1, 1),
        ([row("mm", 10**7, 2 * 10**7)] * 500, {"own": (0, 0)}, "roofline", 500, 0),
        ([row("mm", 10**13, 2 * 10**3)], OWN, "roofline", 1, 0),
        ([row("cat", 0, 10**6)] * 4, OWN, "bandwidth", 4, 0),
        ([row("cat", 0, 10**6), row("cat", 0, 10**5, time_ns=0)], None, "bandwidth", 1, 1),
        ([row("view", 0, 0)] * 2, {"own": None}, "duration", 2, 0),
        ([row("linear", None, None)], OWN, "duration", 1, 0),
    ],
)
def test_kernel_picture(
    rows: list[dict[str, Any]], estimate: Any, shows: str, points: int, without: int, tmp_path: Path
) -> None:
    got = kernel_roofline(launches(*rows), MACHINE, estimate, tmp_path / "k.png", title="decode: mlp mm")
    assert (got.shows, got.points, got.without_point) == (shows, points, without)
    assert got.path.read_bytes().startswith(PNG)


def test_unwritable_target_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"nowhere.*x\.png"):
        phase_roofline(launches(*FIVE), MACHINE, "decode", None, tmp_path / "nowhere" / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_drawing_does_not_import_pyplot(tmp_path: Path) -> None:
    code = (
        "import sys, kernelroof.roofline.plot, kernelroof.roofline.plot_kernel\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "False"


@given(
    st.lists(st.tuples(st.floats(0, 900), st.floats(0, 500), st.floats(1, 30)), min_size=1, max_size=8),
    st.floats(20, 200),
)
def test_labels_never_overlap_nor_leave_the_frame(points: list[tuple[float, float, float]], width: float) -> None:
    marks = [Mark(*p) for p in points]
    text = (300.0, 200.0, 420.0, 215.0)
    found = place_labels([(width, 14.0)] * len(marks), marks, (0, 0, 900, 500), [text], [], marks)
    boxes = [place.box for place in found if place is not None]
    assert boxes  # the first label always has room in a frame this large
    for i, a in enumerate(boxes):
        assert a[0] >= 0
        assert a[1] >= 0
        assert a[2] <= 900
        assert a[3] <= 500
        assert not any(overlap(a, b) for b in [text, *boxes[i + 1 :]])


def test_single_label_stands_beside_its_mark() -> None:
    mark = Mark(100, 100, 10)
    (found,) = place_labels([(50, 12)], [mark], (0, 0, 400, 400), marks=[mark])
    assert found is not None
    assert not covers(found.box, mark)
    assert np.hypot(found.nearest[0] - mark.x, found.nearest[1] - mark.y) < 20


def test_no_room_is_none() -> None:
    assert place_labels([(50, 12)], [Mark(5, 5, 1)], (0, 0, 40, 40)) == [None]


def test_doubts_keep_their_line_however_long_what_was_run_is() -> None:
    from kernelroof.roofline.figure import new_figure, write_subtitle

    figure, _ = new_figure(8, 5)
    write_subtitle(figure, 0.1, 0.9, f"{'a model of many words ' * 20}\nin doubt: NOT STEADY")
    lines = figure.texts[-1].get_text().splitlines()
    assert lines[0].endswith("…")
    assert lines[1:] == ["in doubt: NOT STEADY"]
    write_subtitle(figure, 0.1, 0.9, "a model of many words " * 20)
    assert len(figure.texts[-1].get_text().splitlines()) == 2
