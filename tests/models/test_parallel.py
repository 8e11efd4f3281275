"""Splits over GPUs: parts add up to the whole, and communication is counted as a ring sends it."""

import pytest
from kernelroof.models.errors import UsageError
from kernelroof.models.estimate import costs, ideal_times
from kernelroof.models.parallel import COLLECTIVE_S, split
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
    # Two all-reduces of 4 x 4096 bf16 per layer, and the logits' gather.
    reduced = 64 * 2 * (tp - 1) / tp * 4 * 4096 * 2
    assert part.sent_bytes_per_step == reduced + (tp - 1) / tp * 4 * 128256 * 2
    assert part.collectives_per_step == 65
    assert part.step_comm_s == pytest.approx(part.sent_bytes_per_step / 450e9 + 65 * COLLECTIVE_S)
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
