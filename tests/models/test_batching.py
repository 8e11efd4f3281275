"""Batching policies against a simulation slot by slot, and chunked prefill against single forwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.models.batching import continuous_batches, decode_seconds, static_batches
from kernelroof.models.chunked import chunked_prefill
from kernelroof.models.coefficients import coefficients
from kernelroof.models.forward import Part, forward_cost
from kernelroof.models.precision import precision
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=20)


def test_four_requests_use_51_25_percent():
    """200, 100, 30 and 80 tokens in four slots: 410 of 800."""
    schedule = static_batches([200, 100, 30, 80], 4)
    assert (schedule.useful, schedule.steps, schedule.utilisation) == (410, 200, 0.5125)


def slots(lengths, batch):
    """Continuous batching, one step after the other: the steps, and the requests in each."""
    waiting, running, steps = list(enumerate(lengths)), [], []
    while waiting or running:
        while waiting and len(running) < batch:
            i, n = waiting.pop(0)
            running.append([i, n, 0])
        steps.append(sorted((i, done) for i, _, done in running))
        for r in running:
            r[2] += 1
        running = [r for r in running if r[2] < r[1]]
    return steps


@given(LENGTHS, st.integers(1, 6))
def test_continuous_batching_step_by_step(lengths, batch):
    expected = slots(lengths, batch)
    schedule = continuous_batches(lengths, batch)
    steps = [
        [(i, done + k) for i, done in stretch.running] for stretch in schedule.stretches for k in range(stretch.steps)
    ]
    assert steps == expected
    assert schedule.steps == len(expected)
    assert schedule.utilisation == sum(lengths) / (batch * len(expected)) <= 1


@given(LENGTHS, st.integers(1, 6), st.integers(0, 50))
def test_seconds_are_summed_over_all_steps(lengths, batch, prompt):
    def step_s(contexts):
        return 2.0 + 0.5 * sum(contexts)

    expected = sum(step_s([prompt + done + 1 for _, done in step]) for step in slots(lengths, batch))
    schedule = continuous_batches(lengths, batch)
    assert decode_seconds(schedule, prompt, step_s) == pytest.approx(expected)


def test_chunked_prefill_shortens_the_stall_and_costs_more_in_all():
    spec = read_spec(load_config("llama-3-8b"))
    model = coefficients(spec, precision(spec.dtype))
    options = {"prompt": 8192, "running": 32, "context": 2048, "flop_s": 989e12, "byte_s": 3350e9}
    whole = chunked_prefill(model, chunk=8192, **options)
    chunks = chunked_prefill(model, chunk=512, **options)
    assert (whole.forwards, chunks.forwards) == (1, 16)
    assert chunks.longest_stall_s < whole.longest_stall_s / 5
    assert chunks.prefill_s > whole.prefill_s
    last = forward_cost(model, [Part(512, 7680), Part(1, 2047, 32)]).ideal_s(989e12, 3350e9)
    assert chunks.longest_stall_s == last
    assert whole.decode_step_s == forward_cost(model, [Part(1, 2047, 32)]).ideal_s(989e12, 3350e9)
