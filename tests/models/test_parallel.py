"""Splits over GPUs: parts add up to the whole, and communication is counted as a ring sends it."""

import pytest
from kernelroof.models.errors import UsageError
from kernelroof.models.estimate import costs, ideal_times
from kernelroof.models.parallel import COLLECTIVE_S, _stages, split
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
    assert part.kv_bytes <= costs(LLAMA, load).kv_bytes * layers / 32
    assert part.collectives_per_step == pp - 1
    # A token passes all stages, so its latency does not shrink; the rate does grow.
    one = split(LLAMA, load, tp=1, pp=1, **PEAKS)
    assert part.step_s >= one.step_s * 0.999
    assert part.tokens_per_s > one.tokens_per_s


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
