"""Does a run fit, and what did it need when it did not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kernelroof.models.errors import ConfigError, DriverError
from kernelroof.profile.driver_spec import DriverSpec

_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)


def needed_bytes(spec: DriverSpec) -> tuple[int, int | None]:
    """Bytes of the parameters, and of the full KV cache and peak activations; those None for an unknown family."""
    from kernelroof.models.estimate import costs
    from kernelroof.models.hf import build_model
    from kernelroof.models.spec import read_spec
    from kernelroof.models.workload import make_workload

    attn = "sdpa" if spec.attn == "flash_attention_2" else spec.attn
    model = build_model(spec.config, dtype=spec.dtype, attn=attn, device="meta")
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    try:
        workload = make_workload(
            read_spec(spec.config),
            batch=spec.batch,
            prompt=spec.prompt,
            output=spec.output,
            dtype=spec.dtype,
            weights_dtype=spec.dtype,
            kv_dtype=spec.dtype,
            attn=spec.attn,
            cache=spec.cache,
            head=spec.head,
        )
    except ConfigError:
        return parameters, None
    cost = costs(read_spec(spec.config), workload)
    return parameters, cost.kv_bytes + cost.peak_activation_bytes


def _need(spec: DriverSpec) -> tuple[int, str]:
    """Bytes that the run needs at least, and the sum in words."""
    parameters, rest = needed_bytes(spec)
    more = "KV cache and activations" if rest is None else f"{rest / 1e9:.2f} GB of KV cache and activations"
    return parameters + (rest or 0), f"{parameters / 1e9:.2f} GB of parameters + {more}"


def check_memory(spec: DriverSpec) -> None:
    """Refuse what can't fit before the kernel kills the process for it."""
    from kernelroof.profile.environment import available_memory_bytes

    if spec.device.startswith("cuda"):
        import torch

        free: int | None = torch.cuda.mem_get_info(torch.device(spec.device))[0]
    else:
        free = available_memory_bytes()
    total, words = _need(spec)
    if free is not None and total > free:
        raise DriverError(
            f"the run needs {words}, and {spec.device} has {free / 1e9:.2f} GB free",
            "Choose a smaller model, dtype, batch or prompt.",
        )


@contextmanager
def memory_errors(spec: DriverSpec) -> Iterator[None]:
    """Turn an allocator's failure into a DriverError that says what the run needed."""
    try:
        yield
    except (RuntimeError, MemoryError, DriverError) as error:
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DriverError(
            f"out of memory on {spec.device}: the run needs {_need(spec)[1]} ({first})",
            "Choose a smaller model, dtype, batch or prompt.",
        ) from error
