"""Checks of option values that several commands share; each complaint is one line that names the option."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kernelroof.models.errors import UsageError

_LEAST, _MOST = 1e-6, 1e9
"""From a millionth of a GPU, link or model of today to a million of them."""


def check_plausible(figures: Mapping[str, float | None], least: float = _LEAST) -> None:
    """Refuse figures (by option, in the option's unit; None: not given) that no hardware or model has.

    Raises:
        UsageError: below `least`, infinite, or not a number.
    """
    for option, value in figures.items():
        # nan fails the comparison too.
        if value is not None and not least <= value <= _MOST:
            least_words = "zero or above" if least == 0 else "above zero"
            raise UsageError(f"{option} is {value}", f"Give a plausible number, {least_words}.")


def own_figures(args: argparse.Namespace) -> dict[str, float | None]:
    """The user's own figures of a device, by option; those of the options that were not given are None."""
    return {
        "--peak-tflops": args.peak_tflops,
        "--bandwidth-gbs": args.bandwidth_gbs,
        "--memory-gb": args.memory_gb,
        "--quantised-tflops": args.quantised_tflops,
    }


def check_one_device(args: argparse.Namespace) -> None:
    """Refuse a GPU of the table and own figures beside it, and figures that are absurd.

    Raises:
        UsageError: both, or such a figure.
    """
    own = own_figures(args)
    given = [option for option, value in own.items() if value is not None]
    if args.gpu == "":
        raise UsageError("the GPU name of --gpu is empty", "List the names with `kernelroof gpus`.")
    if args.gpu is not None and given:
        raise UsageError(f"--gpu and own figures ({', '.join(given)}) exclude each other", "Give one of them.")
    check_plausible(own)
