"""Reading a config's fields: every value is checked, and every complaint names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelroof.models.errors import ConfigError

_DTYPES = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "half": "float16",
}


MOST = 10**12
"""No size of a model or workload is larger. What is would leave the range in which floats can hold the results."""


class Fields:
    """The fields of one config, by the names that the readers use.

    Args:
        config: the content of a `config.json`, or its text part.
        name: the model's name, for messages.
        aliases: names that this family's config uses instead ("hidden_size" -> "n_embd").
        defaults: what the family's config class puts where a field is absent.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        name: str,
        aliases: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self._config = config
        self._aliases = aliases or {}
        self._defaults = defaults or {}

    def changed(self, fields: Mapping[str, Any]) -> Fields:
        """The same config with some fields replaced."""
        return Fields({**self._config, **fields}, self.name, self._aliases, self._defaults)

    def of_layer(self, index: int) -> Fields:
        """The config as layer `index` sees it (`per_layer_config`, which transformers 5 writes)."""
        overrides = self._config.get("per_layer_config")
        if not isinstance(overrides, Mapping):
            return self
        mine = next((v for k, v in overrides.items() if str(k).isdigit() and int(k) == index), None)
        return self if not isinstance(mine, Mapping) else self.changed({**mine, "global_head_dim": None})

    def get(self, field: str) -> Any:
        """The value of a field, or its default, or None. A field that is null in the config has no default."""
        if self.given(field):
            return self._value(field)
        default = self._defaults.get(field)
        return self._defaults.get(self._aliases.get(field, "")) if default is None else default

    def given(self, field: str) -> bool:
        """Whether the config itself has a field, be it null."""
        return field in self._config or self._value(field) is not None

    def first(self, fields: Sequence[str]) -> str | None:
        """The first of several names for one thing that the config gives, or else that has a default."""
        found = next((f for f in fields if self.given(f) and self.has(f)), None)
        return next((f for f in fields if self.has(f)), None) if found is None else found

    def _value(self, field: str) -> Any:
        if self._config.get(field) is not None or field not in self._aliases:
            return self._config.get(field)
        # An alias may lead into a config within the config: "attn_config.kv_n_heads".
        value: Any = self._config
        for step in self._aliases[field].split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        return value

    def has(self, field: str) -> bool:
        return self.get(field) is not None

    def size(self, *fields: str, default: int | None = None) -> int:
        """A whole number of at least 1: the first of `fields` that is there or has a default."""
        return self._whole(fields, next((f for f in fields if self.has(f)), None), 1, default)

    def count(self, *fields: str, default: int | None = None) -> int:
        """A whole number of at least 0: the first of `fields` that is there or has a default."""
        return self._whole(fields, next((f for f in fields if self.has(f)), None), 0, default)

    def either(self, *fields: str, default: int | None = None) -> int:
        """A whole number of at least 0 that goes by several names: what the config gives, or else a default."""
        return self._whole(fields, self.first(fields), 0, default)

    def flag(self, field: str, default: bool = False) -> bool:
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ConfigError(
                f"{self.name}: {field} is {shortened(value)}, not true or false", "Correct it in the config."
            )
        return value

    def rule(self, rule: bool | str) -> bool:
        """A fact that code fixes (a bool), or the field that decides it."""
        return rule if isinstance(rule, bool) else self.flag(rule)

    def number(self, field: str, default: float | None = None) -> float:
        """A number above zero, whole or not."""
        value = self.get(field)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MOST:
            raise ConfigError(
                f"{self.name}: {field} is {shortened(value)}, not a plausible number above zero",
                "Correct it in the config.",
            )
        return value

    def per_layer(self, field: str, layers: int) -> Sequence[Any]:
        """A list with one entry per layer."""
        value = self.get(field)
        if not isinstance(value, (list, tuple)) or len(value) < layers:
            raise ConfigError(
                f"{self.name}: {field} is {shortened(value)}, not a list with one entry for each of {layers} layers",
                "Correct it in the config.",
            )
        return value[:layers]

    def switches(self, field: str, layers: int) -> Sequence[bool]:
        """A list with yes or no (1 or 0) for each layer."""
        value = self.per_layer(field, layers)
        if not all(isinstance(v, int) and v in (0, 1) for v in value):
            raise ConfigError(
                f"{self.name}: {field} is {shortened(value)}, not a list of 1 and 0", "Correct it in the config."
            )
        return [bool(v) for v in value]

    def numbers(self, field: str) -> tuple[int, ...]:
        """A list of whole numbers; empty where the field is absent."""
        value = self.get(field)
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)) or not all(isinstance(n, int) and abs(n) <= MOST for n in value):
            raise ConfigError(
                f"{self.name}: {field} is {shortened(value)}, not a list of whole numbers", "Correct it in the config."
            )
        return tuple(value)

    def dtype(self) -> str:
        """The checkpoint's own number format."""
        value = self.get("dtype") or self.get("torch_dtype") or "bfloat16"
        known = _DTYPES.get(str(value).removeprefix("torch."))
        if known is None:
            raise ConfigError(
                f"{self.name}: torch_dtype {shortened(value)} is not one of {', '.join(sorted(set(_DTYPES.values())))}",
                "Correct it in the config.",
            )
        return known

    def named(self, field: str) -> str:
        """The name that messages give a field: the one which this config uses."""
        alias = self._aliases.get(field)
        return alias if alias is not None and self._config.get(field) is None else field

    def _whole(self, fields: tuple[str, ...], field: str | None, least: int, default: int | None) -> int:
        if field is not None:
            value = self.get(field)
            if isinstance(value, list) and value and all(v == value[0] for v in value):
                # One entry per layer, all the same.
                value = value[0]
            return whole(value, f"{self.name}: {self.named(field)}", least)
        if default is not None:
            return default
        wanted = " or ".join(dict.fromkeys(self.named(f) for f in fields))
        raise ConfigError(f"{self.name}: the config has no {wanted}", "Add it, or give the model's own config.json.")


def whole(value: Any, where: str, least: int = 1) -> int:
    """A value that must be a whole number of at least `least`; `where` names it in the complaint.

    Raises:
        ConfigError: something else, or absurdly large.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(
            f"{where} is {shortened(value)}, not a whole number of at least {least}", "Correct it in the config."
        )
    if value > MOST:
        raise ConfigError(f"{where} is {shortened(value)}, more than any model has", "Correct it in the config.")
    return value


def shortened(value: Any, most: int = 60) -> str:
    """A value as messages show it: one line of bounded length, whatever a config holds."""
    words = repr(value)
    return words if len(words) < most else words[: most - 3] + "..."
