"""Where a model's config comes from: a preset, a folder, a config.json, or a Hub id."""

from __future__ import annotations

import json
import os
from typing import Any

from kernelroof.models.errors import ConfigError, UnknownModelError

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "preset_configs")


_LARGEST = 50_000_000
"""Bytes; configs have some thousands. Somebody may name a checkpoint's weights instead."""


def preset_names() -> list[str]:
    """Names of the presets that come with the package."""
    return sorted(f[:-5] for f in os.listdir(_FOLDER) if f.endswith(".json"))


def load_config(model: str) -> dict[str, Any]:
    """Return the Hugging Face config of a model as a dict.

    `model` is a preset name, a folder that holds a config.json, the path of such a file, or a Hub
    id (`org/name`), which needs network or a local Hub cache.

    Raises:
        UnknownModelError: none of these.
        ConfigError: the file is not a JSON object.
    """
    preset = os.path.join(_FOLDER, f"{model.lower()}.json")
    if os.sep not in model and os.path.isfile(preset):
        return _read(preset)
    if os.path.isdir(model):
        path = os.path.join(model, "config.json")
        if not os.path.isfile(path):
            raise UnknownModelError(
                f"the folder {model} has no config.json", "Give a model's folder or its config.json."
            )
        return _read_with_siblings(path)
    if os.path.isfile(model):
        return _read_with_siblings(model)
    if model.count("/") == 1 and not model.endswith(".json") and model[0] not in "./~":
        return _read(_from_hub(model))
    import difflib

    near = difflib.get_close_matches(model.lower(), preset_names(), 3, 0.5)
    raise UnknownModelError(
        f"no preset, folder or config file named {model!r}",
        (f"Did you mean {' or '.join(near)}? " if near else "")
        + f"Presets: {', '.join(preset_names())}; or give a config.json.",
    )


def display_name(model: str) -> str:
    """A short name for a model argument: the preset, the folder's name or the Hub id."""
    path = model.rstrip("/" + os.sep)
    if path.endswith(".json") and os.path.isfile(path):
        stem = os.path.basename(path)[:-5]
        if stem != "config":
            return stem.removesuffix("_config")
        return os.path.basename(os.path.dirname(os.path.abspath(path)))
    return os.path.basename(os.path.abspath(path)) if os.path.isdir(path) else path


def _read_with_siblings(path: str) -> dict[str, Any]:
    """A config.json and the hf_quant_config.json beside it, which modelopt writes for quantised checkpoints."""
    config = _read(path)
    beside = path.removesuffix("config.json") + "hf_quant_config.json"
    if not path.endswith("config.json") or path == beside or not os.path.isfile(beside):
        return config
    from kernelroof.models.quant_config import with_hf_quant_config

    return with_hf_quant_config(config, _read(beside))


def _read(path: str) -> dict[str, Any]:
    try:
        if os.path.getsize(path) > _LARGEST:
            raise ConfigError(f"{path} is too large for a config", "Give a Hugging Face config.json.")
        with open(path, encoding="utf-8-sig") as file:
            config = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error})", "Give a Hugging Face config.json.") from error
    except OSError as error:
        raise UnknownModelError(f"{path} can't be read ({error.strerror})", "Check its permissions.") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path} holds JSON, but not an object", "Give a Hugging Face config.json.")
    return config


def _from_hub(model: str) -> str:
    """Path of a Hub model's config.json in the local cache, fetched if need be."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise UnknownModelError(
            f"{model} looks like a Hub id, and huggingface_hub is not installed", "Give a config.json instead."
        ) from error
    # The Hub client raises a dozen unrelated kinds (requests, httpx, OSError, its own); all mean "not had".
    why = "not in the local cache"
    try:
        return str(huggingface_hub.hf_hub_download(model, "config.json", local_files_only=True))
    except Exception as error:
        if type(error).__name__ == "HFValidationError":
            why = "no valid Hub id"
    # Asked once and briefly first: with no network the client itself would retry for half a minute.
    if why.startswith("not") and not huggingface_hub.constants.HF_HUB_OFFLINE and _hub_answers():
        try:
            return str(huggingface_hub.hf_hub_download(model, "config.json", etag_timeout=5))
        except Exception as error:
            why = type(error).__name__
    raise UnknownModelError(
        f"{model} is no preset or path, and its config can't be had from the Hub ({why})",
        "With no network, download its config.json elsewhere and give the path of that file.",
    )


def _hub_answers() -> bool:
    import socket
    from urllib.parse import urlsplit

    import huggingface_hub

    place = urlsplit(huggingface_hub.constants.ENDPOINT)
    try:
        port = place.port or (443 if place.scheme == "https" else 80)
        with socket.create_connection((place.hostname or "", port), timeout=3):
            return True
    except OSError:
        return False
