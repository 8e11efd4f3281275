"""Kernel names: one key for one kernel in every tool, and short names for people."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.parsers.kernel_names import cut, function_name, normalise, shorten

SAME = [
    ("void gemm<float, 4>(int, float const*)", "void gemm<float, (int)4>(int, const float *)"),
    ("enable_if<!T7, void>::type kernel<int, __half, 0, 7, 0>(T13)",
     "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, __half, (bool)0, (int)7, (bool)0>(T13)"),
    ("void Kernel2<cutlass_80_gemm_tn_align8>(Params)", "void cutlass::Kernel2<cutlass_80_gemm_tn_align8>(T1::Params)"),
    ("void f<array<char *, 3>>(int)",
     "void at::native::(anonymous namespace)::f<std::array<char *, (unsigned long)3>>(int)"),
    ("void f<-2>(int)", "void at::native::<unnamed>::f<(int)-2>(int)"),
    ("void k<1, 0>()", "void k<true, false>()"),
    ("void k<g()::[lambda(float) (instance 1)]>(int)", "void k<at::g()::{lambda(float)#1}>(int)"),
    ("void k<A<B<int>>>(int)", "void k<A<B<int> > >(int)"),
    ("void k<3>(T1*)", "void k<3ul>(T1 *)"),
]  # fmt: skip
APART = [
    ("void k<4>(int)", "void k<8>(int)"),
    ("void k<float>(int)", "void k<double>(int)"),
    ("k(int)", "k(int, int)"),
    ("k", "k2"),
    ("void k<(int)1>(int)", "void k<(int)-1>(int)"),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_same_kernel(left, right):
    assert normalise(left) == normalise(right)


@pytest.mark.parametrize(("left", "right"), APART)
def test_other_kernel(left, right):
    assert normalise(left) != normalise(right)


@given(st.text())
def test_never_fails(text):
    assert normalise(normalise(text)) is not None
    assert len(shorten(text, 20)) <= max(20, 1)
    function_name(text)


@pytest.mark.parametrize(
    ("name", "base", "short"),
    [
        ("void gemm<float, 4>(int, float const*)", "gemm", "gemm"),
        ("void at::native::<unnamed>::softmax_warp_forward<float, float>(T2 *)", *["softmax_warp_forward"] * 2),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char *>>(int)",
         "vectorized_elementwise_kernel", "vectorized_elementwise_kernel<FillFunctor>"),
        ("void cutlass::Kernel2<cutlass_80_gemm_tn>(T1::Params)", "Kernel2", "cutlass_80_gemm_tn"),
        ("std::enable_if<!T7, void>::type internal::gemvx::kernel<int, cublasGemvParamsEx<int>>(T13)", "kernel",
         "kernel<cublasGemvParamsEx>"),
        ("ampere_sgemm_128x32_tn", *["ampere_sgemm_128x32_tn"] * 2),
        ("Kernel2", "Kernel2", "Kernel2"),
        ("triton_poi_fused_add_0", *["triton_poi_fused_add_0"] * 2),
        ("void unnamed>::gemm_tiled_kernel<32>(const float *)", *["gemm_tiled_kernel"] * 2),
        ("", "", ""),
    ],
)  # fmt: skip
def test_short_names(name, base, short):
    assert (function_name(name), shorten(name)) == (base, short)


def test_long_names_keep_their_ends():
    name = "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align8"
    assert shorten(name, 40) == "cutlass_80_wmma_tensorop_b…_128x1_tn_align8"[:26] + "…" + name[-13:]


def test_captured_names_join(request):
    """The kernels that one model's ncu and nsys captures share have the same key."""
    import os
    from pathlib import Path

    shared = Path(os.environ.get("KERNELROOF_SHARED") or Path(__file__).parents[3] / "shared") / "captures"
    if not shared.is_dir():
        pytest.skip("no captures here")
    timeline = set()
    for path in (shared / "nsys_csv").glob("rtx5090_dsocr_*.csv"):
        with path.open() as file:
            timeline |= {normalise(row["Name"]) for row in csv.DictReader(file)}
    for number in ("0001", "0003", "0005"):
        with (shared / f"ncu_details/rtx5090_dsocr_kernel_{number}.details.csv").open() as file:
            assert normalise(next(csv.DictReader(file))["Kernel Name"]) in timeline


@pytest.mark.parametrize(
    ("words", "width", "got"),
    [
        ("short", 10, "short"),
        ("a_rather_long_kernel_name", 12, "a_rathe…name"),
        ("left_hand_side…right [1,2,3]", 20, "left_hand…ht [1,2,3]"),
        ("left_hand_side…end", 12, "left_han…end"),
    ],
)
def test_a_cut_name_has_one_gap_and_keeps_its_end(words, width, got):
    assert cut(words, width) == got
    assert len(got) <= width
