"""Who used the CPU while something was measured, and what is said of it."""

import json

import pytest
from kernelroof.profile import cpu_use as module
from kernelroof.profile import repeats
from kernelroof.profile.cpu_use import cpu_use
from kernelroof.roofline.steady import busy_doubts

PROC_STAT = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 {0} 0 0\ncpu1 {1} 0 0\ncpu7 9 9 9 9 9 9 9 9 0 0\nintr 1 2 3\n"


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """Sets what /proc/stat (per CPU: user nice system idle iowait irq softirq steal, in ticks) and the clocks say."""
    file = tmp_path / "stat"
    monkeypatch.setattr(module, "_STAT", file)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(module.os, "sysconf", lambda _: 100)

    def set_to(first, second, own_s, wall_s):
        file.write_text(PROC_STAT.format(first, second))
        monkeypatch.setattr(module.os, "times", lambda: (own_s, 0.0, 0.0, 0.0, 0.0))
        monkeypatch.setattr(module.time, "monotonic", lambda: wall_s)

    return set_to


def test_the_shares_by_hand(clock):
    """2 CPUs for 10 s: 12 s user and 1 s of interrupts, of which 8 s its own; 4 s idle; 3 s stolen."""
    clock("100 0 0 50 0 0 0 0", "0 0 0 0 0 0 0 0", own_s=5.0, wall_s=0.0)
    with cpu_use() as use:
        clock("800 0 0 350 0 0 0 0", "500 0 0 100 0 60 40 300", own_s=13.0, wall_s=10.0)
    assert use == {"own_pct": 40.0, "others_pct": 25.0, "stolen_pct": 15.0, "idle_pct": 20.0}


def test_where_nothing_tells_it_nothing_is_said(clock, tmp_path, monkeypatch):
    clock("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0", 0.0, 0.0)
    with cpu_use() as too_short:
        clock("5 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0", 0.0, 0.05)
    monkeypatch.setattr(module, "_STAT", tmp_path / "none")
    with cpu_use() as unknown:
        pass
    assert (too_short, unknown) == ({}, {})


def test_this_machine_adds_up():
    with cpu_use() as use:
        began = module.time.process_time()
        while module.time.process_time() - began < 0.3:
            pass
    if use:  # Linux
        assert sum(use.values()) == pytest.approx(100, abs=1)
        assert use["own_pct"] > 0


@pytest.mark.parametrize(
    ("others", "idle", "stolen", "said"),
    [
        (45.0, 2.0, 0.0, ["other programs took 45 % of the CPU (bare passes)"]),
        (45.0, 40.0, 0.0, []),
        (5.0, 0.0, 1.0, []),
        (0.0, 50.0, 8.0, ["the hypervisor took 8 % of the CPU (bare passes)"]),
    ],
)
def test_what_is_said_of_it(others, idle, stolen, said):
    use = {"own_pct": 100 - others - idle - stolen, "others_pct": others, "idle_pct": idle, "stolen_pct": stolen}
    found = busy_doubts({"bare passes": [use], "roofs": []})
    assert [w for line in found for w in said if w in line] == said
    assert len(found) == len(said)


def test_one_quiet_round_of_roofs_is_enough():
    quiet, busy = ({"others_pct": pct, "idle_pct": 0.0, "stolen_pct": 0.0} for pct in (1.0, 50.0))
    assert busy_doubts({"roofs": [busy, quiet]}) == []
    assert len(busy_doubts({"roofs": [busy, busy]})) == 1


@pytest.mark.parametrize(("took", "main"), [((90, 100), "b"), ((120, 130), "a"), ((130, 80), "c")])
def test_the_shortest_recording_comes_first(took, main, tmp_path, monkeypatch):
    from kernelroof.profile import torch_backend

    def times(ns):
        return {"prefill_ns": [ns], "decode_step_ns": [[1, 2]]}

    left = dict(zip(("repeat_1.json.gz", "repeat_2.json.gz"), zip("bc", took, strict=True), strict=True))

    def record(session, out, depth, *, warm):
        out.write_text(json.dumps(left[out.name][0]))
        return times(left[out.name][1])

    class Run:
        class folder:
            path = tmp_path
            file = staticmethod(tmp_path.joinpath)

        class job:
            class driver:
                depth = "module"

        session = None
        bare = times(100)

    monkeypatch.setattr(torch_backend, "record", record)
    (tmp_path / "trace.json.gz").write_text(json.dumps("a"))
    assert repeats.record_again(Run, times(100)) == ["repeat_1.json.gz", "repeat_2.json.gz"]
    found = {p.name: json.loads(p.read_text()) for p in tmp_path.iterdir()}
    assert found["trace.json.gz"] == main
    assert sorted(found.values()) == ["a", "b", "c"]
    assert len(found) == 3
