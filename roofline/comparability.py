"""Whether two runs can be compared, and what differs in their set-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_WORKLOAD = ("batch", "prompt", "output")
_ASKED = ("model", "dtype", "attn", "cache", "device", "mask", "embedding", "weights")
_DRIVER = ("threads", "depth", "head", "seed", "compile", "cuda_graphs")


class Difference(NamedTuple):
    """One thing in which two runs differ. `effect` is empty where the comparison is of just that."""

    what: str
    a: str
    b: str
    effect: str


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """What differs between the set-ups of two runs, from their run.json."""
    one, two = a["identity"], b["identity"]
    found = list(_differing(one, two, _WORKLOAD, _workload_effect))
    found += _differing(one, two, _ASKED, lambda _: "")
    found += _differing(one.get("driver", {}), two.get("driver", {}), _DRIVER, lambda _: "")
    if one.get("driver", {}).get("config") != two.get("driver", {}).get("config") and one["model"] == two["model"]:
        found.append(Difference("config", "its own", "its own", "models of one name with other sizes"))
    found += _differing(one.get("machine", {}), two.get("machine", {}), ("cpu", "torch", "transformers"), lambda _: "")
    found += _differing(_gpu(a), _gpu(b), ("gpu", "driver"), lambda _: "")
    found += _differing(
        a.get("sources") or {},
        b.get("sources") or {},
        ("timeline", "counters"),
        lambda what: f"{what} of another tool: figures are not from one source",
    )
    return found


def same_setup(found: list[Difference]) -> bool:
    """Whether two runs are repeats of one set-up."""
    return not found


def not_comparable(found: list[Difference]) -> list[str]:
    """Sentences on what makes figures of the two runs incomparable; empty where nothing does."""
    return [f"{d.what} {d.a} against {d.b}: {d.effect}" for d in found if d.effect]


def _workload_effect(what: str) -> str:
    return {
        "batch": "steps do other work",
        "prompt": "prefill does other work, and decode reads another cache",
        "output": "the mean step of decode is at another context",
    }[what]


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, ...], effect: Any) -> Iterator[Difference]:
    for name in names:
        if a.get(name) != b.get(name):
            yield Difference(name, _said(a.get(name)), _said(b.get(name)), effect(name))


def _gpu(run: Mapping[str, Any]) -> dict[str, Any]:
    gpu = (run.get("environment") or {}).get("gpu")
    return {"gpu": gpu.get("name"), "driver": gpu.get("driver")} if isinstance(gpu, Mapping) else {}


def _said(value: Any) -> str:
    return "none" if value is None else str(value)
