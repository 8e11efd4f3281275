"""A smooth table of three axes through scattered values, robust against outliers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Axes = tuple[tuple[float, ...], ...]

_ROUNDS = 5
_CLOSE = 0.03
"""Below this an error counts by its square, above it by its size: the table follows medians, not means."""


def fit_grid(axes: Axes, places: Floats, values: Floats, smoothness: float = 1.0) -> Floats:
    """Return values at the knots whose linear interpolation is near `values`.

    Knots that few rows support follow their neighbours: differences along each axis cost `smoothness`.
    """
    corners, shares = _design(axes, places)
    count = int(np.prod([len(axis) for axis in axes]))
    stiff = smoothness * _stiffness(axes)
    weights: Floats = np.ones(len(values))
    found: Floats = np.zeros(count)
    for _ in range(_ROUNDS):
        weighted = shares * weights[:, None]
        pairs = (corners[:, :, None] * count + corners[:, None, :]).ravel()
        products = (weighted[:, :, None] * shares[:, None, :]).ravel()
        normal = np.bincount(pairs, products, count * count).reshape(count, count)
        right = np.bincount(corners.ravel(), (weighted * values[:, None]).ravel(), count)
        found = np.asarray(np.linalg.solve(normal + stiff, right), dtype=np.float64)
        errors = np.abs(values - (shares * found[corners]).sum(axis=1))
        weights = 1 / np.maximum(errors, _CLOSE)
        weights /= weights.mean()
    return found


def at_places(axes: Axes, grid: Floats, places: Floats) -> Floats:
    """Return the interpolated values; places outside are clamped."""
    corners, shares = _design(axes, places)
    found: Floats = (shares * grid[corners]).sum(axis=1)
    return found


def _design(axes: Axes, places: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
    corners = np.zeros((len(places), 1), dtype=np.intp)
    shares = np.ones((len(places), 1))
    for column, knots in enumerate(np.asarray(axis) for axis in axes):
        at = np.clip(places[:, column], knots[0], knots[-1])
        low = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)
        x = ((at - knots[low]) / (knots[low + 1] - knots[low]))[:, None]
        first = corners * len(knots) + low[:, None]
        corners = np.concatenate([first, first + 1], axis=1)
        shares = np.concatenate([shares * (1 - x), shares * x], axis=1)
    return corners, shares


def _stiffness(axes: Axes) -> Floats:
    shape = [len(axis) for axis in axes]
    count = int(np.prod(shape))
    grid = np.arange(count).reshape(shape)
    stiff = 0.02 * np.eye(count)
    for axis, length in enumerate(shape):
        low = np.take(grid, range(length - 1), axis).ravel()
        high = np.take(grid, range(1, length), axis).ravel()
        np.add.at(stiff, (low, low), 1)
        np.add.at(stiff, (high, high), 1)
        np.add.at(stiff, (low, high), -1)
        np.add.at(stiff, (high, low), -1)
    return stiff
