"""The closed form and the traced estimate say the same, for every preset and convention.

The traced side runs the real Hugging Face module on the meta device; nothing in it knows the formulas.
"""

import functools

import pytest
from kernelroof.models.estimate import costs
from kernelroof.models.kinds import kind_of
from kernelroof.models.presets import load_config, preset_names
from kernelroof.models.spec import read_spec
from kernelroof.models.trace import trace
from kernelroof.models.workload import make_workload

# batch, prompt, output, attention, cache, head
WORKLOADS = [
    (1, 1024, 2, "sdpa", "dynamic", "last"),
    (3, 77, 2, "eager", "dynamic", "all"),
    (2, 200, 2, "sdpa", "static", "last"),
    (1, 33, 3, "eager", "static", "all"),
    (3, 1, 1, "sdpa", "static", "all"),
]
SHALLOW = WORKLOADS[3:]
"""Corner cases, on two layers of each preset: all layers are alike."""
PRODUCTS = ("matmul", "attention")


def config_of(preset, load):
    config = load_config(preset)
    return {**config, "num_hidden_layers": 2} if load in SHALLOW else config


@functools.cache
def traced(preset, load):
    batch, prompt, output, attn, cache, head = load
    config = config_of(preset, load)
    return trace(
        config,
        batch=batch,
        prompt=prompt,
        output=output,
        dtype=read_spec(config).dtype,
        attn=attn,
        cache=cache,
        head=head,
    )


def total(ops, field):
    return sum(getattr(op, field) for op in ops)


@pytest.fixture(params=WORKLOADS, ids=lambda w: "-".join(map(str, w)))
def load(request):
    return request.param


@pytest.fixture(params=preset_names())
def preset(request):
    return request.param


def both(preset, load, **conventions):
    batch, prompt, output, attn, cache, head = load
    spec = read_spec(config_of(preset, load), preset)
    workload = make_workload(
        spec, batch=batch, prompt=prompt, output=output, attn=attn, cache=cache, head=head, **conventions
    )
    result = traced(preset, load)
    phases = {
        "prefill": [op for op in result.ops if op.phase == "prefill"],
        "first_step": [op for op in result.ops if op.phase == "decode" and op.step == 0],
        "decode": [op for op in result.ops if op.phase == "decode"],
    }
    return costs(spec, workload), result, phases


def test_sizes(preset, load):
    cost, result, _ = both(preset, load)
    assert result.parameters == cost.parameters
    assert result.parameter_bytes == cost.weight_bytes
    assert result.cache_bytes == cost.kv_bytes


def test_flops_as_run(preset, load):
    cost, _, phases = both(preset, load)
    for phase, ops in phases.items():
        run = sum(op.flops for op in ops if op.flops_kind in PRODUCTS)
        assert run == getattr(cost, phase).flops > 0, phase


def test_flops_with_a_full_mask(preset, load):
    cost, _, phases = both(preset, load, mask="full")
    for phase, ops in phases.items():
        full = sum(op.flops_full for op in ops if op.flops_kind in PRODUCTS)
        assert full == getattr(cost, phase).flops, phase


def test_weight_bytes(preset, load):
    """Every parameter once a forward, but for the embedding table, of which only rows are gathered."""
    cost, _, phases = both(preset, load)
    for phase, ops in phases.items():
        # Rotary frequencies are a buffer, no parameter; gathered rows are no stream.
        streamed = [op for op in ops if kind_of(op.module, op.op, op.role) not in ("embedding", "rotary")]
        assert total(streamed, "weight_bytes") == getattr(cost, phase).weight_bytes > 0, phase


def test_kv_bytes(preset, load):
    cost, _, phases = both(preset, load)
    attn, cache = load[3], load[4]
    for phase, ops in phases.items():
        closed = getattr(cost, phase)
        updates = [op for op in ops if op.role == "cache"]
        moved = total(updates, "kv_read_bytes") + total(updates, "kv_write_bytes")
        assert moved == closed.kv_write_bytes + closed.cache_copy_bytes, phase
        if attn == "sdpa":
            attention = [op for op in ops if op.flops_kind == "attention"]
            assert total(attention, "kv_read_bytes") == closed.kv_read_bytes > 0, phase
        else:
            # Eager attention first expands K and V; whatever reads the cache must read all of it.
            readers = [op for op in ops if op.role != "cache" and op.kv_read_bytes]
            assert total(readers, "kv_read_bytes") >= closed.kv_read_bytes > 0, phase
        assert (closed.cache_copy_bytes > 0) == ((cache == "dynamic") != (phase == "prefill")), phase


@pytest.mark.parametrize("load", WORKLOADS[:2], ids=lambda w: w[3])
def test_activation_bytes_of_products_and_attention(preset, load):
    """Where attention takes no explicit mask; with one it moves more, which only the trace counts."""
    cost, _, phases = both(preset, load)
    for phase, ops in phases.items():
        products = [op for op in ops if op.flops_kind in PRODUCTS]
        moved = total(products, "act_read_bytes") + total(products, "act_write_bytes")
        assert moved == getattr(cost, phase).activation_bytes, phase
