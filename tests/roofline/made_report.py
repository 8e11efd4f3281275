"""A made-up data object of report.html: an 8-billion-parameter model on a large GPU, every part of the page filled.

The figures are drawn from a seeded generator and placed on the roof by the plain formula, so that they hang together
(time at the roof, share, sums); nothing here comes from the code that the page's data comes from.
"""

import random

from kernelroof.roofline.columns import coded
from kernelroof.roofline.palette import page_colours

FLOP_S, BYTE_S, CACHE_S = 989e12, 4.8e12, 11e12
TERMS = [
    ["ideal_ns", "the model's ideal"],
    ["one_after_another_ns", "ops one after another"],
    ["left_out_ns", "ops besides products and attention"],
    ["roofs_ns", "measured roofs, not the datasheet's"],
    ["traffic_ns", "bytes and FLOPs as they ran"],
    ["kernels_ns", "kernels slower than their roofs"],
    ["unmatched_ns", "kernels of no traced op"],
    ["overlap_ns", "at the same time as another"],
    ["idle_ns", "no kernel running"],
    ["dilation_ns", "added by the recording"],
]
GEMM = (
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align8>"
    "(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align8::Params)"
)
GEMV = (
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, float, true>"
    "(cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<__nv_bfloat16 const>, float>)"
)
FLASH = "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false>, true>"
SMALL = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{}>>(int, {})"
# module, kind, op, kernel, weight elements or None, elementwise bytes a token, efficiency
MODULES = [
    ("model.embed_tokens", "embedding", "aten::embedding", "vectorized_gather_kernel<16>", None, 16384, 0.30),
    ("model.layers.*.input_layernorm", "norm", "aten::pow", SMALL.format("pow", "pow"), None, 24576, 0.2),
    ("model.layers.*.input_layernorm", "norm", "aten::mean", "reduce_kernel<512, 1, MeanOps<float>>", None, 16390, 0.1),
    ("model.layers.*.self_attn.q_proj", "projection", "aten::mm", GEMV, 4096 * 4096, 16384, 0.71),
    ("model.layers.*.self_attn.k_proj", "projection", "aten::mm", GEMV, 4096 * 1024, 10240, 0.42),
    ("model.layers.*.self_attn.v_proj", "projection", "aten::mm", GEMV, 4096 * 1024, 10240, 0.43),
    ("model.layers.*.self_attn", "rotary", "aten::mul", SMALL.format("mul", "mul"), None, 30000, 0.15),
    ("model.layers.*.self_attn", "rotary", "aten::cat", "CatArrayBatchedCopy_vec<OpaqueType<2>, 16>", None, 0, 0.12),
    ("model.layers.*.self_attn", "cache", "aten::cat", "CatArrayBatchedCopy_alignedK_contig", None, 0, 0.55),
    ("model.layers.*.self_attn", "attention", "aten::sdpa", FLASH, None, 4_400_000, 0.38),
    ("model.layers.*.self_attn", "attention", "aten::copy_", "Memcpy DtoD (Device -> Device)", None, None, 0.1),
    ("model.layers.*.self_attn.o_proj", "projection", "aten::mm", GEMV, 4096 * 4096, 16384, 0.70),
    ("model.layers.*.post_attention_layernorm", "norm", "aten::pow", SMALL.format("pow", "p"), None, 24576, 0.2),
    ("model.layers.*.mlp.gate_proj", "mlp", "aten::mm", GEMM, 4096 * 14336, 36864, 0.83),
    ("model.layers.*.mlp.up_proj", "mlp", "aten::mm", GEMM, 4096 * 14336, 36864, 0.82),
    ("model.layers.*.mlp.act_fn", "mlp", "aten::silu", SMALL.format("silu", "silu"), None, 57344, 0.22),
    ("model.layers.*.mlp", "mlp", "aten::mul", SMALL.format("mul", "m"), None, 86016, 0.25),
    ("model.layers.*.mlp.down_proj", "mlp", "aten::mm", GEMM, 4096 * 14336, 36864, 0.78),
    ("model.layers.*", "residual", "aten::add", SMALL.format("add", "add"), None, 24576, 0.2),
    ("model.norm", "norm", "aten::mean", "reduce_kernel<512, 1, MeanOps<float>>", None, 24576, 0.2),
    ("lm_head", "head", "aten::mm", GEMM, 4096 * 128256, 264704, 0.88),
    ("(sample)", "sampling", "aten::argmax", "reduce_kernel<512, 1, ArgMaxOps<float>>", None, 256512, 0.1),
]
ADVICE = {
    "inefficient": "use a kernel that reads its weights in wide loads, or fuse it with its neighbours: most of its "
    "time is above the roof",
    "latency": "fuse it (torch.compile) or replay it from a CUDA graph: it is too short to fill the machine",
}


def made_report(layers=32, steps=16, seed=5, launches_of_role=None):
    """The whole data object.

    Args:
        layers: decoder layers.
        steps: decode steps.
        seed: of the generator.
        launches_of_role: how many single launches of each role the page holds; all of them where None.
    """
    rng = random.Random(seed)
    rows, launches = [], []
    phases = []
    for phase, (name, tokens, forwards) in enumerate((("prefill", 2048, 1), ("decode", 1, steps))):
        mine = [_role(rng, phase, tokens, forwards, layers, *module) for module in MODULES]
        kernel_ns = sum(r["time_ns"] for r in mine)
        gap_ns = round(kernel_ns * (0.02 if tokens > 1 else 0.31))
        wall_ns = kernel_ns + gap_ns
        for row in mine:
            row["share_pct"] = 100 * row["time_ns"] / wall_ns
        mine.sort(key=lambda r: -(r["recoverable_ns"] or 0))
        first = len(rows)
        rows += mine
        for i, row in enumerate(mine):
            launches += _launches(rng, first + i, row, forwards, layers, launches_of_role)
        phases.append(_phase(rng, name, forwards, mine, first, wall_ns, gap_ns, layers))
    _one_above_every_roof(rows)
    return {
        "title": "Meta-Llama-3-8B, batch 1, prompt 2048, output 16, bf16 on NVIDIA H200",
        "made_by": "kernelroof 0.1.0",
        "source": "profile",
        "subject": [
            ["model", "Meta-Llama-3-8B, 8,030,261,248 parameters; 32 layers, full attention"],
            ["workload", f"batch 1, prompt 2048, output {steps}"],
            ["how it ran", "bf16, sdpa attention, dynamic cache, eager"],
            ["device", "NVIDIA H200"],
            ["times from", "nsys"],
            ["FLOPs and bytes", "counted by ncu"],
        ],
        "doubts": ["bare repeats spread from 21.2 ms to 23.9 ms: a busy machine?"],
        "roofs": {
            "name": "NVIDIA H200",
            "dtype": "bf16",
            "origin": "datasheet",
            "note": "dense peak and bandwidth of the datasheet",
            "memory": [{"name": "DRAM", "byte_s": BYTE_S}, {"name": "L2 cache", "byte_s": CACHE_S}],
            "compute": [{"name": "bf16 tensor", "flop_s": FLOP_S}, {"name": "fp32", "flop_s": 66.9e12}],
        },
        "phases": phases,
        "roles": _columns(rows, ("module", "kernel", "kind", "op", "bound", "reason", "advice", *_SOURCES)),
        "launches": _columns(launches, ("path",)),
        "launches_note": None,
        "parts": _parts(rng, phases, layers),
        "terms": TERMS,
        "modules": _columns(_modules(rows), ("module", "kind", "bound", "reason")),
        "siblings": [
            {
                "phase": "decode",
                "layer": "model.layers.7",
                "words": "decode: model.layers.7 takes 512 µs, its siblings 398 µs: mlp.gate_proj chose another kernel",
                "time_ns": 512_000,
                "typical_ns": 398_000,
            }
        ],
        "estimate": {"text": "Meta-Llama-3-8B: 8,030,261,248 parameters\n  prefill  34.2 TFLOP\n  decode   16.1 GB"},
        "environment": [["python", "3.11.9"], ["torch", "2.6.0+cu124"], ["driver", "560.35.03"]],
        "commands": [
            ["this run", "kernelroof profile meta-llama/Meta-Llama-3-8B --prompt 2048 --output 16 --dtype bf16"],
            ["the recording", "nsys profile --trace cuda,nvtx --output timeline python -m kernelroof.profile.driver"],
        ],
        "conventions": ["FMA = 2 FLOP, elementwise ops 1 per element", "GB = 10^9 B; peaks are dense"],
        "missing": [["the spread of kernels in prefill", "one forward was recorded", "see the bare repeats' spread"]],
        "files": [["run.json", "what was run, versions, machine, settings"], ["kernels.csv", "every launch"]],
        "colours": page_colours(),
    }


_SOURCES = ("time_source", "flops_source", "bytes_source")
_AMOUNTS = ("launches", "time_ns", "flops", "bytes", "ideal_ns", "recoverable_ns")


def _role(rng, phase, tokens, forwards, layers, module, kind, op, kernel, weights, per_token, efficiency):
    each = layers if "*" in module else 1
    launches = forwards * each
    at_once = 1 if kind in ("head", "sampling") else tokens
    unknown = per_token is None
    flops = None if unknown else 2 * weights * at_once if weights else (per_token // 6) * at_once
    if kind == "attention" and not unknown:
        flops, per_token = 2 * 2048 * at_once * 4096 * 2, per_token if tokens == 1 else 40_000
    if op in ("aten::cat", "aten::embedding"):
        flops, per_token = 0, per_token or 8192
    moved = None if unknown else (weights or 0) * 2 + per_token * at_once
    ideal = None if unknown else max(flops / FLOP_S, moved / BYTE_S) * 1e9
    took = 1900 if unknown else round(max(ideal / (efficiency * rng.uniform(0.9, 1.1)), 1500 + 900 * rng.random()))
    pct = None if unknown else 100 * ideal / took
    memory = not unknown and moved / BYTE_S > flops / FLOP_S
    bound = "unknown" if unknown else "latency" if took < 5000 and pct < 50 else "inefficient" if pct < 50 else None
    bound = bound or ("memory" if memory else "compute")
    source = None if unknown else "ncu"
    return {
        "phase": phase,
        "module": module,
        "kernel": kernel,
        "label": f"{module.removeprefix('model.').removeprefix('layers.*.')} {op.removeprefix('aten::')}",
        "kind": kind,
        "op": op,
        "launches": launches,
        "time_ns": took * launches,
        "ideal_ns": None if unknown else ideal * launches,
        "recoverable_ns": None if unknown else max(0.0, took - ideal) * launches,
        "flops": None if unknown else flops * launches,
        "bytes": None if unknown else moved * launches,
        "intensity": None if unknown else flops / moved,
        "attained_flop_s": None if unknown else flops / took * 1e9,
        "attained_byte_s": None if unknown else moved / took * 1e9,
        "pct_of_roof": pct,
        "bound": bound,
        "reason": "no counters: a copy is no kernel" if unknown else f"under 50 % of its roof in {took} ns",
        "dram_pct": None if unknown else min(99.0, 100 * moved / took * 1e9 / BYTE_S),
        "sm_pct": None if unknown else min(99.0, 100 * flops / took * 1e9 / FLOP_S),
        "time_source": "nsys",
        "flops_source": source,
        "bytes_source": source,
        "advice": ADVICE.get(bound),
        "step_median_ns": took * each if forwards > 1 else None,
        "step_low_ns": took * each * 0.97 if forwards > 1 else None,
        "step_high_ns": took * each * 1.04 if forwards > 1 else None,
        "samples": forwards if forwards > 1 else None,
    }


def _one_above_every_roof(rows):
    row = next(r for r in rows if r["phase"] == 1 and r["module"] == "model.norm")
    row["bytes"], row["flops"] = row["time_ns"] * 30_000, row["time_ns"] * 6_000
    row["intensity"], row["attained_flop_s"] = 0.2, 6e12
    row["attained_byte_s"], row["pct_of_roof"] = 30e12, 625.0
    row["bound"], row["reason"] = "memory", "impossible: 625 % of the DRAM roof; check the bytes"


def _launches(rng, index, row, forwards, layers, wanted):
    each = layers if "*" in row["module"] else 1
    count = forwards * each if wanted is None else wanted
    typical = row["time_ns"] / row["launches"]
    made = []
    for i in range(count):
        took = round(typical * rng.uniform(0.95, 1.08))
        made.append(
            {
                "role": index,
                "path": row["module"].replace("*", str(i % each)),
                "step": i // each,
                "count": 1,
                "time_ns": took,
                "flops": None if row["flops"] is None else row["flops"] // row["launches"],
                "bytes": None if row["bytes"] is None else row["bytes"] // row["launches"],
                "pct_of_roof": None if row["ideal_ns"] is None else 100 * row["ideal_ns"] / row["launches"] / took,
            }
        )
    return made


def _phase(rng, name, forwards, rows, first, wall_ns, gap_ns, layers):
    products = [r for r in rows if r["op"] in ("aten::mm", "aten::sdpa")]
    ideal = round(sum(r["ideal_ns"] for r in products) * 0.97)
    serial = round(sum(r["ideal_ns"] for r in products)) - ideal
    others = round(sum(r["ideal_ns"] or 0 for r in rows)) - ideal - serial
    unmatched = sum(r["time_ns"] for r in rows if r["ideal_ns"] is None)
    overlap = -round(0.004 * wall_ns)
    values = dict.fromkeys([t for t, _ in TERMS], 0)
    values.update(ideal_ns=ideal, one_after_another_ns=serial, left_out_ns=others, unmatched_ns=unmatched)
    values.update(overlap_ns=overlap, idle_ns=gap_ns - overlap)
    values["kernels_ns"] = wall_ns - sum(values.values())
    kinds = sorted({r["kind"] for r in rows})
    worst = rows[0]
    return {
        "name": name,
        "steps": forwards,
        "clock": "bare run",
        "wall_ns": wall_ns,
        "wall_low_ns": round(wall_ns * 0.98),
        "wall_high_ns": round(wall_ns * 1.07),
        "repeats": 5,
        "kernel_ns": wall_ns - gap_ns,
        "overlap_ns": -overlap,
        "gap_ns": gap_ns,
        "ideal_ns": ideal,
        "recoverable_ns": sum(r["recoverable_ns"] or 0 for r in rows),
        "verdict": f"{name}: mostly inefficient kernels",
        "facts": ["wall = kernels - overlap + gaps", "every kernel was counted by ncu"],
        "doubts": ["clocks were not locked"] if name == "decode" else [],
        "answers": [
            ["What bounds it?", "memory: 61 % of the time is in kernels that DRAM limits; 24 % is no kernel at all"],
            ["Which module wastes most?", f"{worst['module']}, {worst['recoverable_ns'] / forwards / 1e6:.2f} ms"],
            ["What to do?", "replay the step from a CUDA graph (cache=static, torch.compile mode=reduce-overhead)"],
        ],
        "waterfall": [{"term": t, "words": words, "ns": values[t]} for t, words in TERMS],
        "model": {"flops": sum(r["flops"] for r in products), "bytes": sum(r["bytes"] for r in products)},
        "estimates": [
            {
                "kind": kind,
                "flops": sum(r["flops"] or 0 for r in rows if r["kind"] == kind),
                "bytes": sum(r["bytes"] or 0 for r in rows if r["kind"] == kind),
            }
            for kind in kinds
        ],
        "step_ns": [round(wall_ns / forwards * rng.uniform(0.97, 1.05)) for _ in range(forwards)],
        "timeline": _timeline(rng, rows, first, forwards, layers),
        "roofs": None,
    }


def _timeline(rng, rows, first, forwards, layers):
    order = sorted(range(len(rows)), key=lambda i: [m[0] for m in MODULES].index(rows[i]["module"]))
    inside = [i for i in order if "*" in rows[i]["module"]]
    before = [i for i in order if rows[i]["module"] == "model.embed_tokens"]
    after = [i for i in order if i not in inside and i not in before]
    found = {"start_ns": [], "time_ns": [], "role": [], "lane": []}
    now = 20_000
    for i in [*before, *inside * layers, *after]:
        took = round(rows[i]["time_ns"] / rows[i]["launches"])
        lane = "stream 7" if rows[i]["op"] != "aten::copy_" else "stream 13"
        for name, value in (("start_ns", now), ("time_ns", took), ("role", first + i), ("lane", lane)):
            found[name].append(value)
        now += took + (0 if lane == "stream 13" else rng.choice((300, 900, 1800)))
    return {"step": min(3, forwards - 1), "length_ns": now + 30_000, "notes": ["As nsys recorded it."], **found}


def _modules(rows):
    merged = {}
    for row in rows:
        merged.setdefault((row["phase"], row["module"]), []).append(row)
    made = []
    for (phase, module), inside in merged.items():
        known = [r for r in inside if r["flops"] is not None]
        flops, moved = (sum(r[k] for r in known) if known else None for k in ("flops", "bytes"))
        busy = sum(r["time_ns"] for r in known)
        heaviest = max(inside, key=lambda r: r["time_ns"])
        ideal = sum(r["ideal_ns"] for r in known) if known else None
        made.append(
            {
                "phase": phase,
                "module": module,
                "kind": heaviest["kind"],
                "launches": sum(r["launches"] for r in inside),
                "time_ns": sum(r["time_ns"] for r in inside),
                "share_pct": sum(r["share_pct"] for r in inside),
                "ideal_ns": ideal,
                "recoverable_ns": sum(r["recoverable_ns"] or 0 for r in inside) if known else None,
                "flops": flops,
                "bytes": moved,
                "intensity": flops / moved if known else None,
                "attained_flop_s": flops / busy * 1e9 if known else None,
                "attained_byte_s": moved / busy * 1e9 if known else None,
                "pct_of_roof": 100 * ideal / busy if known else None,
                "bound": heaviest["bound"],
                "reason": heaviest["reason"],
            }
        )
    return made


def _parts(rng, phases, layers):
    names = [t for t, _ in TERMS]
    rows = []
    for phase in phases:
        whole = {t["term"]: t["ns"] for t in phase["waterfall"]}
        rows.append({"phase": phase["name"], "scope": "phase", "name": phase["name"], **whole})
        shared = {**whole, "idle_ns": 0, "overlap_ns": 0, "dilation_ns": 0}
        for layer in range(layers):
            part = {t: round(ns / (layers + 1)) for t, ns in shared.items()}
            part["kernels_ns"] = round(part["kernels_ns"] * (1.9 if layer == 7 else rng.uniform(0.97, 1.03)))
            rows.append({"phase": phase["name"], "scope": "layer", "name": f"model.layers.{layer}", **part})
            for module, share in (("self_attn", 0.3), ("mlp.gate_proj", 0.2), ("mlp.down_proj", 0.2)):
                inner = {t: round(ns * share) for t, ns in part.items()}
                rows.append(
                    {"phase": phase["name"], "scope": "module", "name": f"model.layers.{layer}.{module}", **inner}
                )
    for row in rows:
        row["total_ns"] = sum(row[t] for t in names)
    return _columns(rows, ("phase", "scope", "name"))


def _columns(rows, texts):
    return {name: coded([r[name] for r in rows]) if name in texts else [r[name] for r in rows] for name in rows[0]}
