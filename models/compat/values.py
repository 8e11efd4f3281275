"""Values of tensors on the meta device, where they follow from the inputs' sizes and not from weights.

Models ask for values: is the mask all ones, where does this position start, how many tokens has this expert.
A tensor that was made from numbers and from other such tensors has a value that any device would compute;
it is computed on the CPU, and only when it is asked for. What depends on weights has no value; where a model
asks for that, `kernelroof.models.compat.choices` decides, or the trace ends with an error that says so.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from kernelroof.models.errors import DriverError
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

Tensor = torch.Tensor

_ATTRIBUTE = "_kernelroof_value"
_MOST_ELEMENTS = 1 << 27
"""A tensor larger than this is not computed, so that a value asked for by accident does not fill the memory."""
_DATA_TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


class _Memory:
    """What the values that share one storage share: whether they hold, and who must be computed before a change."""

    __slots__ = ("known", "waiting")

    def __init__(self) -> None:
        self.known = True
        self.waiting: weakref.WeakSet[_Value] = weakref.WeakSet()


class _Value:
    """A tensor's value, or how to compute it."""

    __slots__ = ("__weakref__", "_made", "_make", "memory")

    def __init__(self, memory: _Memory, make: Callable[[], Tensor] | None, made: Tensor | None = None) -> None:
        self.memory = memory
        self._make = make
        self._made = made

    def get(self) -> Tensor:
        if self._made is None:
            assert self._make is not None
            self._made, self._make = self._make(), None
        return self._made


def value_of(tensor: Tensor) -> Tensor | None:
    """The value of a tensor as a CPU tensor, or None if it depends on weights. Not to be changed."""
    if not tensor.is_meta:
        return tensor
    value = _find(tensor)
    return None if value is None else value.get()


def set_value(tensor: Tensor, make: Callable[[], Tensor]) -> None:
    """Say what the tensor on meta holds: `make` gives a CPU tensor of its shape, when it is asked for."""
    setattr(tensor, _ATTRIBUTE, _Value(_Memory(), make))


def _find(tensor: Tensor) -> _Value | None:
    """The tensor's value if it has one that still holds."""
    if not tensor.is_meta:
        return _Value(_Memory(), None, tensor)
    value: _Value | None = getattr(tensor, _ATTRIBUTE, None)
    return value if value is not None and value.memory.known else None


def list_as_index(index: Any, device: torch.device) -> Any:
    """An index with its Python lists as tensors that have values; torch would make them where no mode sees it."""
    if isinstance(index, tuple):
        return tuple(list_as_index(i, device) for i in index)
    if not isinstance(index, list) or device.type != "meta":
        return index
    with _disable_current_modes():
        made = torch.tensor(index)
        meta = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype, device=device)
    set_value(meta, lambda: made)
    return meta


def made_of_numbers(*args: Any, **kwargs: Any) -> Tensor:
    """torch.tensor, with the value that it was given; on meta, torch forgets it where no mode sees it."""
    made = torch.tensor(*args, **kwargs)
    if made.is_meta and getattr(made, _ATTRIBUTE, None) is None:
        data = args[0] if args else kwargs["data"]
        with _disable_current_modes():
            value = torch.tensor(data, dtype=made.dtype, device="cpu")
        set_value(made, lambda: value)
    return made


class Values(TorchDispatchMode):
    """Follows values through every op that runs in the block, and answers what asks for them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = _tensors((args, kwargs))
        makes = not inputs and str(kwargs.get("device")) == "meta"
        if not makes and not any(t.is_meta for t in inputs):
            return func(*args, **kwargs)
        values = [_find(t) for t in inputs]
        if torch.Tag.nondeterministic_seeded in func.tags or None in values:
            return _unknown(func, args, kwargs, inputs)
        return _known(func, args, kwargs, {id(t): v for t, v in zip(inputs, values, strict=True) if v is not None})


def _known(func: Any, args: Any, kwargs: Any, values: dict[int, _Value]) -> Any:
    """An op whose inputs all have values."""

    def compute() -> Any:
        def concrete(x: Any) -> Any:
            return values[id(x)].get() if isinstance(x, Tensor) else x

        with torch.no_grad():
            return func(*tree_map(concrete, args), **_on_cpu(tree_map(concrete, kwargs)))

    if any(tag in func.tags for tag in _DATA_TAGS):
        return tree_map(_as_meta, compute())
    if kwargs.get("device") is not None and str(kwargs["device"]) != "meta":
        return compute()  # a copy to another device, where the value is wanted
    targets = _written(func, args, kwargs)
    if targets:
        if any(not t.is_meta for t in targets):
            return func(*tree_map(lambda x: _real(x, values), args), **kwargs)
        changed = [values[id(t)] for t in targets]
        for value in changed:
            for other in list(value.memory.waiting):
                other.get()
        out = func(*args, **kwargs)
        if all(t.numel() <= _MOST_ELEMENTS for t in targets):
            compute()
        else:
            for value in changed:
                value.memory.known = False
        return out
    out = func(*args, **kwargs)
    _attach(func, args, out, compute, values)
    return out


def _attach(func: Any, args: Any, out: Any, compute: Callable[[], Any], values: dict[int, _Value]) -> None:
    """Give the results their values: computed once for all of them, and sharing memory where the op is a view."""
    results = out if isinstance(out, (tuple, list)) else (out,)
    shared = values[id(args[0])].memory if func.is_view and args and isinstance(args[0], Tensor) else None
    once: list[Any] = []

    def nth(i: int) -> Tensor:
        if not once:
            whole = compute()
            once.append(whole if isinstance(whole, (tuple, list)) else (whole,))
        result: Tensor = once[0][i]
        return result

    for i, result in enumerate(results):
        if not isinstance(result, Tensor) or not result.is_meta or id(result) in values:
            continue
        if result.numel() > _MOST_ELEMENTS or (func._schema.name.startswith("aten::empty") and _floats(result)):
            continue
        value = _Value(shared or _Memory(), lambda i=i: nth(i))  # type: ignore[misc]
        setattr(result, _ATTRIBUTE, value)
        for memory in {id(v.memory): v.memory for v in values.values()}.values():
            memory.waiting.add(value)


def _unknown(func: Any, args: Any, kwargs: Any, inputs: list[Tensor]) -> Any:
    """An op of which an input has no value."""
    from kernelroof.models.compat import choices

    name = func._schema.name
    for target in _written(func, args, kwargs):
        value = _find(target) if target.is_meta else None
        if value is not None:
            for other in list(value.memory.waiting):
                other.get()
            value.memory.known = False
    replaced = choices.ANSWERS.get(name)
    if replaced is not None:
        answer = replaced(func, *args, **kwargs)
        if answer is not None:
            return answer
    if any(tag in func.tags for tag in _DATA_TAGS):
        raise DriverError(
            f"{name} asks for a value that is computed from weights, and the meta device computes none",
            "Trace a config whose forward does not depend on such values.",
        )
    out = func(*args, **kwargs)
    chosen = choices.CHOICES.get(name)
    if chosen is not None:
        chosen(*args, **kwargs, out=out)
    return out


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that an op changes in place."""
    if not func._schema.is_mutable:
        return []
    found: list[Tensor] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += _tensors(args[i] if i < len(args) else kwargs.get(argument.name))
    return found


def _real(x: Any, values: dict[int, _Value]) -> Any:
    return values[id(x)].get() if isinstance(x, Tensor) and x.is_meta else x


def _as_meta(x: Any) -> Any:
    """A computed tensor as one on meta that has this value; anything else as it is."""
    if not isinstance(x, Tensor):
        return x
    meta = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    set_value(meta, lambda: x)
    return meta


def _on_cpu(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**kwargs, "device": torch.device("cpu")} if kwargs.get("device") is not None else kwargs


def _floats(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _tensors(item)]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in _tensors(item)]
    return []
