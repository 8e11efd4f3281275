"""Figures that texts on inference quote, recomputed: which are right, and what the others should be.

Each row names the command that prints the figure, so that it can be asked for other models and GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kernelroof.models.batching import continuous_batches, static_batches
from kernelroof.models.capacity import cache_outgrows_weights, parameters_that_fit
from kernelroof.models.chunked import chunked_prefill
from kernelroof.models.coefficients import coefficients
from kernelroof.models.estimate import Costs, costs, ideal_times
from kernelroof.models.expected import expected_phase
from kernelroof.models.formats import weight_format
from kernelroof.models.offload import TIERS
from kernelroof.models.presets import load_config
from kernelroof.models.spec import ModelSpec, read_spec
from kernelroof.models.workload import make_workload, precision_of

Peaks = tuple[float, float, float]
"""Dense 16-bit FLOP/s, B/s and bytes of memory of a GPU."""
GPUS = ("h100-sxm", "h20", "a100-80gb", "rtx-4090", "rtx-4080")


class Figure(NamedTuple):
    """One quoted figure and ours, in the unit of `what`."""

    topic: str
    what: str
    quoted: float
    ours: float
    digits: int
    """Decimals that the quoted figure has (negative: zeros before the point), which decide whether it is right."""
    command: str
    note: str = ""

    @property
    def right(self) -> bool:
        """Whether ours, rounded like the quoted one, is the same to one in its last place."""
        return abs(self.ours - self.quoted) <= 10.0**-self.digits * (1 + 1e-9)


def figures(gpus: Mapping[str, Peaks]) -> list[Figure]:
    """All figures; `gpus` gives the peaks of `GPUS`."""
    found: list[Figure] = []
    for part in _PARTS:
        found += part(gpus)
    return found


def _precisions(_gpus: Mapping[str, Peaks]) -> list[Figure]:
    """Seven billion parameters at each precision, and what fits 16 GB with 2 GB kept free."""
    rows = []
    rooms = {r.dtype: r for r in parameters_that_fit(16e9, 2e9)}
    for dtype, size, most in (("float32", 28, 3.5), ("bfloat16", 14, 7), ("int8", 7, 14), ("int4", 3.5, 28)):
        each = rooms[dtype].bytes_per_parameter
        command = "kernelroof memory --memory-gb 16 --reserve-gb 2"
        rows.append(Figure("precision", f"GB of 7 billion parameters, {dtype}", size, 7 * each, 1, command))
        rows.append(
            Figure("precision", f"billions in 16 GB less 2, {dtype}", most, rooms[dtype].parameters / 1e9, 1, command)
        )
    rows.append(
        Figure(
            "precision", "billions in 16 GB, int4, as a takeaway", 14, rooms["int4"].parameters / 1e9, 0, command,
            "contradicts the table's own 28",
        )
    )  # fmt: skip
    llama = _spec("llama-2-7b")
    for dtype, size in (("bfloat16", 14), ("int4", 3.5)):
        held = costs(llama, make_workload(llama, weights_dtype=dtype)).weight_bytes / 1e9
        command = f"kernelroof estimate llama-2-7b --weights-dtype {dtype}"
        rows.append(Figure("precision", f"GB of Llama-2-7B, {dtype}", size, held, 0, command))
    return rows


def _tiers(gpus: Mapping[str, Peaks]) -> list[Figure]:
    """Reading 14 GB from each tier of storage, and how much slower that is than the GPU's memory."""
    hbm = gpus["h100-sxm"][1]
    command = "kernelroof memory --gpu h100-sxm --params-b 7"
    rows = [Figure("storage", "ms for 14 GB from HBM (H100)", 4, 14e9 / hbm * 1e3, 0, command)]
    for tier, ms, slower, digits in zip(TIERS, (140, 2000, 70_000), (33, 478, 16_750), (0, -2, -3), strict=True):
        rows.append(Figure("storage", f"ms for 14 GB from {tier.name}", ms, 14e9 / tier.byte_s * 1e3, digits, command))
        rows.append(Figure("storage", f"times slower than HBM: {tier.name}", slower, hbm / tier.byte_s, 0, command))
    return rows


def _ridges(gpus: Mapping[str, Peaks]) -> list[Figure]:
    quoted = (("h100-sxm", 295), ("h20", 37), ("a100-80gb", 153), ("rtx-4090", 164), ("rtx-4080", 135))
    rows = [
        Figure("ridge", f"FLOP/B, {key}", value, gpus[key][0] / gpus[key][1], 0, "kernelroof gpus " + key)
        for key, value in quoted
    ]
    a100, ada = gpus["a100-80gb"], gpus["rtx-4090"]
    rounded = "with bandwidths rounded to 2.0 and 1.0 TB/s"
    rows.append(Figure("ridge", "FLOP/B, a100-80gb, elsewhere", 156, a100[0] / a100[1], 0, rows[2].command, rounded))
    rows.append(Figure("ridge", "FLOP/B, rtx-4090, elsewhere", 165, ada[0] / ada[1], 0, rows[3].command, rounded))
    return rows


def _sheets(gpus: Mapping[str, Peaks]) -> list[Figure]:
    """A table of 16-bit TFLOP/s, TB/s and GB."""
    quoted = ((989, 3.35, 80), (148, 4.0, 96), (312, 2.0, 80), (165, 1.0, 24), (97, 0.72, 16))
    rows = []
    for key, (tflops, tb, gb) in zip(GPUS, quoted, strict=True):
        flop_s, byte_s, memory = gpus[key]
        command = f"kernelroof gpus {key}"
        rows.append(Figure("GPUs", f"TFLOP/s in 16 bit, {key}", tflops, flop_s / 1e12, 0, command))
        rows.append(Figure("GPUs", f"TB/s, {key}", tb, byte_s / 1e12, 2, command))
        rows.append(Figure("GPUs", f"GB, {key}", gb, memory / 1e9, 0, command))
    for key, gb_s in (("a100-80gb", 2039), ("h100-sxm", 3350), ("rtx-4090", 1008)):
        rows.append(Figure("GPUs", f"GB/s, {key}", gb_s, gpus[key][1] / 1e9, 0, f"kernelroof gpus {key}"))
    return rows


def _intensities(gpus: Mapping[str, Peaks]) -> list[Figure]:
    """Decode intensity and share of the H100's peak by batch: of weights alone, and with a cache of 1,024 tokens."""
    flop_s, byte_s, _memory = gpus["h100-sxm"]
    spec = _spec("llama-2-7b")
    rows = []
    for batch, quoted, share in ((1, 1.0, 1.0), (8, 8.0, 3.0), (64, 64.0, 22.0), (256, 256.0, 87.0)):
        flops = 2.0 * batch  # per parameter; read once in two bytes
        command = f"kernelroof estimate llama-2-7b --gpu h100-sxm --prompt 1 --batch {batch}"
        rows.append(Figure("batch", f"FLOP/B of fp16 weights alone, batch {batch}", quoted, flops / 2, 1, command))
        rows.append(
            Figure(
                "batch", f"% of the H100's peak, batch {batch}", share, 100 * flops / 2 * byte_s / flop_s, 0, command
            )
        )
        step = costs(spec, make_workload(spec, batch=batch, prompt=1023, output=1)).first_step
        command = f"kernelroof estimate llama-2-7b --gpu h100-sxm --prompt 1023 --batch {batch}"
        what = f"FLOP/B with a cache of 1,024 tokens, batch {batch}"
        note = "" if batch == 1 else "the cache is not shared by the batch: Llama-2-7B never gets there"
        rows.append(Figure("batch", what, quoted, step.flops / step.bytes, 0, command, note))
    four = _smaller("int4-g128")
    command = "kernelroof estimate llama-2-7b --gpu h100-sxm --prompt 1 --weights-dtype int4-g128"
    rows.append(Figure("batch", "FLOP/B of int4 weights and their scales alone, batch 1", 4, four, 0, command))
    return rows


def _compression(_gpus: Mapping[str, Peaks]) -> list[Figure]:
    """How much smaller a matrix of 4096 x 4096 is than in 16 bit, scales and zero points counted."""
    quoted = (
        ("gptq-int4-g128", 4),
        ("gptq-int3-g128", 5),
        ("awq", 4),
        ("q4_k_m", 4),
        ("q5_k_m", 3),
        ("fp8", 2),
        ("w8a8", 2),
    )
    return [
        Figure("formats", f"times smaller than 16 bit, {name}", value, _smaller(name), 0,
               f"kernelroof estimate llama-3-8b --weights-dtype {name}")
        for name, value in quoted
    ]  # fmt: skip


def _smaller(name: str) -> float:
    return 2 * 4096 * 4096 / weight_format(name).matrix_bytes(4096, 4096)


def _batching(_gpus: Mapping[str, Peaks]) -> list[Figure]:
    lengths = [200, 100, 30, 80]
    share = 100 * static_batches(lengths, 4).utilisation
    joined = 100 * continuous_batches(64 * lengths, 4).utilisation
    return [
        Figure("batching", "% of slots used by outputs of 200, 100, 30, 80", 52, share, 2, "kernelroof batching"),
        Figure("batching", "the same, continuous, 64 times over", 100, joined, -1, "kernelroof batching"),
    ]


def _cache(_gpus: Mapping[str, Peaks]) -> list[Figure]:
    llama, llama3, qwen = (_spec(n) for n in ("llama-2-7b", "llama-3-8b", "qwen2.5-7b"))

    def per_token(spec: ModelSpec) -> float:
        return float(costs(spec, make_workload(spec)).kv_bytes_per_token)

    command = "kernelroof memory llama-2-7b"
    load = make_workload(llama3, prompt=1024, output=256)
    one, many = (cache_outgrows_weights(llama3, load._replace(batch=b)) or 0 for b in (1, 32))
    whole = costs(llama, make_workload(llama)).weight_bytes
    heads = llama3.heads / llama3.kv_heads
    return [
        Figure("cache", "GB of Llama-2-7B at 32,768 tokens", 8, per_token(llama) * 32768 / 1e9, 0, command),
        Figure("cache", "the same over its weights", 0.6, per_token(llama) * 32768 / whole, 1, command,
               "more than the weights, not just half of them"),
        Figure("cache", "times that grouped heads shrink Llama-3-8B's", 4, heads, 0, "kernelroof memory llama-3-8b"),
        Figure(
            "cache", "Llama-2-7B over Qwen2.5-7B, per token", 4, per_token(llama) / per_token(qwen), 2,
            "kernelroof memory qwen2.5-7b", "7 times fewer KV heads, and 28 layers instead of 32",
        ),
        Figure("cache", "tokens at which Llama-3-8B's passes its weights, batch 1", 8192, one, 0, command,
               "the question suggests that 8,192 tokens suffice"),
        Figure("cache", "the same, batch 32", 3830, many, 0, "kernelroof memory llama-3-8b --batch 32"),
    ]  # fmt: skip


def _speeds(gpus: Mapping[str, Peaks]) -> list[Figure]:
    """Decode and prefill of named models, ideal."""
    flop_s, byte_s, _memory = gpus["a100-80gb"]
    spec = _spec("llama-3-8b")

    def rate(batch: int) -> float:
        load = make_workload(spec, batch=batch, prompt=1023, output=1)
        return float(batch / ideal_times(costs(spec, load), flop_s, byte_s).first_step_s)

    command = "kernelroof estimate llama-3-8b --gpu a100-80gb --prompt 1023 --batch "
    cost = costs(spec, make_workload(spec, prompt=1024, output=256))
    whole = cost.weight_bytes / byte_s
    qwen = _spec("qwen2.5-7b")
    long = make_workload(qwen, prompt=4096, output=1)
    kernels = expected_phase(qwen, long, "a100-80gb", "prefill", flop_s=flop_s, byte_s=byte_s)
    share = 100 * ideal_times(costs(qwen, long), flop_s, byte_s).prefill_s / kernels.seconds if kernels else 0.0
    return [
        Figure("speed", "tokens/s that 14 GB at 2,039 GB/s allow", 35, byte_s / 14e9, 0,
               "kernelroof estimate llama-2-7b --gpu a100-80gb", "the quoted reason does not give the quoted figure"),
        Figure("speed", "tokens/s of Llama-3-8B on A100, batch 1, ideal", 35, rate(1), 0, command + "1",
               "7.4 ms of weights and cache; 127 if the embedding table is read too"),
        Figure("speed", "tokens/s with all 16.06 GB read per token", 127, 1 / whole, 0,
               command + "1 --embedding streamed"),
        Figure("speed", "tokens/s, batch 32, ideal", 400, rate(32), 0, command + "32"),
        Figure("speed", "the quoted 30 measured tokens/s over the ideal, batch 1", 0.86, 30 / rate(1), 2, command + "1",
               "most of the gap is not named: eager kernels and the host"),
        Figure("speed", "the quoted 280 measured over the ideal, batch 32", 0.7, 280 / rate(32), 1, command + "32"),
        Figure("speed", "times as many tokens/s at batch 8 as at 1, ideal", 3, rate(8) / rate(1), 0, command + "8",
               "what is missing of it are kernels and the host, not the weights, which are shared"),
        Figure("speed", "% of peak, prefill of Qwen2.5-7B at 4,096, by measured kernels", 60, share, 0,
               "kernelroof estimate qwen2.5-7b --gpu a100-80gb --prompt 4096",
               "vLLM's kernels without the host; a framework's own overheads come on top"),
        Figure("speed", "billions that multiply, by the 2N rule of 8.03", 8.03, cost.matmul_parameters / 1e9, 3,
               "kernelroof estimate llama-3-8b --json", "the embedding table is looked up, not multiplied"),
        Figure("speed", "times that int4 makes Qwen2.5-7B's step faster, batch 1, ideal", 1, _faster(qwen, gpus), 0,
               "kernelroof estimate qwen2.5-7b --gpu a100-80gb --weights-dtype int4-g128",
               "decode reads weights, so fewer bytes are faster; 1.5 to 2 with poor kernels, never unchanged"),
    ]  # fmt: skip


def _faster(spec: ModelSpec, gpus: Mapping[str, Peaks]) -> float:
    """How many times faster int4 makes an ideal decode step of batch 1 on the A100."""
    flop_s, byte_s, _memory = gpus["a100-80gb"]
    steps = [
        ideal_times(costs(spec, make_workload(spec, weights_dtype=held)), flop_s, byte_s).first_step_s
        for held in ("bfloat16", "int4-g128")
    ]
    return float(steps[0] / steps[1])


_PROGRAM = (
    ("Llama-3-8B, batch 1", "llama-3-8b", 1, "bfloat16", (16.0, 0.17, 297.9, 8.5, 18461.3, 2.1)),
    ("Llama-3-8B, batch 32", "llama-3-8b", 32, "bfloat16", (16.0, 5.37, 9531.5, 4634.7, 469647.8, 847.2)),
    ("Qwen2.5-7B, batch 1, int4", "qwen2.5-7b", 1, "int4", (3.8, 0.07, 231.1, 7.3, 59882.3, 7.3)),
)
"""What a text's program prints for its three configurations: prompt 1,024, output 256, A100."""


def _program(gpus: Mapping[str, Peaks]) -> list[Figure]:
    """The six figures that the program prints for each, the ridge, and its verdict on the second."""
    flop_s, byte_s, _memory = gpus["a100-80gb"]
    twice = "attention's S² is multiplied by the number of tokens once more"
    rows = []
    found: dict[str, Costs] = {}
    for words, name, batch, dtype, quoted in _PROGRAM:
        spec = _spec(name)
        cost = found[words] = costs(
            spec, make_workload(spec, batch=batch, prompt=1024, output=256, weights_dtype=dtype)
        )
        ours = (
            (
                "GB of weights",
                cost.weight_bytes / 1e9,
                1,
                "embedding and head stay in 16 bit" if dtype == "int4" else "",
            ),
            ("GB of cache", cost.kv_bytes / 1e9, 2, ""),
            ("TFLOP of prefill", cost.prefill.flops / 1e12, 1, twice),
            ("TFLOP of decode", cost.decode.flops / 1e12, 1, twice),
            ("FLOP/B of prefill", cost.prefill.flops / cost.prefill.bytes, 1, twice),
            ("FLOP/B of decode", cost.decode.flops / cost.decode.bytes, 1, twice),
        )
        command = f"kernelroof estimate {name} --gpu a100-80gb --prompt 1024 --output 256"
        command += f" --batch {batch} --weights-dtype {dtype}"
        for (what, value, digits, note), figure in zip(ours, quoted, strict=True):
            rows.append(Figure("program", f"{what}, {words}", figure, value, digits, command, note))
    one, many = found["Llama-3-8B, batch 1"].prefill, found["Llama-3-8B, batch 32"].decode
    over = many.flops / many.bytes * byte_s / flop_s
    rows += [
        Figure("program", "ridge, FLOP/B", 153.0, flop_s / byte_s, 1, "kernelroof gpus a100-80gb"),
        Figure("program", "times the ridge, decode of Llama-3-8B, batch 32", 5.5, over, 1, rows[6].command,
               "called compute-bound; it is memory-bound"),
        Figure("program", "TFLOP of prefill by 2N alone, Llama-3-8B", 16.4, one.flops / 1e12, 1, rows[0].command,
               "the table is not multiplied, the head at the last position only, and attention is not in it"),
    ]  # fmt: skip
    return rows


def _blocks(gpus: Mapping[str, Peaks]) -> list[Figure]:
    share = 100 * _SM_BYTES_PER_CLOCK * _A100_CLOCK / gpus["a100-80gb"][1]
    return [
        Figure("kernels", "% of DRAM bandwidth drawn by a grid of one block, at most", 89.2, share, 1,
               "kernelroof gpus a100-80gb", "one block runs on one SM, which takes 64 B per clock from L2"),
    ]  # fmt: skip


_SM_BYTES_PER_CLOCK, _A100_CLOCK = 64, 1.41e9
"""What an SM gets from L2, and the boost clock (NVIDIA A100 whitepaper)."""


def _chunks(gpus: Mapping[str, Peaks]) -> list[Figure]:
    flop_s, byte_s, _memory = gpus["h100-sxm"]
    spec = _spec("llama-3-8b")
    load = make_workload(spec)
    model = coefficients(spec, precision_of(spec, load))

    def stall(chunk: int) -> float:
        found = chunked_prefill(model, prompt=8192, chunk=chunk, running=32, context=1024, flop_s=flop_s, byte_s=byte_s)
        return 1e3 * found.longest_stall_s

    note = "the text names no model and GPU; of Llama-3-8B on one H100, ideal"
    command = "kernelroof batching llama-3-8b --gpu h100-sxm --slots 32 --long-prompt 8192"
    return [
        Figure("batching", "ms that a prompt of 8,192 tokens stalls others", 50, stall(8192), 0, command, note),
        Figure("batching", "ms, in chunks of 512", 3, stall(512), 0, command, note),
    ]


def _spec(name: str) -> ModelSpec:
    return read_spec(load_config(name), name)


_Part = Callable[[Mapping[str, Peaks]], list[Figure]]
_PARTS: tuple[_Part, ...] = (
    _precisions,
    _tiers,
    _sheets,
    _ridges,
    _intensities,
    _compression,
    _batching,
    _chunks,
    _cache,
    _speeds,
    _program,
    _blocks,
)
