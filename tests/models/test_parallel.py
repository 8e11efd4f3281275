"""Splits over GPUs: parts add up to the whole, and communication is counted as a ring sends it."""

import pytest
from kernelroof.models.errors import UsageError
from kernelroof.models.estimate import costs, ideal_times
from kernelroof.models.parallel import COLLECTIVE_S, _stages, largest_split_batch, split
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload

LLAMA = read_spec(load_config("llama-3-8b"), "llama-3-8b")
PEAKS = {"flop_s": 989e12, "byte_s": 3350e9, "link_byte_s": 450e9}


def load_of(**options):
    return make_workload(LLAMA, batch=4, prompt=512, output=8, **options)


def test_one_gpu_is_the_estimate():
    load = load_of()
    cost = costs(LLAMA, load)
    one = split(LLAMA, load, tp=1, pp=1, **PEAKS)
    times = ideal_times(cost, 989e12, 3350e9)
    assert (one.weight_bytes, one.kv_bytes, one.total_bytes) == (cost.weight_bytes, cost.kv_bytes, cost.total_bytes)
    assert (one.step_s, one.prefill_s) == (times.first_step_s, times.prefill_s)
    assert one.sent_bytes_per_step == one.step_comm_s == one.collectives_per_step == 0


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallel_divides_all_but_the_vectors(tp):
    load = load_of()
    whole, part = costs(LLAMA, load), split(LLAMA, load, tp=tp, pp=1, **PEAKS)
    vectors = (2 * 32 + 1) * 4096 * 2
    assert part.weight_bytes == (whole.weight_bytes - vectors) // tp + vectors
    assert part.kv_bytes == whole.kv_bytes / tp
    # Two all-reduces of 4 x 4096 bf16 per layer and one of the table's rows, and the logits' gather.
    reduced = 65 * 2 * (tp - 1) / tp * 4 * 4096 * 2
    assert part.sent_bytes_per_step == reduced + (tp - 1) / tp * 4 * 128256 * 2
    assert part.collectives_per_step == 66
    assert part.step_comm_s == pytest.approx(part.sent_bytes_per_step / 450e9 + 66 * COLLECTIVE_S)
    assert part.step_s < costs(LLAMA, load).first_step.bytes / 3350e9


def test_fewer_kv_heads_than_gpus_are_held_by_several():
    load = load_of()
    eight, sixteen = (split(LLAMA, load, tp=n, pp=1, **PEAKS) for n in (8, 16))
    assert sixteen.kv_bytes == eight.kv_bytes


@pytest.mark.parametrize("pp", [2, 3, 32])
def test_pipeline_stages_hold_the_layers_between_them(pp):
    load = load_of()
    part = split(LLAMA, load, tp=1, pp=pp, **PEAKS)
    layers = -(-32 // pp)
    layer_bytes = (costs(LLAMA, load).weight_bytes - 2 * 128256 * 4096 * 2 - 8192) // 32
    assert part.weight_bytes >= layers * layer_bytes
    # A batch is in flight in each stage, and each stage holds its layers' caches of all of them.
    whole = costs(LLAMA, load)
    assert part.kv_bytes == pp * whole.kv_bytes * layers / 32
    assert part.total_bytes >= 1.1 * (part.weight_bytes + part.kv_bytes)
    assert part.collectives_per_step == pp - 1
    # A token passes all stages, so its latency does not shrink; the rate does grow.
    one = split(LLAMA, load, tp=1, pp=1, **PEAKS)
    assert part.step_s >= one.step_s * 0.999
    assert part.tokens_per_s > one.tokens_per_s


def fields(**changed):
    """A small model; its ratios are those of real ones."""
    base = {
        "vocab_size": 1000, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 4096,
    }  # fmt: skip
    return {**base, **changed}


LATENT = read_spec(
    fields(
        model_type="deepseek_v3", num_key_value_heads=16, q_lora_rank=96, kv_lora_rank=64, qk_rope_head_dim=16,
        qk_nope_head_dim=32, v_head_dim=32, n_routed_experts=None, first_k_dense_replace=4,
    ),
    "latent",
)  # fmt: skip


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_a_latent_is_held_by_all_and_its_heads_are_divided(tp):
    load = make_workload(LATENT, batch=4, prompt=512, output=8)
    one, part = (split(LATENT, load, tp=n, pp=1, executed=True, **PEAKS) for n in (1, tp))
    assert part.kv_bytes == one.kv_bytes
    # What every head makes of the latent is most of the bytes, and is divided as the heads are.
    made = 4 * 513 * 4 * 16 * (2 * 32 + 2 * 40) * 2
    step = part.step_s - part.step_comm_s
    assert one.step_s - step > 0.95 * made * (1 - 1 / tp) / 3350e9


def test_uneven_heads_count_on_the_fullest_gpu():
    spec = read_spec(fields(model_type="llama", num_attention_heads=20, num_key_value_heads=10, head_dim=32), "uneven")
    load = make_workload(spec, batch=1, prompt=64, output=8)
    assert split(spec, load, tp=4, pp=1, **PEAKS).kv_bytes == costs(spec, load).kv_bytes * 3 / 10


def test_a_layer_without_attention_or_mlp_reduces_once():
    config = {
        "model_type": "nemotron_h", "vocab_size": 1000, "hidden_size": 512, "intermediate_size": 1024,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 4096,
        "hybrid_override_pattern": "M-M*-", "num_hidden_layers": 5, "mamba_num_heads": 16, "mamba_head_dim": 32,
        "ssm_state_size": 32, "n_groups": 4, "conv_kernel": 4,
    }  # fmt: skip
    spec = read_spec(config, "hybrid")
    part = split(spec, make_workload(spec, batch=1, prompt=64, output=8), tp=2, pp=1, **PEAKS)
    # One for each layer, one for the embedding table, one gathers the logits.
    assert part.collectives_per_step == 5 + 1 + 1


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (4, 1), (2, 2)])
def test_the_largest_batch_of_a_split_just_fits(tp, pp):
    load = load_of()
    most = largest_split_batch(LLAMA, load, tp=tp, pp=pp, memory_bytes=24e9)
    sizes = [split(LLAMA, load._replace(batch=n), tp=tp, pp=pp, **PEAKS).total_bytes for n in (most, most + 1)]
    assert sizes[0] <= 24e9 < sizes[1]
    assert largest_split_batch(LLAMA, load, tp=tp, pp=pp, memory_bytes=1e9) == 0


def test_what_can_not_be_split():
    with pytest.raises(UsageError, match="heads"):
        split(LLAMA, load_of(), tp=3, pp=1, **PEAKS)
    with pytest.raises(UsageError, match="stages"):
        split(LLAMA, load_of(), tp=1, pp=33, **PEAKS)


HYBRID = read_spec(
    {
        "model_type": "nemotron_h", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "hybrid_override_pattern": "M-M*M-",
        "mamba_num_heads": 16, "mamba_head_dim": 32, "ssm_state_size": 32, "n_groups": 2, "conv_kernel": 4,
        "chunk_size": 64, "expand": 2, "vocab_size": 512, "tie_word_embeddings": False, "max_position_embeddings": 4096,
    },
    "hybrid",
)  # fmt: skip
NARROW = read_spec(
    {
        "model_type": "opt", "hidden_size": 256, "ffn_dim": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
        "word_embed_proj_dim": 128, "vocab_size": 512, "max_position_embeddings": 512, "do_layer_norm_before": False,
        "tie_word_embeddings": False,
    },
    "narrow",
)  # fmt: skip
FUSED = read_spec(
    {
        "model_type": "phi3", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
        "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 512, "tie_word_embeddings": False,
        "max_position_embeddings": 4096,
    },
    "fused",
)  # fmt: skip


def test_a_layer_of_one_part_ends_in_one_all_reduce():
    load = make_workload(HYBRID, prompt=64, output=8)
    assert split(HYBRID, load, tp=2, pp=1, **PEAKS).collectives_per_step == 6 + 1 + 1


@pytest.mark.parametrize("pp", [2, 4])
def test_what_stands_outside_the_layers_is_held_once(pp):
    """Positions and the matrices around a narrow table: the stages add up to the whole model."""
    load = make_workload(NARROW, prompt=64, output=8)
    whole = costs(NARROW, load)
    stages = [costs(stage, load) for stage in _stages(NARROW, pp)]
    assert sum(s.weight_bytes for s in stages) == whole.weight_bytes
    assert sum(s.parameters for s in stages) == whole.parameters
    assert sum(s.kv_bytes for s in stages) == whole.kv_bytes


def test_fused_keys_and_values_are_held_by_several_gpus_where_heads_are_few():
    load = make_workload(FUSED, prompt=64, output=8)
    whole, part = costs(FUSED, load), split(FUSED, load, tp=8, pp=1, **PEAKS)
    vectors = (2 * 2 + 1) * 512
    keyed = 2 * 512 * 2 * 4 * 32  # both layers' K and V matrices, in quarters instead of eighths
    assert part.weight_bytes == 2 * ((whole.parameters - vectors - keyed) // 8 + vectors + keyed // 4)
