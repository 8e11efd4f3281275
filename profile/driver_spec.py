"""What a run of the driver depends on, as one value that travels as JSON."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
from typing import Any

from kernelroof.models.errors import DriverError
from kernelroof.profile.compile_check import check_compile

_KINDS: dict[str, tuple[type, ...]] = {
    "dict[str, Any]": (dict,),
    "int": (int,),
    "int | None": (int, type(None)),
    "str": (str,),
    "str | None": (str, type(None)),
}


@dataclasses.dataclass(frozen=True)
class DriverSpec:
    """All that a run depends on. Counts are tokens or sequences; names are those of the command line.

    config: content of the model's config.json. weights: a local checkpoint, or None for random ones.
    threads: CPU threads, or None for torch's own choice. depth: of the ranges, when there are any.
    warmup: passes of a prefill and 2 steps before the measured ones. repeats: measured passes; of short ones
    up to `most_repeats`, while all together take less than two seconds (0: no more than `repeats`).
    head: "last" runs the head on a prompt's last position only, "all" on all of them.
    compile: a mode of torch.compile, or None to run eagerly.
    """

    config: dict[str, Any]
    batch: int = 1
    prompt: int = 256
    output: int = 16
    dtype: str = "float32"
    attn: str = "sdpa"
    cache: str = "dynamic"
    device: str = "cpu"
    weights: str | None = None
    threads: int | None = None
    depth: str = "module"
    seed: int = 0
    warmup: int = 1
    repeats: int = 3
    most_repeats: int = 0
    head: str = "last"
    compile: str | None = None

    def to_json(self) -> str:
        """The spec as a JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> DriverSpec:
        """Read what `to_json` wrote.

        Raises:
            DriverError: not a JSON object, or a field is missing or unknown.
        """
        try:
            fields = json.loads(text)
        except json.JSONDecodeError as error:
            raise DriverError(f"the driver's spec is not JSON ({error})") from error
        if not isinstance(fields, dict) or "config" not in fields:
            raise DriverError("the driver's spec is not a JSON object with a config")
        unknown = sorted(set(fields) - {f.name for f in dataclasses.fields(cls)})
        if unknown:
            raise DriverError(f"the driver's spec has unknown fields: {', '.join(unknown)}")
        for field in dataclasses.fields(cls):
            kind = _KINDS[str(field.type)]
            if field.name in fields and not isinstance(fields[field.name], kind):
                raise DriverError(
                    f"the driver's spec has {field.name} {fields[field.name]!r}", "Write it with to_json."
                )
        return cls(**fields)


def check_spec(spec: DriverSpec, positions: int | None) -> None:
    import torch

    for field in ("batch", "prompt", "output", "repeats"):
        if getattr(spec, field) < 1:
            raise DriverError(f"{field} is {getattr(spec, field)}", "Give a whole number of at least 1.")
    if spec.threads is not None and spec.threads < 1:
        raise DriverError(f"threads is {spec.threads}", "Give a whole number of at least 1.")
    if spec.head not in ("last", "all"):
        raise DriverError(f"head is {spec.head!r}", "Choose last or all.")
    if positions is not None and spec.prompt + spec.output > positions:
        raise DriverError(
            f"prompt {spec.prompt} + output {spec.output} is beyond the model's max_position_embeddings of {positions}",
            "Ask for fewer tokens.",
        )
    if spec.weights is not None and not os.path.isdir(spec.weights):
        raise DriverError(f"weights: there is no folder {spec.weights}", "Give the folder of a local checkpoint.")
    if spec.attn == "flash_attention_2" and importlib.util.find_spec("flash_attn") is None:
        raise DriverError(
            "attention flash_attention_2 needs the package flash-attn, which is not installed",
            "Install it on a GPU box, or use --attn sdpa.",
        )
    if not -(2**63) <= spec.seed < 2**64:
        raise DriverError(f"seed is {spec.seed}", "Give a seed that fits 64 bits.")
    if spec.threads is not None and spec.threads > 8 * (os.cpu_count() or 1):
        raise DriverError(
            f"threads is {spec.threads}, and this machine has {os.cpu_count()} CPUs", "Ask for fewer threads."
        )
    if spec.device.startswith("cuda") and not torch.cuda.is_available():
        raise DriverError(
            f"device is {spec.device}, and torch {torch.__version__} sees no CUDA device",
            "Use --device cpu, or a CUDA build of torch on a machine with a GPU.",
        )
    check_compile(spec)
