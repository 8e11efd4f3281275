"""Labels that Nsight Compute prints on its details page, and the metrics they stand for.

A label may stand for two quantities, told apart by their base unit (`Memory Throughput` in % or byte/s).
Names differ between versions for one label; the one given here is the one our tables look for.
"""

from __future__ import annotations

_DRAM_PCT = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
_SM_PCT = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_MEMORY_PCT = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
_INST = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
_PEAK = "sm__sass_thread_inst_executed_op_{}_pred_on.sum.peak_sustained"

LABELS: dict[tuple[str, str], str] = {
    ("Duration", "ns"): "gpu__time_duration.sum",
    ("Elapsed Cycles", "cycle"): "sm__cycles_elapsed.max",
    ("SM Frequency", "hz"): "sm__cycles_elapsed.avg.per_second",
    ("DRAM Frequency", "hz"): "dram__cycles_elapsed.avg.per_second",
    ("Memory Frequency", "hz"): "dram__cycles_elapsed.avg.per_second",
    ("DRAM Throughput", "%"): _DRAM_PCT,
    ("SOL DRAM", "%"): _DRAM_PCT,
    ("SOL FB", "%"): _DRAM_PCT,
    ("Compute (SM) Throughput", "%"): _SM_PCT,
    ("Compute (SM) [%]", "%"): _SM_PCT,
    ("SM [%]", "%"): _SM_PCT,
    ("SOL SM", "%"): _SM_PCT,
    ("Memory Throughput", "%"): _MEMORY_PCT,
    ("Memory [%]", "%"): _MEMORY_PCT,
    ("SOL Memory", "%"): _MEMORY_PCT,
    ("Memory Throughput", "byte/s"): "dram__bytes.sum.per_second",
    ("DRAM Bandwidth", "byte/s"): "dram__bytes.sum.per_second",
    ("Theoretical DRAM Bytes Accessible", "byte/cycle"): "dram__bytes.sum.peak_sustained",
    ("L1/TEX Cache Throughput", "%"): "l1tex__throughput.avg.pct_of_peak_sustained_active",
    ("L1/TEX Hit Rate", "%"): "l1tex__t_sector_hit_rate.pct",
    ("L2 Cache Throughput", "%"): "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ("L2 Hit Rate", "%"): "lts__t_sector_hit_rate.pct",
    ("Achieved Occupancy", "%"): "sm__warps_active.avg.pct_of_peak_sustained_active",
    ("Theoretical Occupancy", "%"): "sm__maximum_warps_per_active_cycle_pct",
    ("Waves Per SM", ""): "launch__waves_per_multiprocessor",
    ("Registers Per Thread", "register/thread"): "launch__registers_per_thread",
    ("Grid Size", ""): "launch__grid_size",
    ("Block Size", ""): "launch__block_size",
    ("Threads", "thread"): "launch__thread_count",
    ("# SMs", "SM"): "launch__sm_count",
    **{
        (f"Predicated-On {op.upper()} Thread Instructions Executed Per Cycle", "inst/cycle"): _INST.format(op)
        for op in ("fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "hadd", "hmul", "hfma")
    },
    **{
        (f"Theoretical Predicated-On {op.upper()} Thread Instructions Executed", "inst/cycle"): _PEAK.format(op)
        for op in ("ffma", "dfma", "hfma")
    },
}
