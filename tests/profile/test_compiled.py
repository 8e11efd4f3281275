"""Runs under torch.compile: refused where they can't be, and attributed to modules where they can."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from kernelroof.models.errors import DriverError, UsageError
from kernelroof.parsers.schema import UNATTRIBUTED
from kernelroof.profile.cli import build_parser, main
from kernelroof.profile.compile_check import check_compile, uses_cuda_graphs
from kernelroof.profile.compile_options import compile_mode
from kernelroof.profile.compiled_calls import extern_op, path_of, plain_path
from kernelroof.profile.compiled_record import COMPILED, compile_doubts, compiled_lines
from kernelroof.profile.driver_spec import DriverSpec

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "max_position_embeddings": 64,
    "torch_dtype": "float32",
}
SPEC = DriverSpec(CONFIG, prompt=5, output=4, cache="static", compile="default")


def replaced(**changes: Any) -> DriverSpec:
    return dataclasses.replace(SPEC, **changes)


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """A C++ compiler in the path; nothing here calls it."""
    monkeypatch.delenv("CXX", raising=False)
    (tmp_path / "g++").write_text("#!/bin/sh\n")
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"compile": "fast"}, "fast"),
        ({"compile": "reduce-overhead"}, "CUDA graphs"),
        ({"cache": "dynamic"}, "static cache"),
        ({"device": "cuda"}, "triton"),
    ],
)
def test_what_can_not_be_compiled_is_refused(changes, named, compiler, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DriverError, match=named) as caught:
        check_compile(replaced(**changes))
    assert caught.value.hint


def test_no_compiler_is_said_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(DriverError, match=r"C\+\+ compiler") as caught:
        check_compile(SPEC)
    assert "apt-get install g++" in str(caught.value.hint)
    monkeypatch.setenv("CXX", "icpx-99")
    with pytest.raises(DriverError, match="icpx-99"):
        check_compile(SPEC)


def test_what_can_be_compiled_passes(compiler):
    check_compile(SPEC)
    check_compile(replaced(compile=None, cache="dynamic"))
    assert not uses_cuda_graphs(replaced(compile="max-autotune"))
    assert uses_cuda_graphs(replaced(compile="max-autotune", device="cuda"))
    assert not uses_cuda_graphs(replaced(device="cuda"))


def options(*words: str) -> Any:
    return build_parser().parse_args(["profile", *words])


def test_options_and_the_cache_that_they_imply():
    assert compile_mode(options("tiny-llama")) is None
    assert compile_mode(options("tiny-llama", "--compile")) == "default"
    assert compile_mode(options("tiny-llama", "--compile", "max-autotune", "--cache", "static")) == "max-autotune"
    assert compile_mode(options("tiny-llama", "--cuda-graphs")) == "reduce-overhead"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--compile", "tiny-llama"], "before --compile"),
        (["tiny-llama", "--compile", "quick"], "no mode"),
        (["tiny-llama", "--compile", "--cache", "dynamic"], "static"),
        (["tiny-llama", "--compile", "default", "--cuda-graphs"], "exclude"),
        (["tiny-llama", "--compile", "--counters", "ncu"], "ncu"),
    ],
)
def test_options_that_contradict_each_other(words, named):
    with pytest.raises(UsageError, match=named):
        compile_mode(options(*words))


def test_cuda_graphs_without_a_gpu_fail_before_anything_starts(tmp_path, capsys):
    status = main(["profile", "tiny-llama", "--cuda-graphs", "--device", "cpu", "--out", str(tmp_path / "run")])
    assert status == 2
    assert "CUDA graphs" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_program_of_ones_own_compiles_itself(capsys):
    assert main(["profile", "--compile", "--", "python", "x.py"]) == 2
    assert "compile" in capsys.readouterr().err


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit):
        main(["profile", "--help"])
    said = capsys.readouterr().out
    assert "profile tiny-llama --compile" in said
    assert "--cuda-graphs" in said


@pytest.mark.parametrize(
    ("torchs", "ours"),
    [
        ("L['self'].model.layers.0.mlp", "model.layers.0.mlp"),
        ("L['args'][0].lm_head", "lm_head"),
        ("L['self'].model.layers.slice(None, 2, None)[1].self_attn", "model.layers.1.self_attn"),
        ("L['self']._modules['model']._modules['norm']", "model.norm"),
        ("L['self']", ""),
    ],
)
def test_paths_of_modules(torchs, ours):
    assert plain_path(torchs) == ours


def test_a_node_belongs_to_the_innermost_module_that_there_is():
    stack = {"a": ("L['self'].model", object), "b": ("L['self'].model.wrapped", object)}
    node = SimpleNamespace(meta={"nn_module_stack": stack})
    assert path_of(node, frozenset({"model"})) == "model"
    assert path_of(node, frozenset()) == "(root)"
    assert path_of(SimpleNamespace(meta={}), frozenset({"model"})) is None


def test_names_of_library_kernels():
    assert extern_op("extern_kernels.mm") == "aten::mm"
    assert extern_op("torch.ops.aten._scaled_dot.default") == "aten::_scaled_dot"
    assert extern_op("torch.ops.mine.op.default") == "mine::op"
    assert extern_op("triton_poi_fused_add_0") is None


RECORD = {
    "mode": "default", "seconds": 3.0, "late_compilations": 0, "graph_breaks": {}, "skipped_cuda_graphs": 0,
    "cuda_graphs": False, "graphs": [{"calls": [1, 2]}],
}  # fmt: skip


def test_doubts_of_a_compiled_run():
    assert compile_doubts(RECORD) == []
    doubts = compile_doubts(
        {**RECORD, "late_compilations": 2, "graph_breaks": {"a call\n to print": 3}, "skipped_cuda_graphs": 1,
         "cuda_graphs": True}
    )  # fmt: skip
    assert [line.split(":")[0].split(" ")[0] for line in doubts] == ["RECOMPILED", "3", "torch", "CUDA"]
    assert "a call to print" in doubts[1]


def test_the_story_says_coverage_and_what_is_missing(tmp_path):
    coverage = {"decode": {"module_ns": 50, "phase_ns": 30, "dispatch_ns": 20}}
    content = {**RECORD, "coverage": coverage, "unattributed": {"decode": ["2 kernels, 0.000 ms: why"]}}
    (tmp_path / COMPILED).write_text(json.dumps(content))
    said = "\n".join(compiled_lines(tmp_path))
    assert "compiled and warmed up in 3" in said
    assert "decode: 50.0 % of kernel time attributed to modules, 30.0 % to the phase only, 20.0 % is dispatch" in said
    assert "not attributed: 2 kernels" in said


needs_compiler = pytest.mark.skipif(
    os.environ.get("KERNELROOF_REQUIRE_COMPILER") != "1" and not any(shutil.which(name) for name in ("g++", "clang++")),
    reason="no C++ compiler for torch.compile",
)


@needs_compiler
def test_a_compiled_run_end_to_end(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.delenv("CXX", raising=False)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    run = tmp_path / "run"
    words = ["--prompt", "8", "--output", "3", "--repeats", "1", "--device", "cpu", "--top", "1", "--compile"]
    assert main(["profile", str(tmp_path / "config.json"), *words, "--out", str(run)]) == 0
    said = capsys.readouterr().out
    assert "torch.compile (default)" in said
    record = json.loads((run / COMPILED).read_text())
    assert (record["late_compilations"], record["graph_breaks"]) == (0, {})
    assert [g["phase"] for g in record["graphs"]] == ["prefill", "decode"]
    identity = json.loads((run / "run.json").read_text())["identity"]
    assert (identity["cache"], identity["driver"]["compile"], identity["driver"]["depth"]) == (
        "static",
        "default",
        "phase",
    )
    kernels = pd.read_csv(run / "kernels.csv")
    waterfall = pd.read_csv(run / "waterfall.csv")
    walls = json.loads((run / "wall.json").read_text())
    projections = [f"model.layers.0.{m}" for m in (
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
        "mlp.down_proj",
    )]  # fmt: skip
    for phase, steps in (("prefill", 1), ("decode", 3)):
        here = kernels[kernels["phase"] == phase]
        assert here["step"].nunique() == steps
        # Each product is where an eager run has it, with its FLOPs: 2 x in x out per token.
        sizes = [64 * 64, 64 * 32, 64 * 32, 64 * 64, *[64 * 96] * 3]
        for module, size in zip([*projections, "lm_head"], [*sizes, 64 * 97], strict=True):
            tokens = 8 if phase == "prefill" and module != "lm_head" else 1
            product = here[(here["module"] == module) & (here["kernel"] == "aten::mm")]
            assert product["flops"].tolist() == [2 * size * tokens] * steps
        assert not (here["module"] == UNATTRIBUTED).any()
        assert sum(record["coverage"][phase].values()) == (here["time_ns"] * here["count"]).sum()
        # The terms end at the bare wall time, exactly.
        total = waterfall[(waterfall["scope"] == "phase") & (waterfall["name"] == phase)]["total_ns"].item()
        assert total == walls[phase]["bare_ns"] == (here["time_ns"] * here["count"]).sum() + walls[phase]["gap_ns"]
        generated = here[here["kernel"].str.contains("cpp_fused")]
        assert len(generated)
        assert generated["flops"].isna().all()
