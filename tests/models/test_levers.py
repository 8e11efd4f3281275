"""Levers against the estimate of the changed configuration, and what they refuse to promise."""

import pytest
from kernelroof.models.estimate import costs
from kernelroof.models.latent import absorbed
from kernelroof.models.levers import Assumed, Device, best_first, gain, levers, state_of
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload

LLAMA = read_spec(load_config("llama-3-8b"), "llama-3-8b")
A100 = Device("a100", 312e12, 2039e9, 80 * 10**9, 300e9, 31.5e9)
L4 = Device("l4", 121e12, 300e9, 24 * 10**9, 31.5e9, 31.5e9)


def found(device=A100, assumed=None, others=(), **options):
    load = make_workload(LLAMA, **options)
    before = state_of(LLAMA, load, device)
    return load, before, levers(LLAMA, load, device, others, assumed or Assumed())


def one(rows, name, setting=None):
    return next(r for r in rows if r.name == name and setting in (None, r.setting))


@pytest.mark.parametrize(
    ("name", "setting", "change"),
    [
        ("weight quantisation", "int4-g128", {"weights_dtype": "int4-g128"}),
        ("KV quantisation", "fp8", {"kv_dtype": "fp8"}),
        ("paged cache", "in place", {"cache": "ideal"}),
    ],
)
def test_a_lever_is_the_estimate_with_one_thing_changed(name, setting, change):
    load, before, rows = found(batch=8, prompt=2048)
    after = one(rows, name, setting).after
    assert after == state_of(LLAMA, load._replace(**change), A100)
    assert after.step_s < before.step_s


def test_times_count_all_bytes_that_are_known():
    load, before, _ = found()
    step = costs(LLAMA, load).first_step
    assert before.step_s == pytest.approx(
        (step.bytes + step.kv_write_bytes + step.cache_copy_bytes + step.activation_bytes) / 2039e9
    )


def test_the_largest_batch_fits_and_is_the_fastest_of_all():
    load, before, rows = found()
    batches = [r for r in rows if r.name == "larger batch"]
    most = int(batches[-1].setting.replace(",", ""))
    assert batches[-1].after.fits
    assert not state_of(LLAMA, load._replace(batch=most + 1), A100).fits
    assert gain(before, batches[-1].after, "throughput") > 10
    assert gain(before, batches[-1].after, "latency") < 1


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_n_gpus_are_never_more_than_n_times_as_fast(gpus):
    _, before, rows = found(batch=16)
    after = one(rows, "tensor parallel", f"{gpus} GPUs").after
    assert 1 < gain(before, after, "latency") < gpus
    assert after.gpus == gpus


@pytest.mark.parametrize(("drafted", "acceptance"), [(4, 0.7), (1, 0.5), (3, 1.0), (5, 0.0)])
def test_expected_tokens_of_speculation_by_enumeration(drafted, acceptance):
    """Sum over how many drafts in a row are right; one token always comes from the pass itself."""
    expected = sum(acceptance**n for n in range(drafted + 1))
    _, before, rows = found(assumed=Assumed(drafted=drafted, acceptance=acceptance))
    lever = one(rows, "speculative decoding")
    assert lever.reason.startswith(f"{expected:.2f} tokens")
    # The pass is a little longer than a step, so the gain stays under the number of tokens.
    assert gain(before, lever.after, "latency") <= expected
    assert gain(before, lever.after, "latency") == pytest.approx(expected, rel=0.01)


def test_speculation_does_not_pay_once_decode_is_compute_bound():
    load = make_workload(LLAMA, batch=512, prompt=16)
    lever = one(levers(LLAMA, load, A100, (), Assumed()), "speculative decoding")
    assert gain(state_of(LLAMA, load, A100), lever.after, "latency") < 1


def test_what_does_not_fit_is_rescued_first():
    load, before, rows = found(device=L4, batch=64, prompt=4096)
    assert not before.fits
    ranked = best_first(rows, before, "memory")
    applies = [r.after.fits for r in ranked if r.after is not None]
    assert applies == sorted(applies, reverse=True)
    assert applies[0]
    assert one(rows, "larger batch").after is None
    assert load.batch == 64


def test_offload_where_a_little_is_missing():
    tight = L4._replace(memory_bytes=16 * 10**9)
    _, before, rows = found(device=tight)
    lever = one(rows, "offload")
    excess = before.total_bytes - 16e9
    assert lever.after.step_s == pytest.approx(max(excess / 31.5e9, before.step_s))
    assert one(found()[2], "offload").after is None


def test_eager_attention_is_told_to_fuse():
    load, before, rows = found(attn="eager", prompt=2048)
    after = one(rows, "fused attention").after
    assert after == state_of(LLAMA, load._replace(attn="sdpa"), A100)
    assert after.prefill_s < before.prefill_s
    assert one(found()[2], "fused attention").after is None


def test_half_a_prompt_saves_less_than_half_of_the_rest():
    _, before, rows = found(prompt=4096)
    after = one(rows, "prefix caching").after
    # The second half attends to the first, so more than half of the work stays.
    assert 0.5 < after.prefill_s / before.prefill_s < 0.6


def test_continuous_batching_uses_the_given_lengths():
    _, before, rows = found(batch=4)
    lever = one(rows, "continuous batching")
    assert 1.85 < lever.gain(before, "throughput") < 1 / 0.5125
    # No policy fills more than all slots, which is what the present rate counts.
    assert lever.against.tokens_per_s == pytest.approx(0.5125 * before.tokens_per_s)
    assert lever.after.tokens_per_s < before.tokens_per_s
    assert one(found(batch=1)[2], "continuous batching").after is None


def test_a_format_that_is_there_already_is_no_lever():
    load = make_workload(LLAMA, weights_dtype="fp8-block", kv_dtype="int4")
    rows = levers(LLAMA, load, A100, (), Assumed())
    assert [r.setting for r in rows if r.name == "weight quantisation"] == ["int4-g128"]
    assert one(rows, "KV quantisation").after is None


def test_two_batches_in_flight_hold_two_caches():
    load, before, rows = found(batch=32, prompt=4096)
    after = one(rows, "pipeline parallel").after
    cost = costs(LLAMA, load)
    assert after.total_bytes > 1.1 * (cost.weight_bytes / 2 + cost.kv_bytes)
    assert 1 < gain(before, after, "throughput") < 2


def test_a_draft_model_takes_room_and_reads_the_prompt():
    drafting = Assumed(draft_step_s=1e-4, draft_prefill_s=2e-3, draft_bytes=5e9)
    _, before, rows = found(device=L4, assumed=drafting)
    after = one(rows, "speculative decoding").after
    assert after.total_bytes == before.total_bytes + 5e9
    assert after.prefill_s == before.prefill_s + 2e-3
    _, before, rows = found(device=L4, assumed=drafting._replace(draft_bytes=9e9))
    assert before.fits
    assert not one(rows, "speculative decoding").after.fits


def test_a_window_keeps_none_of_a_shared_prefix():
    config = {**load_config("llama-3-8b"), "model_type": "mistral", "sliding_window": 256}
    spec = read_spec(config, "windowed")
    load = make_workload(spec, batch=8, prompt=2048)
    before = state_of(spec, load, A100)
    assert one(levers(spec, load, A100, (), Assumed()), "prefix caching").after.total_bytes == before.total_bytes
    load, before, rows = found(batch=8, prompt=2048)
    saved = before.total_bytes - one(rows, "prefix caching").after.total_bytes
    assert saved == pytest.approx(1.1 * 7 * 1024 * costs(LLAMA, load).kv_bytes_per_token)


def latent_model():
    return read_spec(
        {
            "model_type": "deepseek_v3", "vocab_size": 1000, "hidden_size": 512, "intermediate_size": 1024,
            "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": 96,
            "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32,
            "n_routed_experts": None, "first_k_dense_replace": 4, "max_position_embeddings": 4096,
        },
        "latent",
    )  # fmt: skip


def test_absorbed_latents_multiply_what_the_algebra_says():
    """By hand, per layer and query: q U, scores over rank + rope, sums over rank, times W; no head's keys are made."""
    spec = latent_model()
    load = make_workload(spec, batch=2, prompt=1000, output=4)
    old, new = costs(spec, load), costs(absorbed(spec), load)
    assert (new.parameters, new.weight_bytes, new.kv_bytes) == (old.parameters, old.weight_bytes, old.kv_bytes)
    layer = 16 * (2 * 32 * 64 + 2 * 64 * 32 + 1001 * (2 * (64 + 16) + 2 * 64))
    expanded = 1001 * 16 * (2 * 64 * 64 + 2 * (48 + 32))
    assert old.first_step.flops - new.first_step.flops == 2 * 4 * (expanded - layer)
    assert new.first_step.activation_bytes < old.first_step.activation_bytes / 10
    assert absorbed(LLAMA) is None


def test_the_estimate_of_a_latent_cache_points_to_the_lever():
    assert any("anew in every forward" in note for note in latent_model().notes)


def test_absorbing_is_a_lever_of_decode_alone():
    spec = latent_model()
    load = make_workload(spec, batch=2, prompt=1000)
    before = state_of(spec, load, A100)
    after = one(levers(spec, load, A100, (), Assumed()), "absorbed latents").after
    assert after.step_s < before.step_s
    assert after.prefill_s == before.prefill_s
    assert all(r.name != "absorbed latents" for r in found()[2])


def test_other_gpus_are_measured_with_their_own_peaks():
    load, _, rows = found(others=(L4,))
    assert one(rows, "another GPU").after == state_of(LLAMA, load, L4)


def test_a_shared_prefix_saves_no_cache_that_a_window_has_let_go_of():
    config = {
        "model_type": "mistral", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 512, "sliding_window": 256,
        "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    for window, saved_tokens in ((256, 0), (None, 1024)):
        spec = read_spec({**config, "sliding_window": window}, "windowed")
        load = make_workload(spec, batch=4, prompt=2048, output=8)
        before = state_of(spec, load, A100)
        after = one(levers(spec, load, A100, (), Assumed()), "prefix caching").after
        per_token = costs(spec, load).kv_bytes_per_token
        assert before.total_bytes - after.total_bytes == pytest.approx(3 * saved_tokens * per_token * 1.1)


def test_drafted_tokens_bring_their_own_operands_and_results():
    load, _before, rows = found(batch=8, prompt=1024, cache="ideal")
    after = one(rows, "speculative decoding").after
    step = costs(LLAMA, load).first_step
    verified = costs(LLAMA, load._replace(prompt=1028)).first_step
    # Five tokens per sequence go through the matrices; the cache is read once.
    moved = verified.bytes + 5 * (step.kv_write_bytes + step.activation_bytes)
    tokens = sum(0.7**i for i in range(5))
    assert after.step_s == pytest.approx(moved / 2039e9 / tokens, rel=1e-9)
