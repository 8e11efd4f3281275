"""A sweep's arrays hold exactly what the single estimates say."""

import numpy as np
import pytest
from kernelroof.models.dtypes import BITS
from kernelroof.models.estimate import costs, ideal_times
from kernelroof.models.presets import load_config, preset_names
from kernelroof.models.spec import read_spec
from kernelroof.models.sweep import Points, estimate_points
from kernelroof.models.workload import make_workload


@pytest.mark.parametrize("cache", ["dynamic", "static", "ideal"])
def test_arrays_equal_single_estimates(cache):
    rng = np.random.default_rng(7)
    specs = [read_spec(load_config(n), n) for n in preset_names()]
    n = 200
    run = rng.choice(["float32", "bfloat16"], n)
    weights = rng.choice(["bfloat16", "fp8", "int4"], n)
    kv = rng.choice(["bfloat16", "int8"], n)
    points = Points(
        model=rng.integers(0, len(specs), n),
        batch=rng.integers(1, 300, n),
        prompt=rng.integers(1, 3000, n),
        output=rng.integers(1, 500, n),
        run_bits=np.array([BITS[d] for d in run]),
        weight_bits=np.array([BITS[d] for d in weights]),
        kv_bits=np.array([BITS[d] for d in kv]),
        flop_s=rng.uniform(1e12, 1e15, n),
        byte_s=rng.uniform(1e11, 8e12, n),
    )
    cost, times = estimate_points(specs, points, cache=cache)
    for i in range(n):
        spec = specs[points.model[i]]
        workload = make_workload(
            spec,
            batch=int(points.batch[i]),
            prompt=int(points.prompt[i]),
            output=int(points.output[i]),
            dtype=str(run[i]),
            weights_dtype=str(weights[i]),
            kv_dtype=str(kv[i]),
            cache=cache,
        )
        one = costs(spec, workload)
        assert cost.weight_bytes[i] == one.weight_bytes
        assert cost.kv_bytes[i] == one.kv_bytes
        assert cost.total_bytes[i] == pytest.approx(one.total_bytes)
        for phase in ("prefill", "first_step", "decode"):
            for field in ("flops", "bytes", "kv_write_bytes", "activation_bytes", "cache_copy_bytes"):
                assert np.broadcast_to(getattr(getattr(cost, phase), field), n)[i] == getattr(
                    getattr(one, phase), field
                )
        single = ideal_times(one, workload.output, points.flop_s[i], points.byte_s[i])
        assert times.decode_s[i] == pytest.approx(single.decode_s, rel=1e-12)
        assert times.prefill_s[i] == pytest.approx(single.prefill_s, rel=1e-12)
