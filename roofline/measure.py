"""Ceilings measured on the spot: what this machine's memory, caches and arithmetic really reach.

A roof is the best that any of several kernels reached in any repeat: a roof drawn too low would put
healthy kernels above it. The kernels are torch's own, run with the threads of the profiled run,
because those are the kernels that are judged. Nothing here is asserted about the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.errors import DriverError, UsageError
from kernelroof.roofline import machine
from kernelroof.roofline.ceilings import Ceilings, checked
from kernelroof.roofline.timing import Rate, rate_of
from kernelroof.roofline.units import quantity

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16", "float16", "float64")
_PARTS = 8
_CACHES_WIDE = 4
"""DRAM working set as a multiple of the last-level cache, so that hardly any of it stays there."""


class Plan(NamedTuple):
    """Sizes and time limits of one measurement. Limits are in seconds, per kernel and round."""

    dram_bytes: int
    cache_bytes: tuple[int, ...]
    sides: tuple[int, ...]
    dram_s: float = 0.06
    cache_s: float = 0.015
    product_s: float = 0.2


def measure_ceilings(
    dtype: str, *, device: str = "cpu", threads: int | None = None, plan: Plan | None = None
) -> tuple[Ceilings, dict[str, Any]]:
    """Measure DRAM and cache bandwidth and the matrix-product rate in `dtype`, in about three seconds.

    Args:
        dtype: one of `DTYPES`, the dtype of the run.
        device: "cpu" or a CUDA device.
        threads: CPU threads, those of the run; None keeps torch's present number.
        plan: sizes and time limits; by default fitted to this machine's caches and free memory.

    Returns:
        The ceilings (bytes/s, FLOP/s; a multiply-add is 2 FLOP, a copy counts read and written bytes)
        and the details, ready for JSON: what was run, what each kernel reached in its best and its
        median repeat, and `unsteady`, best over median of the three kernels that set the ceilings: well
        above 1 on a machine that was busy with something else.

    Raises:
        UsageError: a dtype that can't be measured, or fewer than one thread.
        DriverError: the device can't be used, or no memory is left to measure with.
    """
    import torch

    if dtype not in DTYPES:
        raise UsageError(f"can't measure ceilings for dtype {dtype!r}", f"Use one of {', '.join(DTYPES)}.")
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}", "Give at least one thread.")
    started = time.perf_counter()
    with _threads(threads), torch.inference_mode():
        try:
            target = torch.device(device)
            sizes = plan or default_plan(target)
            # Memory is measured before and after the products: a disturbance seldom lasts that long.
            dram, cache = dram_bandwidth(sizes, dtype, target), cache_bandwidth(sizes, dtype, target)
            rates = {
                "product_flop_s": product_rate(sizes, dtype, target),
                "dram_byte_s": _better(dram, dram_bandwidth(sizes, dtype, target)),
                "cache_byte_s": _better(cache, cache_bandwidth(sizes, dtype, target)),
            }
            last_bytes, last_source = _last_level(target)
        except (RuntimeError, AssertionError) as error:
            line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise DriverError(
                f"ceilings could not be measured on {device}: {line}", "Free memory, or choose another device."
            ) from error
        used = torch.get_num_threads() if target.type == "cpu" else None
    best = {key: max(found.items(), key=lambda item: item[1].best) for key, found in rates.items()}
    details = {
        "threads": used,
        "dram_working_set_bytes": sizes.dram_bytes,
        "last_level_cache_bytes": last_bytes,
        "last_level_cache_source": last_source,
        **{key: {name: rate._asdict() for name, rate in found.items()} for key, found in rates.items()},
        "unsteady": {key: round(rate.best / rate.median, 2) for key, (_, rate) in best.items()},
        "seconds": round(time.perf_counter() - started, 3),
    }
    name, memory = _machine(target)
    who = name if used is None else f"{used} threads, {name}"
    ceilings = Ceilings(
        name=name,
        flop_s=best["product_flop_s"][1].best,
        byte_s=best["dram_byte_s"][1].best,
        cache_byte_s=best["cache_byte_s"][1].best,
        dtype=dtype,
        origin="measured",
        memory_bytes=memory,
        note=f"{who}; product {best['product_flop_s'][0]} {dtype}; memory {best['dram_byte_s'][0]} over "
        f"{quantity(sizes.dram_bytes, 'B', 3)}; cache {best['cache_byte_s'][0]}",
    )
    return checked(ceilings), details


def default_plan(device: torch.device) -> Plan:
    """Sizes that fit the device: DRAM working set of at least four last-level caches and 256 MiB (1 GiB
    on a GPU), but no more than a quarter of the free memory; cache working sets from half the
    second-level cache to half the last."""
    import torch

    last, _ = _last_level(device)
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        dram = min(max(_CACHES_WIDE * last, 2**30), free // 4)
        return Plan(dram, (last // 8, last // 4, last // 2), (4096, 8192))
    known = machine.cache_sizes()
    near = known.get(2, last // 8)
    available = [machine.memory_bytes("MemAvailable"), machine.container_headroom_bytes()]
    room = min((n for n in available if n is not None), default=2**30)
    dram = min(max(_CACHES_WIDE * last, 2**28), room // 4)
    if dram < 2 * last:
        raise DriverError(
            f"memory bandwidth can't be measured: {room / 1e6:.0f} MB are free, and a working set must be larger than "
            f"twice the cache of {last / 1e6:.0f} MB",
            "Free some memory.",
        )
    caches = sorted({near // 2, near, last // 4, last // 2})
    # A few cores reach their peak on small products; many need large ones to share out.
    sides = (256, 512, 1024) if torch.get_num_threads() <= 4 else (512, 1024, 2048, 4096)
    return Plan(dram, tuple(caches), sides)


def dram_bandwidth(plan: Plan, dtype: str, device: torch.device) -> dict[str, Rate]:
    """Kernel -> bytes/s, over a working set of `plan.dram_bytes`.

    Reads are a reduction, and the matrix-vector product that decode consists of, both with the
    weights in `dtype` and in float32: bytes are bytes, and the faster instruction path is the roof.
    Kernels walk through the working set in parts, so that a part has left the caches when its turn comes
    again; each part is timed alone, because short spells between two disturbances are easier to catch.
    """
    import torch

    # Zeros mean zero in every dtype that this block is viewed as. They are written, because pages that
    # were never touched are all one page of zeros and would be read from a cache.
    block = torch.empty(plan.dram_bytes // 8, dtype=torch.float64, device=device).fill_(0.0)
    parts = block.chunk(_PARTS)
    half = parts[0].numel() // 2
    single = [part.view(torch.float32) for part in parts]
    rates = {
        "sum float32": rate_of(_in_turn([s.sum for s in single]), _bytes(single[0]), plan.dram_s, device),
        "copy float64": rate_of(_in_turn([_copier(p, half) for p in parts]), 2 * half * 8, plan.dram_s, device),
    }
    for name in dict.fromkeys(("float32", dtype)):
        for columns in (4096, 1024):
            matrices = [_matrix(part, name, columns) for part in parts]
            label = f"matrix-vector {name} {matrices[0].shape[0]}x{columns}"
            rates[label] = _matvec(matrices, plan.dram_s, device)
    return rates


def cache_bandwidth(plan: Plan, dtype: str, device: torch.device) -> dict[str, Rate]:
    """Kernel and working set -> bytes/s, for each size of `plan.cache_bytes`."""
    import torch

    rates: dict[str, Rate] = {}
    for size in plan.cache_bytes:
        block = torch.zeros(max(size // 8, 1024), dtype=torch.float64, device=device)
        single, half = block.view(torch.float32), block.numel() // 2
        label = f"{_bytes(block) / 2**20:g} MiB"
        copy, matrix = _copier(block, half), _matrix(block, dtype, 512)
        rates[f"sum float32 {label}"] = rate_of(single.sum, _bytes(single), plan.cache_s, device)
        rates[f"copy float64 {label}"] = rate_of(copy, 2 * half * 8, plan.cache_s, device)
        rates[f"matrix-vector {dtype} {label}"] = _matvec([matrix], plan.cache_s, device)
    return rates


def product_rate(plan: Plan, dtype: str, device: torch.device) -> dict[str, Rate]:
    """Size and layout -> FLOP/s of square matrix products in `dtype`.

    `a @ b.T` is what a linear layer runs; on a CPU without native support one layout of a narrow dtype
    can be a hundred times slower than the other. So sizes grow, and a layout that would take much longer
    than its time at the next size stops there, the leading one later than the other.
    """
    import torch

    kind = getattr(torch, dtype)
    generator = torch.Generator(device=device).manual_seed(0)
    rates: dict[str, Rate] = {}
    layouts = ["a @ b.T", "a @ b"]
    for side in sorted(plan.sides):
        # Random operands: a GPU draws less power, and clocks higher, on zeros.
        a, b = (torch.randn(side, side, generator=generator, device=device).to(kind) for _ in range(2))
        flops = 2 * side**3
        here: dict[str, Rate] = {}
        for layout in layouts:
            right = b.t() if layout == "a @ b.T" else b
            here[layout] = rate_of(_product(a, right), flops, plan.product_s, device)
        rates |= {f"{side}x{side} {layout}": rate for layout, rate in here.items()}
        leader = max(here, key=lambda layout: here[layout].best)
        patience_s = {layout: plan.product_s * (5 if layout == leader else 1.5) for layout in layouts}
        layouts = [layout for layout in layouts if 8 * flops / here[layout].best < patience_s[layout]]
        if not layouts:
            break
    return rates


def _better(first: dict[str, Rate], second: dict[str, Rate]) -> dict[str, Rate]:
    """Per kernel, the measurement of the two with the faster best repeat."""
    return {name: max(rate, second[name]) for name, rate in first.items()}


def _machine(device: torch.device) -> tuple[str, int | None]:
    """The name of the device and the size of its memory in bytes."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device), torch.cuda.mem_get_info(device)[1]
    sizes = [machine.memory_bytes("MemTotal"), machine.container_limit_bytes()]
    return machine.cpu_name(), min((size for size in sizes if size is not None), default=None)


def _last_level(device: torch.device) -> tuple[int, str]:
    """Bytes of the last cache before memory, and where that figure comes from."""
    import torch

    if device.type == "cuda":
        size = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
        return (size, "device properties") if size else (machine.DEFAULT_CACHE_BYTES, "assumed")
    known = machine.cache_sizes()
    if known:
        level = max(known)
        return known[level], f"/sys/devices/system/cpu, level {level}"
    return machine.DEFAULT_CACHE_BYTES, "assumed"


def _matrix(block: torch.Tensor, dtype: str, columns: int) -> torch.Tensor:
    import torch

    flat = block.view(getattr(torch, dtype))
    rows = flat.numel() // columns
    return flat[: rows * columns].view(rows, columns)


def _matvec(matrices: Sequence[torch.Tensor], limit_s: float, device: torch.device) -> Rate:
    import torch

    first = matrices[0]
    vector = torch.zeros(1, first.shape[1], dtype=first.dtype, device=device)
    linear = torch.nn.functional.linear
    return rate_of(_in_turn([partial(linear, vector, m) for m in matrices]), _bytes(first), limit_s, device)


def _in_turn(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """One callable that makes the next of these calls each time."""
    endless = cycle(calls)
    return lambda: next(endless)()


def _copier(block: torch.Tensor, half: int) -> Callable[[], object]:
    source, target = block[:half], block[half : 2 * half]
    return lambda: target.copy_(source)


def _product(a: torch.Tensor, b: torch.Tensor) -> Callable[[], object]:
    return lambda: a @ b


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    """Run with this number of torch threads, and put the former number back."""
    import torch

    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
