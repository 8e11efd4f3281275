from __future__ import annotations

import inspect
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from kernelroof.models import hf
from kernelroof.models.errors import ConfigError, DriverError, UsageError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}


def build(device: str = "cpu", **changes: Any) -> torch.nn.Module:
    return hf.build_model({**LLAMA, **changes}, dtype="float32", attn="sdpa", device=device)


def test_meta_model_allocates_nothing_and_is_in_eval_mode() -> None:
    model = build("meta")
    assert all(p.is_meta for p in model.parameters())
    assert not model.training


def test_random_weights_follow_the_seed_and_leave_the_random_state() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again = build(), build()
    other = hf.build_model(LLAMA, dtype="float32", attn="sdpa", device="cpu", seed=1)
    assert torch.equal(before, torch.get_rng_state())
    weights = [m.get_parameter("model.layers.0.mlp.up_proj.weight") for m in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("dtype", hf.DTYPES)
def test_parameters_have_the_dtype_asked_for(dtype: str) -> None:
    model = hf.build_model(LLAMA, dtype=dtype, attn="sdpa", device="meta")
    assert {p.dtype for p in model.parameters()} == {getattr(torch, dtype)}


def test_checkpoint_is_loaded(tmp_path: Path) -> None:
    saved = build()
    saved.save_pretrained(tmp_path)  # type: ignore[operator]
    loaded = hf.build_model(LLAMA, dtype="float32", attn="eager", device="cpu", weights=str(tmp_path), seed=9)
    for (name, a), (_name, b) in zip(saved.named_parameters(), loaded.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert loaded.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"hidden_size": 8}, "model_type"),
        ({"model_type": "no-such-family"}, "no-such-family"),
        ({**LLAMA, "hidden_size": 65}, "llama"),
    ],
)
def test_bad_config_is_one_clear_line(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        hf.config_object(config)
    assert "\n" not in str(error.value)


def test_bad_choices() -> None:
    with pytest.raises(UsageError, match="float31"):
        hf.build_model(LLAMA, dtype="float31", attn="sdpa", device="meta")
    with pytest.raises(UsageError, match="flash9"):
        hf.build_model(LLAMA, dtype="float32", attn="flash9", device="meta")
    with pytest.raises(UsageError, match="ring"):
        hf.make_cache("ring", build("meta"), max_length=8, batch=1)


def test_missing_checkpoint_is_a_driver_error(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="nowhere"):
        hf.build_model(LLAMA, dtype="float32", attn="sdpa", device="cpu", weights=str(tmp_path / "nowhere"))


def test_quiet_restores_what_it_silenced() -> None:
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    with hf.quiet():
        assert log.get_verbosity() == logging.ERROR
        assert not log.is_progress_bar_enabled()
    assert (log.get_verbosity(), log.is_progress_bar_enabled()) == (level, bars)


@pytest.mark.parametrize("kind", hf.CACHES)
def test_steps_with_a_cache_agree_with_one_pass_over_all_tokens(kind: str) -> None:
    """Greedy tokens and logits of prefill and steps are those of a forward without any cache."""
    model = build()
    prompt, steps, batch = 12, 4, 2
    ids = torch.arange(batch * prompt).reshape(batch, prompt) % LLAMA["vocab_size"]
    cache = hf.make_cache(kind, model, max_length=prompt + steps, batch=batch)
    logits = hf.run_prefill(model, cache, ids, last_only=True)
    assert logits.shape == (batch, 1, LLAMA["vocab_size"])
    seen = ids
    for _ in range(steps):
        token = hf.choose_token(logits)
        assert token.shape == (batch, 1)
        seen = torch.cat([seen, token], dim=1)
        logits = hf.run_step(model, cache, token)
        with torch.no_grad():
            whole = model(input_ids=seen, use_cache=False).logits
        torch.testing.assert_close(logits[:, -1], whole[:, -1], rtol=1e-4, atol=1e-5)
    held = hf.cache_tensors(cache)
    assert [name for name, _t in held] == [
        f"layers.{i}.{n}" for i in range(LLAMA["num_hidden_layers"]) for n in ("keys", "values")
    ]
    assert {tuple(t.shape) for _name, t in held} == {(batch, 2, prompt + steps, 16)}


def test_head_on_all_positions() -> None:
    model = build()
    cache = hf.make_cache("dynamic", model, max_length=8, batch=1)
    assert hf.run_prefill(model, cache, torch.zeros(1, 8, dtype=torch.int64), last_only=False).shape[1] == 8


def test_argument_names_follow_the_signature() -> None:
    """The renamed cache argument and the renamed head limit, as forwards of three generations declare them."""

    class Old(torch.nn.Module):
        def forward(self, input_ids: Any, past_key_values: Any = None, num_logits_to_keep: int = 0) -> None: ...

    class Middle(torch.nn.Module):
        def forward(self, input_ids: Any, past_key_values: Any = None, logits_to_keep: int = 0) -> None: ...

    class New(torch.nn.Module):
        def forward(self, input_ids: Any, cache: Any = None) -> None: ...

    held = object()
    assert hf.forward_kwargs(Old(), held, last_only=True) == {
        "past_key_values": held, "use_cache": True, "num_logits_to_keep": 1
    }  # fmt: skip
    assert hf.forward_kwargs(Middle(), held, last_only=True)["logits_to_keep"] == 1
    assert "logits_to_keep" not in hf.forward_kwargs(Middle(), held, last_only=False)
    assert hf.forward_kwargs(New(), held, last_only=True) == {"cache": held, "use_cache": True}


def test_installed_model_takes_the_chosen_argument() -> None:
    model = build("meta")
    assert hf.cache_argument(model) in inspect.signature(model.forward).parameters


def test_cache_tensors_of_the_old_layout() -> None:
    k, v = torch.zeros(1, 2, 3, 4), torch.ones(1, 2, 3, 4)
    held = hf.cache_tensors(SimpleNamespace(key_cache=[k, []], value_cache=[v, []]))
    assert [name for name, _t in held] == ["layers.0.keys", "layers.0.values"]
    assert [t is w for (_n, t), w in zip(held, (k, v), strict=True)] == [True, True]
