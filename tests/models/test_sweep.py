"""A sweep's arrays hold exactly what the single estimates say."""

import numpy as np
import pytest
from kernelroof.models.coefficients import coefficients
from kernelroof.models.estimate import costs, flags_of, ideal_times
from kernelroof.models.presets import load_config, preset_names
from kernelroof.models.spec import read_spec
from kernelroof.models.sweep import Points, estimate_points
from kernelroof.models.workload import make_workload, precision_of


@pytest.mark.parametrize("cache", ["dynamic", "static", "ideal"])
def test_arrays_equal_single_estimates(cache):
    rng = np.random.default_rng(7)
    specs = [read_spec(load_config(n), n) for n in preset_names()]
    formats = [("float32", "bfloat16", "int8"), ("bfloat16", "int4", "bfloat16"), ("bfloat16", "fp8", "bfloat16")]
    rows = [(spec, *f) for spec in specs for f in formats]
    loads = [make_workload(s, dtype=run, weights_dtype=w, kv_dtype=kv, cache=cache) for s, run, w, kv in rows]
    models = [coefficients(row[0], precision_of(row[0], load)) for row, load in zip(rows, loads, strict=True)]
    n = 200
    points = Points(
        model=rng.integers(0, len(models), n),
        batch=rng.integers(1, 300, n),
        prompt=rng.integers(1, 3000, n),
        output=rng.integers(1, 500, n),
        flop_s=rng.uniform(1e12, 1e15, n),
        byte_s=rng.uniform(1e11, 8e12, n),
    )
    cost, times = estimate_points(models, points, flags_of(loads[0]))
    for i in range(n):
        row = points.model[i]
        workload = loads[row]._replace(
            batch=int(points.batch[i]), prompt=int(points.prompt[i]), output=int(points.output[i])
        )
        one = costs(rows[row][0], workload)
        assert cost.weight_bytes[i] == one.weight_bytes
        assert cost.kv_bytes[i] == one.kv_bytes
        assert cost.total_bytes[i] == pytest.approx(one.total_bytes)
        for phase in ("prefill", "first_step", "decode"):
            for field, value in getattr(one, phase)._asdict().items():
                assert getattr(getattr(cost, phase), field)[i] == value
        single = ideal_times(one, points.flop_s[i], points.byte_s[i])
        assert times.decode_s[i] == pytest.approx(single.decode_s, rel=1e-12)
        assert times.prefill_s[i] == pytest.approx(single.prefill_s, rel=1e-12)
