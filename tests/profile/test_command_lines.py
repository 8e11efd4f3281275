"""Every command line of ncu that the pipeline builds is accepted by the real tools, which need no GPU for that."""

import re

import pytest
from kernelroof.parsers.ncu_errors import DriverError, NoKernelsError, OptionError
from kernelroof.profile import ncu, nsight_backend
from kernelroof.profile.backends import Gpu
from kernelroof.profile.count_options import CountOptions
from kernelroof.profile.ncu_chips import CHIPS
from kernelroof.profile.nsight_backend import Counter, purposes
from kernelroof.profile.representatives import COLLECTIVES
from kernelroof.profile.target_run import counting_of
from kernelroof.profile.window import Window

ACCEPTED = (NoKernelsError, DriverError)
"""How ncu ends without a GPU, once its command line was accepted: with a driver library, and without."""
A100 = Gpu("NVIDIA A100-SXM4-40GB", "8.0")
GPUS = {"gv100": "7.0", "tu102": "7.5", "ga100": "8.0", "ga102": "8.6", "ad102": "8.9", "gh100": "9.0"}
OPTIONS = {
    "representatives": CountOptions(),
    "top": CountOptions(top=3),
    "every kernel": CountOptions(every_kernel=True),
    "full set": CountOptions(section_set="full"),
    "running clocks": CountOptions(clock_control="none"),
}
NAMES = ["gemm", "flash_fwd_kernel", "operator()", "void (*)[2]", "copy_if<>", "a|b", "käse"]


def refuses_nothing(tool, folder, counting):
    with pytest.raises(ACCEPTED):
        ncu.count(tool, ["/bin/true"], folder, counting, timeout=120)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_counting_the_driver(ncu_tool, tmp_path, monkeypatch, options):
    monkeypatch.setenv("KERNELROOF_NCU", str(ncu_tool.path))
    monkeypatch.setattr(nsight_backend, "driver_command", lambda *words: ["/bin/true"])
    counter = Counter(tmp_path, tmp_path / "spec.json", A100, options)
    windows = [Window("decode", 0, "model.layers.0.mlp")]
    assert [p.name for p in counter.purposes] == (["set"] if options.section_set else ["traffic", "work"])
    for purpose in counter.purposes:
        counter.purposes = [purpose]
        with pytest.raises(ACCEPTED):
            counter.count(windows)


@pytest.mark.parametrize(("chip", "cc"), GPUS.items())
def test_counting_on_each_chip(ncu_tool, tmp_path, chip, cc):
    assert set(GPUS) == set(CHIPS)
    listed = ncu.query_metrics(ncu_tool, chip)
    for purpose in purposes(ncu_tool, Gpu("", cc), CountOptions()):
        asked = {m.partition(".")[0] for m in purpose.metrics if not m.startswith("launch__")}
        assert asked <= listed
        refuses_nothing(ncu_tool, tmp_path, counting_of(purpose, CountOptions(), ["gemm"], []))


@pytest.mark.parametrize("phases", [[], ["prefill", "decode"]])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_counting_another_program(ncu_tool, tmp_path, options, phases):
    purpose = purposes(ncu_tool, A100, options)[0]
    refuses_nothing(ncu_tool, tmp_path, counting_of(purpose, options, NAMES, phases))


def test_a_broken_expression_is_refused(ncu_tool, tmp_path):
    """So that the tests above would notice one."""
    broken = ncu.Counting(metrics=("gpu__time_duration.sum",), kernel_names="(gemm")
    with pytest.raises(OptionError, match="Invalid regex"):
        ncu.count(ncu_tool, ["/bin/true"], tmp_path, broken, timeout=120)


@pytest.mark.parametrize("every", [False, True])
def test_collectives_are_never_among_the_launches_to_count(fake, every):
    options = CountOptions(every_kernel=every)
    purpose = nsight_backend.Purpose("traffic", ("gpu__time_duration.sum",), "", "none", {})
    wanted = re.compile(counting_of(purpose, options, ["gemm", "operator()"], []).kernel_names)
    talking = ("ncclDevKernel_AllReduce(int)", "void tllm::twoShotAllReduceKernel<gemm>(x)", "allGatherKernel(gemm)")
    assert not any(wanted.search(name) for name in talking)
    assert wanted.search("void gemm<float, 4>(int, float const*)")
    assert wanted.search("Fun::operator()(int)")
    assert bool(wanted.search("void gemmish<int>(int)")) == every
    assert re.search(COLLECTIVES, "NVSHMEM_put")
