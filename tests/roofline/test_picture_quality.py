"""What a reader needs of pictures: texts apart and inside, colours and shapes that differ, steady bytes."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.kinds import KINDS
from kernelroof.roofline import figure as figures
from kernelroof.roofline import html, palette, plot, plot_kernel
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.place import place
from kernelroof.roofline.units import seconds
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

MACHINE = Ceilings("test", 62.9e9, 22.7e9, 110e9, "float32", "measured", None, "2 threads, test")
LONG = "tiny-llama, batch 1, prompt 1024, output 32, float32, sdpa attention; " * 6

# Machado, Oliveira, Fernandes (2009), severity 1, on linear RGB.
SIGHT = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(colour: str, sight: Any) -> Any:
    """CIE L*a*b* of a colour as seen."""
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(sight) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ seen / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(
    "colours", [palette.KINDS, palette.KINDS_ON_DARK, palette.BOUNDS], ids=["kinds", "kinds on dark", "bounds"]
)
def test_colours_stay_apart_to_the_colour_blind(colours: dict[str, str], sight: str) -> None:
    seen = {name: lab(colour, SIGHT[sight]) for name, colour in colours.items()}
    near = {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(seen, 2)}
    assert min(near.values()) > 15, min(near, key=lambda pair: near[pair])


def test_every_kind_stands_out_from_the_page_in_both_themes() -> None:
    """By its colour or, on white, where some are light, by its outline."""
    for kind in palette.KINDS:
        assert palette.contrast(palette.KINDS_ON_DARK[kind], palette.DARK) >= 3, kind
        assert palette.contrast(palette.kind_edge(kind), palette.WHITE) >= 3, kind
    style = (html.WEB / "page.css").read_text(encoding="utf-8")
    assert [re.findall(r"--paper: (#\w+)", style)] == [[palette.WHITE, palette.DARK]]
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize(
    ("markers", "names"), [(palette.KIND_MARKERS, KINDS), (palette.BOUND_MARKERS, tuple(palette.BOUNDS))]
)
def test_shapes_tell_without_colour(markers: dict[str, str], names: tuple[str, ...]) -> None:
    assert set(markers) == set(names)
    assert len(set(markers.values())) == len(markers)
    assert not set(markers.values()) & {"^", "v", "<", ">"}  # these mean: off the axes


def launches(rows: list[tuple[float, float, float]]) -> pd.DataFrame:
    frame = pd.DataFrame(
        [
            {
                "phase": "decode", "step": 0, "module": f"model.layers.0.part{i}.some_projection", "count": 1,
                "kind": KINDS[i % len(KINDS)], "op": None, "reason": None, "kernel": f"kernel_{i}<float, 4>(int)",
                "time_ns": int(10**time), "flops": int(10**flops), "dram_read_bytes": int(10**moved),
                "dram_write_bytes": 0,
            }
            for i, (time, flops, moved) in enumerate(rows)
        ]
    )  # fmt: skip
    names = ("time_ns", "flops", "dram_read_bytes", "dram_write_bytes", "count", "step")
    return place(frame.astype(dict.fromkeys(names, "Int64")), MACHINE)


def corners(text: Text, renderer: Any) -> Any:
    """The four corners of a text in pixels, turned as it is."""
    turn = text.get_rotation()
    box = text.get_window_extent(renderer)
    centre = np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])
    text.set_rotation(0)
    flat = text.get_window_extent(renderer)
    text.set_rotation(turn)
    c, s = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    w, h = flat.width / 2, flat.height / 2
    across, up = np.array([c, s]) * w, np.array([-s, c]) * h
    return np.array([centre - across - up, centre + across - up, centre + across + up, centre - across + up])


def meet(a: Any, b: Any, slack: float = 0.5) -> bool:
    """Whether two rectangles overlap: no side of either parts them."""
    for shape in (a, b):
        for i in range(2):
            side = shape[i + 1] - shape[i]
            pa, pb = a @ (side / np.linalg.norm(side)), b @ (side / np.linalg.norm(side))
            if pa.max() <= pb.min() + slack or pb.max() <= pa.min() + slack:
                return False
    return True


def check_texts(figure: Figure) -> None:
    canvas = FigureCanvasAgg(figure)
    drawn: list[Text] = []
    with pytest.MonkeyPatch.context() as patch:
        draw = Text.draw
        patch.setattr(Text, "draw", lambda self, renderer: (drawn.append(self), draw(self, renderer)))
        canvas.draw()
    shown = [t for t in dict.fromkeys(drawn) if t.get_visible() and t.get_text().strip()]
    boxes = [corners(t, canvas.get_renderer()) for t in shown]
    assert len(boxes) > 10
    width, height = canvas.get_width_height()
    for text, box in zip(shown, boxes, strict=True):
        assert box.min() >= 0, text.get_text()
        assert box[:, 0].max() <= width, text.get_text()
        assert box[:, 1].max() <= height, text.get_text()
        assert text.get_fontsize() >= 8
    for (one, a), (other, b) in combinations(zip(shown, boxes, strict=True), 2):
        assert not meet(a, b), (one.get_text(), other.get_text())


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they would be saved."""
    figures_kept: list[Figure] = []

    def keep(figure: Figure, path: Any, formats: Any = ("png",)) -> Path:
        figures_kept.append(figure)
        return Path(path)

    monkeypatch.setattr(plot, "save_png", keep)
    monkeypatch.setattr(plot_kernel, "save_png", keep)
    return figures_kept


ROWS = st.lists(st.tuples(st.floats(4, 8), st.floats(2, 10), st.floats(3, 9)), min_size=1, max_size=24)


@settings(max_examples=5, deadline=None)
@given(ROWS, st.integers(0, 420))
def test_no_text_of_a_phase_picture_covers_another_or_leaves(rows: list[Any], words: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found: list[Figure] = []
        patch.setattr(plot, "save_png", lambda figure, path, formats: found.append(figure) or Path(path))
        estimate = {"phase": (10**9, 2 * 10**9), "modules": {"mlp": (10**8, 10**8)}}
        plot.phase_roofline(launches(rows), MACHINE, "decode", estimate, "x.png", subtitle=LONG[:words])
        check_texts(found[0])


@pytest.mark.parametrize("rows", [[(6.0, 7.0, 7.3)] * 5, [(6.0, 3.0, 9.0), (5.0, 9.0, 4.0)]])
def test_no_text_of_a_kernel_picture_covers_another_or_leaves(
    rows: list[tuple[float, float, float]], kept: list[Figure]
) -> None:
    own = {"own": (1e7, 2e7), "phase": (1e9, 1e8)}
    plot_kernel.kernel_roofline(launches(rows), MACHINE, own, "x.png", title="decode: mlp mm", subtitle=LONG)
    check_texts(kept[0])


def test_a_kernel_without_figures_has_its_durations_in_a_fitting_unit(kept: list[Figure]) -> None:
    rows = launches([(7.2, 3.0, 5.0), (7.1, 3.0, 5.0), (7.0, 3.0, 5.0)])
    rows[["flops", "dram_read_bytes"]] = pd.NA
    name = "decode: self_attn graph_1_cpp_fused_" + "_scaled_dot_product" * 10
    plot_kernel.kernel_roofline(place(rows, MACHINE), MACHINE, None, "x.png", title=name, subtitle=LONG, steps=2)
    check_texts(kept[0])
    axes = kept[0].axes[0]
    assert axes.get_ylabel() == "duration (ms)"
    assert axes.get_ylim()[1] > 1.05 * 10**7.2 / 1e6
    assert not axes.spines["top"].get_visible()
    [words] = [t.get_text() for t in kept[0].texts if "shortest" in t.get_text()]
    total_ns = float(rows["time_ns"].sum())
    assert words.startswith(f"1.5 launches, {seconds(total_ns / 2e9, 3)} per step (3 launches, ")


def test_lists_are_per_step_and_shares_name_what_they_are_of(kept: list[Figure]) -> None:
    rows = launches([(6.0, 7.0, 7.3), (6.0, 7.0, 7.3)])
    rows.loc[1, "flops"] = 0
    placed = place(rows, MACHINE)
    plot.phase_roofline(placed, MACHINE, "decode", None, "x.png", steps=4, wall_ns=8e6)
    plot.phase_roofline(placed, MACHINE, "decode", None, "x.png")
    told = ["\n".join(t.get_text() for t in figure.texts) for figure in kept]
    assert "12 % of wall time; times per step" in told[0]
    assert "(1: 250 µs)" in told[0]
    assert "50 % of kernel time\n" in told[1]
    assert "(1: 1.00 ms)" in told[1]
    titles = [legend.get_title().get_text() for legend in kept[0].legends]
    assert titles[:2] == ["colour and shape: kind,\nshare of wall time", "area: share of wall time"]


def test_texts_stay_in_place_at_another_resolution(kept: list[Figure]) -> None:
    """PDF and SVG are drawn at 72 dots an inch: positions in pixels would move there."""
    rows = [(6.0, 7.0, 7.3), (6.5, 8.0, 7.0), (7.0, 6.0, 8.0)]
    plot.phase_roofline(launches(rows), MACHINE, "decode", None, "x.png")

    def inches(dpi: int) -> list[tuple[str, float, float]]:
        kept[0].dpi = dpi
        canvas = FigureCanvasAgg(kept[0])
        canvas.draw()
        return [
            (t.get_text(), *(v / dpi for v in t.get_window_extent(canvas.get_renderer()).p0))
            for t in kept[0].axes[0].texts
            if t.get_text()
        ]

    for (words, x, y), (_, x2, y2) in zip(inches(figures.DPI), inches(72), strict=True):
        assert (x, y) == pytest.approx((x2, y2), abs=0.25), words


def test_every_format_is_written_and_a_rerun_gives_the_same_bytes(tmp_path: Path) -> None:
    def draw(name: str) -> dict[str, bytes]:
        got = plot.phase_roofline(
            launches([(6.0, 7.0, 7.3)]), MACHINE, "decode", None, tmp_path / name, formats=figures.FORMATS
        )
        assert got.path.name == name
        return {f: figures.with_format(tmp_path / name, f).read_bytes() for f in figures.FORMATS}

    first, again = draw("a.png"), draw("b.png")
    assert first == again
    assert first["pdf"].startswith(b"%PDF")
    assert b"/FontFile2" in first["pdf"]  # TrueType, embedded
    assert b"<svg" in first["svg"]
    assert b"<text" not in first["svg"]  # outlines
    assert len(list(tmp_path.iterdir())) == 6


def test_shared_limits_hold_every_weighty_point_of_every_phase() -> None:
    decode, prefill = launches([(6.0, 6.0, 7.0)]), launches([(6.0, 9.0, 6.0)]).assign(phase="prefill")
    both = pd.concat([decode, prefill], ignore_index=True)
    x0, x1, y0, y1 = plot.phase_limits(both, MACHINE, {"decode": None, "prefill": None})
    for x, y in zip(both["intensity"], both["attained_flop_s"], strict=True):
        assert x0 < x < x1
        assert y0 < y < y1
