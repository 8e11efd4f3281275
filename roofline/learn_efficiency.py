"""Learn the table of corrections from measured kernels, and write it.

For each table: a few terms of the rough time (by trial, least median-like error of the logarithm), then a smooth
grid of what is left over, then the band that rows left out of the grid fall into.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log

import numpy as np
from kernelroof.models.efficiency import NotLearned, expected
from kernelroof.models.efficiency_table import COLUMNS, Correction, EfficiencyTable, GpuFigures, kind_of, pool_of
from kernelroof.models.kernel_work import KINDS, Chip
from kernelroof.roofline.gpus import Gpu, list_gpus
from kernelroof.roofline.grid_fit import Floats, at_places, fit_grid
from kernelroof.roofline.silicon_shapes import SMS, Measured, chip_of

SEED = 20260
_SAMPLE = 700
"""Rows that decide the terms: more change nothing that the grid does not take up."""

_START = {
    "gemm": (3.0, 0.8, 0.8, 0.7, 0.6, 2.0, 1.0, 0.5),
    "prefill": (9.0, 0.3, 0.6, 2.0, 1.0),
    "decode": (9.0, 0.8, 3.0),
}
_FLOOR_US = {"gemm fp8_block": 60.0}
_KNOTS: dict[str, tuple[tuple[float, ...], ...]] = {
    "gemm": (
        (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 16384),
        (32, 128, 512, 1024, 2048, 4096, 8192, 16384, 65536),
        (32, 128, 512, 1024, 2048, 4096, 8192, 16384, 65536),
    ),
    "prefill": ((1, 32, 128, 512, 2048, 16384), (0.25, 0.5, 1, 2, 8, 64, 4096), (1, 8, 64)),
    "decode": ((1, 128, 512, 2048, 16384, 131072), (0.01, 0.06, 0.25, 1, 2, 8, 128), (1, 8, 64)),
}
_SIZE_EDGES = {"gemm": (17.0, 129.0, 513.0), "prefill": (100.0, 1000.0), "decode": (100.0, 1000.0)}
_TIME_EDGES_US = (15.0, 50.0, 200.0)
_FEW = 60
"""Rows below which a cell's band is that of the whole table."""

IRREGULAR = {"decode d512 kv-bfloat16 full"}
"""Tables left out: this kernel (FlashAttention 4) gets 14 times faster at twice the batch, and no smooth rule
describes that."""


def learn(measured: Measured, chip: Chip) -> Correction:
    """Learn one table from one GPU's kernels."""
    rng = np.random.default_rng(SEED)
    name = kind_of(measured.table)
    kind = measured.kind
    log_seconds = np.log(measured.seconds)
    terms = _learn_terms(measured, chip, rng)
    works = [kind.work(shape) for shape in measured.shapes]
    found = [kind.rough(shape, work, chip, terms) for shape, work in zip(measured.shapes, works, strict=True)]
    rough, places = np.log([one.seconds for one in found]), np.log([one.place for one in found])
    axes = tuple(_axis(column, knots) for column, knots in zip(places.T, _KNOTS[name], strict=True))
    left = log_seconds - rough
    half = rng.random(len(left)) < 0.5
    held_out = np.empty(len(left))
    for rows in (half, ~half):
        grid = fit_grid(axes, places[rows], left[rows])
        held_out[~rows] = at_places(axes, grid, places[~rows])
    ideal = np.array([max(work.flops / chip.flop_s, work.moved_bytes / chip.byte_s) for work in works])
    guess = np.maximum(rough + held_out, np.log(ideal))
    low, high = _bands(log_seconds - guess, np.exp(places[:, 0]), np.exp(guess), _SIZE_EDGES[name])
    windows = {getattr(shape, "window", 0) for shape in measured.shapes} if measured.table.endswith("window") else ()
    return Correction(
        terms=terms,
        axes=(axes[0], axes[1], axes[2]),
        logs=tuple(float(v) for v in np.round(fit_grid(axes, places, left), 2)),
        windows=tuple(sorted(windows)),
        size_edges=_SIZE_EDGES[name],
        time_edges=tuple(us * 1e-6 for us in _TIME_EDGES_US),
        low=low,
        high=high,
    )


def learn_table(measured: Iterable[Measured], gpus: Sequence[Gpu]) -> EfficiencyTable:
    """Learn every table on its GPU; GPUs of the same architecture borrow from the one nearest in bandwidth."""
    by_key = {gpu.key: gpu for gpu in gpus}
    groups = [group for group in measured if group.table not in IRREGULAR]
    corrections = {(g.gpu_key, g.table): learn(g, chip_of(by_key[g.gpu_key], g.dtype)) for g in groups}
    learned = {g.gpu_key for g in groups}
    likes = {key: _like(by_key[key], learned, by_key) for key in SMS}
    figures = {key: _figures(by_key[key], like) for key, like in likes.items() if like}
    table = EfficiencyTable(figures, corrections, {})
    return table._replace(transfer=transfer_bands(table, groups))


def transfer_bands(table: EfficiencyTable, measured: Iterable[Measured]) -> dict[str, tuple[float, float]]:
    """Return, for every table, the band of measured over expected when another GPU's corrections are used.

    Taken between GPUs of one architecture, over all kernels of a kind: as far to both sides as 80 % of the ratios
    reach, since nobody knows which way an unmeasured GPU will differ. A kind that was measured on several GPUs of
    one architecture only has the same band on the other.
    """
    found: dict[str, list[Floats]] = {}
    names = {name for _, name in table.corrections}
    for group in measured:
        for other in {gpu for gpu, name in table.corrections if name == group.table}:
            if other != group.gpu_key and table.gpus[other].chips.keys() == table.gpus[group.gpu_key].chips.keys():
                found.setdefault(pool_of(group.table), []).append(errors(borrowing(table, group.gpu_key, other), group))
    reach = {pool: float(np.quantile(np.abs(np.log(np.concatenate(r))), 0.8)) for pool, r in found.items()}
    return {
        name: (exp(-reach[pool_of(name)]), exp(reach[pool_of(name)]))
        for name in sorted(names)
        if pool_of(name) in reach
    }


def borrowing(table: EfficiencyTable, gpu_key: str, other: str) -> EfficiencyTable:
    """Return the table as if `gpu_key` had not been measured and borrowed from `other`."""
    figures = table.gpus[gpu_key]._replace(like=other)
    # Every table has some band here: what is wanted is the expected time itself.
    bands = {name: table.transfer.get(name, (1.0, 1.0)) for _, name in table.corrections}
    return table._replace(gpus={**table.gpus, gpu_key: figures}, transfer=bands)


def errors(table: EfficiencyTable, measured: Measured) -> Floats:
    """Return measured over expected time of every row."""
    return measured.seconds / predictions(table, measured)[:, 0]


def predictions(table: EfficiencyTable, measured: Measured) -> Floats:
    """Return seconds, low, high and ideal of every row."""
    rows = []
    for shape in measured.shapes:
        found = expected(table, measured.gpu_key, measured.table, shape, measured.dtype)
        if isinstance(found, NotLearned):
            raise ValueError(found.reason)
        rows.append(found[:4])
    return np.array(rows)


def table_lines(table: EfficiencyTable, comments: Sequence[str]) -> list[str]:
    """Return the lines of the file."""
    lines = [f"# {comment}" for comment in comments]
    lines += [
        f"# terms of {name}: {' '.join(kind.terms)}; axes: {', '.join(kind.axes)}" for name, kind in KINDS.items()
    ]
    lines.append(",".join(COLUMNS))
    for key, gpu in table.gpus.items():
        like = f"like={gpu.like} " if gpu.like != key else ""
        peaks = " ".join(f"{name}={chip.flop_s:g}" for name, chip in gpu.chips.items())
        chip = next(iter(gpu.chips.values()))
        figures = f"{like}sms={chip.sms} byte_s={chip.byte_s:g} l2_bytes={gpu.l2_bytes} {peaks}"
        lines.append(_line(gpu=key, table="figures", terms=figures))
    time_edges = " ".join(f"{us:g}" for us in _TIME_EDGES_US)
    for kind, edges in _SIZE_EDGES.items():
        lines.append(_line(gpu=kind, table="edges", low=" ".join(f"{edge:g}" for edge in edges), high=time_edges))
    bands = {pool_of(name): band for name, band in table.transfer.items()}
    lines += [
        _line(gpu=pool, table="transfer", low=_percents(band[:1]), high=_percents(band[1:]))
        for pool, band in bands.items()
    ]
    for (key, name), found in table.corrections.items():
        first, second, third = (" ".join(f"{exp(knot):.5g}" for knot in axis) for axis in found.axes)
        cells = {"first": first, "second": second, "third": third, "logs": " ".join(_percent(v) for v in found.logs)}
        terms, windows = " ".join(f"{term:.3g}" for term in found.terms), " ".join(map(str, found.windows))
        low, high = _percents(found.low), _percents(found.high)
        lines.append(_line(gpu=key, table=name, terms=terms, windows=windows, low=low, high=high, **cells))
    return lines


def _line(**cells: str) -> str:
    return ",".join(cells.get(column, "") for column in COLUMNS)


def _percent(logarithm: float) -> str:
    return str(round(100 * logarithm))


def _percents(factors: Iterable[float]) -> str:
    return " ".join(_percent(log(factor)) for factor in factors)


def _learn_terms(measured: Measured, chip: Chip, rng: np.random.Generator) -> tuple[float, ...]:
    """Try each term larger and smaller, in ever smaller steps."""
    name = kind_of(measured.table)
    rows = rng.permutation(len(measured.seconds))[:_SAMPLE]
    sample = measured.take(rows)
    wanted = np.log(sample.seconds)
    works = [measured.kind.work(shape) for shape in sample.shapes]
    rough = measured.kind.rough

    def error(terms: tuple[float, ...]) -> float:
        found = np.log([rough(*case, chip, terms).seconds for case in zip(sample.shapes, works, strict=True)])
        return float(np.abs(found - wanted).mean())

    terms = _START[name]
    terms = (_FLOOR_US.get(measured.table, terms[0]), *terms[1:])
    best, step = error(terms), 0.3
    for _ in range(11):
        for index in range(len(terms)):
            for factor in (1 + step, 1 / (1 + step)):
                tried = (*terms[:index], float(f"{terms[index] * factor:.3g}"), *terms[index + 1 :])
                found = error(tried)
                if found < best:
                    best, terms = found, tried
        step *= 0.75
    return terms


def _axis(column: Floats, knots: tuple[float, ...]) -> tuple[float, ...]:
    """Return the knots within what was measured, with its limits as first and last."""
    low, high = float(column.min()), float(column.max())
    if high - low < 1e-6:
        high = low + log(2)
    # A knot that crowds a limit would stand on few rows.
    inner = [log(knot) for knot in knots if low + 0.2 < log(knot) < high - 0.2]
    return tuple(log(float(f"{exp(at):.5g}")) for at in (low, *inner, high))


def _bands(
    left: Floats, sizes: Floats, seconds: Floats, size_edges: tuple[float, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    by_size = np.searchsorted(size_edges, sizes, side="right")
    by_time = np.searchsorted(np.array(_TIME_EDGES_US) * 1e-6, seconds, side="right")
    whole = np.quantile(left, (0.1, 0.9))
    low, high = [], []
    for size in range(len(size_edges) + 1):
        for time in range(len(_TIME_EDGES_US) + 1):
            cell = left[(by_size == size) & (by_time == time)]
            found = np.quantile(cell, (0.1, 0.9)) if len(cell) >= _FEW else whole
            # The expected time is a median of its neighbourhood: the band holds it.
            low.append(exp(min(round(float(found[0]), 2), 0)))
            high.append(exp(max(round(float(found[1]), 2), 0)))
    return tuple(low), tuple(high)


def _like(gpu: Gpu, learned: set[str], by_key: dict[str, Gpu]) -> str | None:
    if gpu.key in learned:
        return gpu.key
    same = [key for key in sorted(learned) if by_key[key].cc == gpu.cc]
    return min(same, key=lambda key: abs(log(by_key[key].byte_s / gpu.byte_s)), default=None)


def _figures(gpu: Gpu, like: str) -> GpuFigures:
    peaks = {"bfloat16": gpu.bf16_flop_s, "fp8": gpu.fp8_flop_s}
    chips = {name: Chip(SMS[gpu.key], peak, gpu.byte_s) for name, peak in peaks.items() if peak}
    return GpuFigures(like, gpu.l2_bytes or 0, chips)


def all_gpus() -> list[Gpu]:
    """Return the GPUs that are learned or can borrow."""
    return [gpu for gpu in list_gpus() if gpu.key in SMS]
