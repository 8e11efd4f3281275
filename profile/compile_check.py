"""Can this machine compile a model, and does the workload allow it: asked before anything is built."""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import TYPE_CHECKING

from kernelroof.models.errors import DriverError

if TYPE_CHECKING:
    from kernelroof.profile.driver_spec import DriverSpec

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune")
GRAPHS_MODE = "reduce-overhead"
"""The mode of torch.compile that replays each graph as one CUDA graph."""
_WITH_GRAPHS = (GRAPHS_MODE, "max-autotune")


def uses_cuda_graphs(spec: DriverSpec) -> bool:
    """Whether a run replays CUDA graphs."""
    return spec.compile in _WITH_GRAPHS and spec.device.startswith("cuda")


def check_compile(spec: DriverSpec) -> None:
    """Refuse a compiled run that can't be.

    Raises:
        DriverError: an unknown mode, a cache that grows, CUDA graphs without a GPU, or no compiler.
    """
    if spec.compile is None:
        return
    if spec.compile not in COMPILE_MODES:
        raise DriverError(f"compile is {spec.compile!r}", f"Choose one of {', '.join(COMPILE_MODES)}.")
    on_gpu = spec.device.startswith("cuda")
    if spec.compile == GRAPHS_MODE and not on_gpu:
        raise DriverError(
            f"CUDA graphs (compile mode {GRAPHS_MODE}) need a GPU, and this run is on {spec.device}",
            "Use --compile default here, or a machine with a GPU.",
        )
    if spec.cache != "static":
        raise DriverError(
            f"a compiled run needs the static cache, and this one has the {spec.cache} one: it changes its shape each "
            "step, and every change is compiled again until torch gives up and runs eagerly",
            "Use --cache static.",
        )
    if on_gpu and importlib.util.find_spec("triton") is None:
        raise DriverError(
            "torch.compile on a GPU needs the package triton, which is not installed", "Install it: pip install triton."
        )
    if not _cpp_compiler():
        raise DriverError(
            "torch.compile needs a C++ compiler, and there is none here" + _named(),
            "Install one (apt-get install g++), or set CXX to yours.",
        )


def _cpp_compiler() -> str | None:
    """Path of the C++ compiler that torch would call: the one of CXX, else g++ or clang++."""
    chosen = os.environ.get("CXX")
    names = (chosen,) if chosen else ("g++", "clang++")
    return next((path for name in names if (path := shutil.which(name))), None)


def _named() -> str:
    chosen = os.environ.get("CXX")
    return f" (CXX is {chosen})" if chosen else ""
