"""One mixed forward against the estimate's own phases and against brute force."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.coefficients import coefficients
from kernelroof.models.estimate import costs
from kernelroof.models.forward import Part, forward_cost
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload, precision_of


def model_of(**fields):
    spec = read_spec({**load_config("qwen2.5-0.5b"), **fields})
    workload = make_workload(spec, batch=3, prompt=100, output=1, mask="causal")
    return coefficients(spec, precision_of(spec, workload)), costs(spec, workload)


WINDOW = {"model_type": "mistral", "sliding_window": 60, "use_sliding_window": True}


@pytest.mark.parametrize("fields", [{}, WINDOW])
def test_a_whole_prefill_and_a_decode_step_are_the_estimates(fields):
    model, cost = model_of(**fields)
    prefill = forward_cost(model, [Part(100, 0, 3)])
    assert prefill.flops == cost.prefill.flops
    step = forward_cost(model, [Part(1, 100, 3)])
    assert (step.flops, step.bytes, step.tokens) == (cost.first_step.flops, cost.first_step.bytes, 3)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 80), st.integers(0, 90), st.integers(1, 70))
def test_pairs_under_a_window_by_counting(new, past, window):
    model, _ = model_of(**{**WINDOW, "sliding_window": window})
    seen = sum(min(past + i, window) for i in range(1, new + 1))
    group = model.windows[0]
    assert forward_cost(model, [Part(new, past)], 0).flops == new * model.token_flops + group.pair_flops * seen


@pytest.mark.parametrize("fields", [{}, WINDOW])
def test_chunks_do_the_same_attention_as_the_whole(fields):
    model, _ = model_of(**fields)
    whole = forward_cost(model, [Part(100, 0)], 0)
    parts = [forward_cost(model, [Part(n, past)], 0) for past, n in ((0, 30), (30, 30), (60, 40))]
    assert sum(p.flops for p in parts) == whole.flops
    assert sum(p.bytes for p in parts) > 3 * model.always_bytes
