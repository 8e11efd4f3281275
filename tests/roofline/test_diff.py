"""Comparing two runs: every nanosecond in one line, changes found beyond noise, set-ups told apart."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.roofline.comparability import differences, not_comparable, same_setup
from kernelroof.roofline.diff import GATHERED, WHOLE, Side, aligned, ancestors, line_of, with_idle
from kernelroof.roofline.diff_noise import Wall, judged, line_samples, own_noise, phase_change, typical
from kernelroof.roofline.spread import role_steps

LAYERS = "model.layers"
MODULES = ("self_attn", "self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")
BASE_NS = {"self_attn": 900, "self_attn.q_proj": 1200, "self_attn.k_proj": 300, "self_attn.o_proj": 1200,
           "mlp.up_proj": 4000, "mlp.down_proj": 3000}  # fmt: skip


def run(factor=lambda module: 1.0, modules=MODULES, layers=3, steps=8, noise=0.0, seed=0, kernel="aten::mm"):
    """kernels.csv of a made-up run: one launch per module, layer and step."""
    random = np.random.default_rng(seed)
    rows = []
    for step in range(steps):
        for layer in range(layers):
            for module in modules:
                time = BASE_NS.get(module, 1000) * 1000 * factor(module) * np.exp(noise * random.standard_normal())
                rows.append({
                    "phase": "decode", "step": step, "module": f"{LAYERS}.{layer}.{module}", "kernel": kernel,
                    "op": kernel, "kind": "mlp" if "mlp" in module else "attention", "count": 1, "time_ns": round(time),
                    "idle_before_ns": 0,
                    "flops": 1000, "dram_read_bytes": 500, "dram_write_bytes": 10, "ideal_ns": 100.0,
                    "recoverable_ns": 1.0, "bound": "memory", "reason": pd.NA,
                })  # fmt: skip
    return pd.DataFrame(rows).astype({"step": "Int64", "time_ns": "Int64", "op": "string"})


def side(kernels, steps=8):
    return Side(kernels, {"decode": steps})


def verdicts(a, b, same=True, recordings=(3, 3)):
    """The judged lines of two lists of recordings (the first of each is the run's own)."""
    lines = aligned(side(a[0]), side(b[0]))
    units = [{(r.rsplit(".", 0)[0], k) for r, k in _units(run)} for run in (a[0], b[0])]
    where = {("decode", *unit): line for unit, line in line_of(*units).items()}
    samples = [
        line_samples(pd.concat([role_steps(k, i) for i, k in enumerate(run)], ignore_index=True), where)
        for run in (a, b)
    ]
    noise, medians = [own_noise(s) for s in samples], [typical(s) for s in samples]
    walls = {"decode": tuple(Wall(*[run[0]["time_ns"].sum() / 8] * 3) for run in (a, b))}
    return judged(lines, walls, noise, medians, same_setup=same)


def _units(kernels):
    from kernelroof.roofline.summary import role_of

    return {(role_of(m), k) for m, k in zip(kernels["module"], kernels["kind"], strict=True)}


def test_ancestors_are_nearest_first():
    assert ancestors("model.layers.*.mlp") == ["model.layers.*.mlp", "model.layers.*", "model.layers", "model", WHOLE]
    assert ancestors("(root)") == [WHOLE]


def test_a_run_against_itself_has_no_change():
    kernels = [run(noise=0.05, seed=n) for n in range(3)]
    table, drift = verdicts(kernels, kernels)
    assert not table["changed"].any()
    assert set(table["says"]) == {"within noise"}
    assert (table["delta_ns"] == 0).all()
    assert drift["decode"] == pytest.approx(0)


names = st.lists(st.sampled_from((*MODULES, "self_attn.qkv_proj", "mlp.gate_up_proj", "norm")), min_size=1, unique=True)


@settings(max_examples=25)
@given(names, names, st.integers(1, 4))
def test_every_nanosecond_is_in_one_line(left, right, layers):
    a, b = run(modules=left, layers=layers), run(modules=right, layers=layers)
    table = aligned(side(a), side(b))
    assert table["a_time_ns"].sum() == pytest.approx(a["time_ns"].sum() / 8)
    assert table["b_time_ns"].sum() == pytest.approx(b["time_ns"].sum() / 8)
    assert not table.duplicated(["phase", "module", "kind"]).any()
    # Swapping the runs swaps the sides and nothing else.
    keys = ["phase", "module", "kind"]
    back = aligned(side(b), side(a)).sort_values(keys).reset_index(drop=True)
    there = table.sort_values(keys).reset_index(drop=True)
    pd.testing.assert_series_equal(there["a_time_ns"], back["b_time_ns"], check_names=False)


def test_fused_products_meet_at_the_nearest_common_module():
    b = run(modules=("self_attn", "self_attn.qkv_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"))
    table = aligned(side(run()), side(b)).set_index(["module", "kind"])
    gathered = table.loc[(f"{LAYERS}.*.self_attn", GATHERED)]
    assert gathered["a_modules"] == f"{LAYERS}.*.self_attn.q_proj | {LAYERS}.*.self_attn.k_proj"
    assert gathered["b_modules"] == f"{LAYERS}.*.self_attn.qkv_proj"
    assert gathered["a_time_ns"] == 3 * 1_500_000
    assert (f"{LAYERS}.*.self_attn.o_proj", "attention") in table.index
    assert len(table) == 5


def test_a_run_without_module_ranges_is_one_line_against_the_model():
    b = run().assign(module="(unattributed)", kind="other")
    table = aligned(side(run()), side(b))
    assert table["module"].tolist() == [WHOLE]
    assert table["a_time_ns"].iloc[0] == table["b_time_ns"].iloc[0]


def test_a_module_that_is_gone_is_only_in_a():
    table = aligned(side(run()), side(run(modules=MODULES[:-1])))
    gone = table[table["module"] == f"{LAYERS}.*.mlp.down_proj"].iloc[0]
    assert pd.isna(gone["b_time_ns"])
    assert gone["a_time_ns"] == 9_000_000


def test_figures_of_a_part_are_not_shown_for_the_whole():
    """B works twice, and only its first time is known to the trace: its share of the roof would be that of the half."""
    a, b = run(), pd.concat([run(), run().assign(flops=pd.NA)], ignore_index=True)
    table = aligned(side(a), side(b))
    assert table["a_pct_of_roof"].notna().all()
    assert (table["b_time_ns"] == 2 * table["a_time_ns"]).all()
    unknown = ["b_pct_of_roof", "b_flops", "b_bytes", "b_intensity", "b_ideal_ns", "b_recoverable_ns"]
    assert table[unknown].isna().all(axis=None)


def test_renamed_kernels_line_up():
    table, _ = verdicts([run()], [run(kernel="triton_mm")])
    assert not table["changed"].any()
    assert set(table["b_names"]) == {"triton_mm"}


@settings(max_examples=10)
@given(st.sampled_from(MODULES), st.floats(1.3, 3.0), st.booleans(), st.integers(0, 10**6))
def test_only_the_changed_role_is_named(module, factor, slower, seed):
    """With 3 % of noise and a machine that drifted by 7 %."""
    factor = factor if slower else 1 / factor
    a = [run(noise=0.03, seed=seed + n) for n in range(3)]
    b = [run(lambda m: 1.07 * (factor if m == module else 1), noise=0.03, seed=seed + 10 + n) for n in range(3)]
    table, drift = verdicts(a, b)
    changed = table[table["changed"]]
    role = f"{LAYERS}.*.{module}"
    truth = 1.07 * (factor - 1) * BASE_NS[module] * 3000
    if abs(truth) > 0.1 * a[0]["time_ns"].sum() / 8:  # far beyond any floor: it must be found
        assert changed["module"].tolist() == [role]
    assert set(changed["module"]) <= {role}
    if len(changed):
        beyond = float(changed["b_time_ns"].iloc[0] - changed["expected_ns"].iloc[0])
        assert beyond == pytest.approx(truth, rel=0.25)
        assert changed["says"].iloc[0] == ("slower" if slower else "faster")
    assert drift["decode"] == pytest.approx(7, abs=3.5)


def _heavy_mlp(factor):
    return [run(lambda m: (12 if "mlp" in m else 1) * (factor if "mlp" in m else 1), noise=0.02, seed=factor)] * 3


def test_a_module_that_most_time_goes_to_does_not_pass_for_the_machine():
    """The MLP is 97 % of the time and runs twice: nothing else became faster."""
    a, b = _heavy_mlp(1), _heavy_mlp(2)
    twice = [pd.concat([k, k[k["module"].str.contains("mlp")].assign(time_ns=0)], ignore_index=True) for k in b]
    table, drift = verdicts(a, twice)
    assert set(table[table["changed"]]["module"]) == {f"{LAYERS}.*.mlp.up_proj", f"{LAYERS}.*.mlp.down_proj"}
    assert set(table[table["changed"]]["says"]) == {"slower"}
    assert drift["decode"] == pytest.approx(0, abs=3)


def test_a_slower_kernel_of_the_same_work_does_not_pass_for_the_machine():
    """Most of the time is in lines that grew by half while launches, work and names stayed."""
    a = [run(noise=0.01, seed=n) for n in range(3)]
    b = [run(lambda m: 1.5 if "mlp" in m else 1.0, noise=0.01, seed=5 + n) for n in range(3)]
    table, drift = verdicts(a, b)
    assert set(table[table["changed"]]["module"]) == {f"{LAYERS}.*.mlp.up_proj", f"{LAYERS}.*.mlp.down_proj"}
    assert drift["decode"] == pytest.approx(0, abs=2)


def test_lines_are_not_known_better_than_whole_repeats():
    lines = aligned(side(run()), side(run(lambda m: 1.2 if m == "mlp.up_proj" else 1.0)))
    steady, shaky = Wall(30e6, 29.9e6, 30.1e6), Wall(30e6, 20e6, 40e6)
    assert judged(lines, {"decode": (steady, steady)}, ({}, {}), ({}, {}), same_setup=True)[0]["changed"].sum() == 1
    assert not judged(lines, {"decode": (steady, shaky)}, ({}, {}), ({}, {}), same_setup=True)[0]["changed"].any()


def test_noise_is_hardly_ever_called_a_change():
    """20 pairs of one set-up: recordings differ by 4 % each, steps by 5 %, the machine by 10 % between runs."""
    random = np.random.default_rng(1)
    false = 0
    for _ in range(20):
        drifts = {(r, m): np.exp(0.04 * random.standard_normal()) for r in range(6) for m in MODULES}
        scale = np.exp(0.1 * random.standard_normal())
        runs = [
            [
                run(lambda m, r=r, s=s, drifts=drifts: s * drifts[r, m], noise=0.05, seed=int(random.integers(1 << 30)))
                for r in group
            ]
            for group, s in (((0, 1, 2), 1.0), ((3, 4, 5), scale))
        ]
        table, _ = verdicts(*runs)
        false += bool(table["changed"].any())
    assert false <= 1


def test_what_felt_less_of_a_busy_machine_is_no_change():
    """Nearly all work is 30 % slower; one small module felt a third of that, another none of it."""
    felt = {"self_attn": 1.0, "self_attn.k_proj": 1.1}
    table, drift = verdicts([run(noise=0.01)], [run(lambda m: felt.get(m, 1.3), noise=0.01, seed=9)])
    assert drift["decode"] == pytest.approx(30, abs=3)
    assert not table["changed"].any()


def test_one_disturbed_step_is_no_change():
    """A step in which one small module took twenty times its time: its mean doubles, its median does not."""
    a, b = run(noise=0.01, seed=1), run(noise=0.01, seed=2)
    hit = (b["step"] == 3) & b["module"].str.contains("k_proj")
    b.loc[hit, "time_ns"] *= 20
    table, _ = verdicts([a], [b])
    assert table.set_index("module").loc[f"{LAYERS}.*.self_attn.k_proj", "delta_ns"] > 2_000_000
    assert not table["changed"].any()
    b.loc[b["module"].str.contains("k_proj"), "time_ns"] *= 3
    table, _ = verdicts([a], [b])
    assert table[table["changed"]]["module"].tolist() == [f"{LAYERS}.*.self_attn.k_proj"]


def test_idle_time_is_compared_in_the_module_that_waited():
    a, b = [run(noise=0.01, seed=n).assign(idle_before_ns=100_000) for n in (1, 2)]
    b.loc[b["module"].str.contains("q_proj"), "idle_before_ns"] = 900_000
    table, _ = verdicts([with_idle(a)], [with_idle(b)])
    changed = table[table["changed"]]
    assert changed[["module", "kind"]].to_numpy().tolist() == [[f"{LAYERS}.*.self_attn.q_proj", "idle"]]
    assert changed["delta_ns"].tolist() == [3 * 800_000]
    assert changed["b_names"].tolist() == ["(no kernel running)"]
    assert pd.isna(changed["b_pct_of_roof"]).all()
    each = [(k["time_ns"].sum() + k["idle_before_ns"].sum()) / 8 for k in (a, b)]
    assert [table["a_time_ns"].sum(), table["b_time_ns"].sum()] == each


def test_drift_is_not_taken_out_of_runs_of_other_setups():
    table, drift = verdicts([run()], [run(lambda m: 0.5)], same=False)
    assert table["changed"].all()
    assert drift["decode"] == 0


def test_a_phase_changes_only_beyond_its_repeats():
    steady, shaky = Wall(100.0, 99.0, 101.0), Wall(100.0, 90.0, 120.0)
    slow = Wall(110.0, 109.0, 111.0)
    assert phase_change((steady, slow), 0, 0, same_setup=True).changed
    assert phase_change((steady, slow), 0, 0, same_setup=True).change_pct == pytest.approx(10)
    assert not phase_change((shaky, slow), 0, 0, same_setup=True).changed
    assert not phase_change((steady, slow), None, -12.0, same_setup=True).changed, "the machine's roofs fell as much"
    assert phase_change((steady, slow), 0, -12.0, same_setup=True).changed, "lines of the same work did not"
    assert phase_change((steady, slow), None, -12.0, same_setup=False).changed
    assert not phase_change((steady, slow), 9.0, 0, same_setup=True).changed, "all lines were slower alike"


IDENTITY = {"model": "m", "batch": 1, "prompt": 8, "output": 4, "dtype": "float32", "driver": {"config": {"a": 1}},
            "machine": {"torch": "2.13"}}  # fmt: skip


def record(**changes):
    return {"identity": {**IDENTITY, **changes}, "environment": {}, "sources": {"timeline": "torch"}}


def test_setups():
    assert same_setup(differences(record(), record()))
    other = differences(record(), record(dtype="bfloat16"))
    assert [(d.what, d.a, d.b, d.effect) for d in other] == [("dtype", "float32", "bfloat16", "")]
    assert not_comparable(other) == []
    longer = differences(record(), record(prompt=16))
    assert not_comparable(longer) == ["prompt 8 against 16: prefill does other work, and decode reads another cache"]
    config = differences(record(), record(driver={"config": {"a": 2}}))
    assert [d.what for d in config] == ["config"]
