"""Which kernels a compiled graph calls, in order, and which modules' ops each of them computes."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from kernelroof.parsers.schema import ROOT_MODULE
from kernelroof.roofline.compiled_calls import common_module

if TYPE_CHECKING:
    import torch

_ROOT = re.compile(r"^L\[[^\]]*\](\[\d+\])?")
_SLICE = re.compile(r"\.slice\([^)]*\)")
_INDEX = re.compile(r"\[['\"]?(\w+)['\"]?\]")
_SHAPES_ONLY = frozenset(
    "view _unsafe_view reshape permute transpose t squeeze unsqueeze expand slice select alias as_strided split "
    "iota arange full scalar_tensor empty getitem detach".split()
)
"""Ops that only name, cut or fill: which module wrote them says nothing of a kernel's work."""


def known_modules(model: torch.nn.Module) -> frozenset[str]:
    """The paths of all modules of a model."""
    return frozenset(name for name, _ in model.named_modules() if name)


def calls_of(modules: frozenset[str]) -> list[dict[str, Any]]:
    """The kernel calls of the graph that inductor generates just now, in order; empty if it does not tell.

    See `kernelroof.roofline.compiled_calls.Call`, whose fields these are.
    """
    from torch._inductor import debug
    from torch._inductor.virtualized import V

    made: dict[str, list[str]] = getattr(debug, "_inductor_triton_kernel_to_post_grad_node_info", {})
    graph: Any = V.graph.module.graph
    nodes = {node.name: node for node in graph.nodes}
    found = [(key.rpartition(":")[0], [nodes[n] for n in names if n in nodes]) for key, names in made.items()]
    times = Counter(node.name for _, members in found for node in members)
    return [_call(kernel, members, times, modules) for kernel, members in found]


def _call(kernel: str, members: list[Any], times: Counter[str], modules: frozenset[str]) -> dict[str, Any]:
    name = extern_op(kernel)
    call: dict[str, Any] = {"kernel": name or kernel, "extern": name is not None}
    working = [n for n in members if op_name(n) not in _SHAPES_ONLY] or members
    if name is not None:
        same = [n for n in members if f"aten::{op_name(n)}" == name]
        working = same[:1] if len(same) == 1 else working
        call |= _operands(same[0]) if len(same) == 1 else {}
    # What several kernels compute is computed again in each: it is the rest that makes this kernel.
    own = [n for n in working if times[n.name] == 1] if name is None else working
    paths = [p for n in own or working if (p := path_of(n, modules))]
    return {
        **call,
        "module": common_module(paths),
        "modules": sorted({p for n in working if (p := path_of(n, modules))}),
        "ops": sorted({f"aten::{op_name(n)}" for n in working}),
    }


def extern_op(kernel: str) -> str | None:
    """The aten op of a library's kernel as inductor names it ("extern_kernels.mm"); None for a generated one."""
    parts = kernel.split(".")
    if parts[0] == "extern_kernels" and len(parts) == 2:
        return f"aten::{parts[1]}"
    if parts[:2] == ["torch", "ops"] and len(parts) >= 4:
        return f"{parts[2]}::{parts[3]}"
    if parts[0] == "aten" and len(parts) >= 2:
        return f"aten::{parts[1]}"
    return None


def op_name(node: Any) -> str:
    """The base name of a node's op: "mm", "mul"."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet))


def path_of(node: Any, modules: frozenset[str]) -> str | None:
    """The path of the innermost module that made a node; None where it is not known."""
    stack = node.meta.get("nn_module_stack") or {}
    for path, _ in reversed(list(stack.values())):
        name = plain_path(str(path))
        if name in modules:
            return name
    return ROOT_MODULE if stack else None


def plain_path(path: str) -> str:
    """A module's path in torch's words ("L['self'].model.layers.slice(None, 2, None)[0].mlp") in ours."""
    plain = _SLICE.sub("", _ROOT.sub("", path))
    return _INDEX.sub(r".\1", plain).replace("._modules", "").strip(".")


def _operands(node: Any) -> dict[str, Any]:
    """Shapes and bytes of a node's operands, each once, and bytes of its first result (others are by-products)."""
    operands = [a.meta.get("val") for a in node.all_input_nodes]
    result = node.meta.get("val")
    if isinstance(result, (list, tuple)):
        result = result[0] if result else None
    sizes = [_bytes(v) for v in operands]
    return {
        "shapes": [_shape(v) for v in operands],
        "read_bytes": None if None in sizes else sum(s for s in sizes if s is not None),
        "write_bytes": _bytes(result),
    }


def _bytes(value: Any) -> int | None:
    try:
        return int(value.numel()) * int(value.element_size())
    except (AttributeError, TypeError, ValueError):
        return None


def _shape(value: Any) -> list[int]:
    try:
        return [int(n) for n in value.shape]
    except (AttributeError, TypeError, ValueError):
        return []
