"""What fits and where bounds turn, against the estimate one step before and after."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.models.capacity import (
    cache_outgrows_weights,
    compute_bound_batch,
    largest,
    largest_batch,
    largest_context,
    parameters_that_fit,
)
from kernelroof.models.estimate import costs
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload

LLAMA = read_spec(load_config("llama-3-8b"), "llama-3-8b")


@given(st.integers(0, 5000), st.integers(1, 4000))
def test_largest_by_counting(limit, most):
    assert largest(lambda n: n <= limit, most) == min(limit, most)


@pytest.mark.parametrize("options", [{}, {"kv_dtype": "fp8"}, {"weights_dtype": "int4", "cache": "static"}])
def test_one_more_does_not_fit(options):
    load = make_workload(LLAMA, prompt=2048, output=256, **options)
    memory = 80 * 10**9
    batch = largest_batch(LLAMA, load, memory)
    assert costs(LLAMA, load._replace(batch=batch)).total_bytes <= memory
    assert costs(LLAMA, load._replace(batch=batch + 1)).total_bytes > memory
    tight = 24 * 10**9
    context = largest_context(LLAMA, load, tight)
    if context < LLAMA.max_positions:
        assert costs(LLAMA, load._replace(prompt=context - 256)).total_bytes <= tight
        assert costs(LLAMA, load._replace(prompt=context - 255)).total_bytes > tight


def test_what_never_fits():
    load = make_workload(LLAMA)
    assert largest_batch(LLAMA, load, 10**9) == 0
    assert largest_context(LLAMA, load, 10**9) == 0


def test_the_batch_of_the_ridge():
    load = make_workload(LLAMA, prompt=64, output=1)
    batch = compute_bound_batch(LLAMA, load, 312e12, 2039e9)
    for n, bound in ((batch - 1, "memory"), (batch, "compute")):
        step = costs(LLAMA, load._replace(batch=n)).first_step
        assert ("compute" if step.flops / 312e12 >= step.bytes / 2039e9 else "memory") == bound
    # At 8000 tokens the cache alone keeps intensity under the ridge, whatever the batch.
    assert compute_bound_batch(LLAMA, load._replace(prompt=8000), 312e12, 2039e9) is None


def test_where_the_cache_outgrows_the_weights():
    """16,060,522,496 B of weights over 131,072 B per token, one sequence and 32."""
    load = make_workload(LLAMA)
    assert cache_outgrows_weights(LLAMA, load) == 16_060_522_496 // 131_072 + 1 == 122_533
    assert cache_outgrows_weights(LLAMA, load._replace(batch=32)) == 3_830


def test_parameters_that_fit_16_gb():
    """Two, four and eight times as many at 16, 8 and 4 bits as at 32."""
    rooms = {r.dtype: r.parameters for r in parameters_that_fit(16e9)}
    assert (rooms["float32"], rooms["bfloat16"], rooms["int8"], rooms["int4"]) == (4e9, 8e9, 16e9, 32e9)
    reserved = {r.dtype: r.parameters for r in parameters_that_fit(16e9, reserved_bytes=2e9)}
    assert (reserved["float32"], reserved["float16"], reserved["fp8"], reserved["int4"]) == (3.5e9, 7e9, 14e9, 28e9)
