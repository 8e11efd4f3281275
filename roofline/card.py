"""The model-level card as plain text; imports nothing heavy, so the estimate answers at once."""

from __future__ import annotations

import textwrap
from typing import Any

from kernelroof.roofline.text_plot import text_roofline
from kernelroof.roofline.text_table import WIDTH
from kernelroof.roofline.units import fixed, quantity, seconds

_WIDTH = 96


def estimate_card(record: dict[str, Any]) -> str:
    """Render an estimate record (`kernelroof.models.record`) for a terminal of 100 columns."""
    device = record["device"]
    load = record["workload"]
    lines = [
        *textwrap.wrap(
            f"{record['model']}: {record['parameters']:,} parameters{_active(record)} ({record['model_type']}), "
            "closed-form estimate",
            WIDTH,
        ),
        *textwrap.wrap(record["architecture"], _WIDTH),
        *textwrap.wrap(
            f"batch {load['batch']}, prompt {load['prompt']}, output {load['output']}, compute {load['dtype']}, "
            f"weights {load['weights_dtype']}, KV {load['kv_dtype']}, {load['cache']} cache, {load['attn']}",
            WIDTH,
        ),
    ]
    if device["name"]:
        lines += textwrap.wrap(
            f"{device['name']}: {quantity(device['peak_flop_s'], 'FLOP/s')} dense {load['dtype']}, "
            f"{_quantised(device['quantised_peaks'])}"
            f"{quantity(device['bandwidth_byte_s'], 'B/s')}, ridge {record['ridge_flop_per_byte']:.1f} FLOP/B "
            f"({device['origin']})",
            _WIDTH,
        )
    else:
        lines.append("no device given: add --gpu NAME (see `kernelroof gpus`) for bounds, times and what fits")
    lines += ["", *_memory(record), "", *_phases(record)]
    if "checkpoint" in record:
        lines += ["", *_checkpoint(record)]
    if device["name"]:
        lines += ["", *_besides(record)]
        lines += ["", *text_roofline(_points(record), device["peak_flop_s"], device["bandwidth_byte_s"])]
    if "calibrated" in record:
        lines += ["", *_calibrated(record["calibrated"])]
    lines += ["", "conventions"]
    spoken = [*record["conventions"].items(), *(("assumed", words) for words in record["assumptions"])]
    for key, words in spoken:
        lines += textwrap.wrap(words, _WIDTH, initial_indent=f"  {key:<10} ", subsequent_indent=" " * 13)
    return "\n".join(lines)


def _active(record: dict[str, Any]) -> str:
    active = record["active_parameters"]
    return "" if active == record["parameters"] else f", {active:,} per token"


def _memory(record: dict[str, Any]) -> list[str]:
    load = record["workload"]
    tokens = load["prompt"] + load["output"]
    capacity = record["device"]["memory_bytes"]
    if record["fits"] is None:
        verdict = ""
    elif record["fits"]:
        verdict = f" of {quantity(capacity, 'B')}: fits"
    else:
        verdict = f" of {quantity(capacity, 'B')}: does NOT fit"
    held = f"{record['kv_bytes_per_token']:,} B per token; {load['batch']} x {tokens} tokens"
    if record["kv_bytes_without_windows"] > record["kv_bytes"]:
        held += f"; {quantity(record['kv_bytes_without_windows'], 'B')} without windows"
    return [
        "memory",
        f"  weights      {quantity(record['weight_bytes'], 'B'):>12}",
        f"  KV cache     {quantity(record['kv_bytes'], 'B'):>12}   {held}",
        *_states(record),
        f"  activations  {quantity(record['peak_activation_bytes'], 'B'):>12}   peak, in prefill",
        f"  total        {quantity(record['total_bytes'], 'B'):>12}{verdict} "
        f"(with {100 * record['overhead_share']:g} % overhead)",
        *_beside(record),
    ]


def _quantised(peaks: dict[str, float]) -> str:
    return "".join(
        f"{quantity(peak, 'OP/s' if kind == 'int8' else 'FLOP/s')} {kind.upper()} for quantised linears, "
        for kind, peak in peaks.items()
    )


def _checkpoint(record: dict[str, Any]) -> list[str]:
    """What the files hold, beside the closed form."""
    lines = ["checkpoint (headers of its safetensors files)"]
    for words in record["checkpoint"]["words"]:
        lines += textwrap.wrap(words, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines


def _states(record: dict[str, Any]) -> list[str]:
    """Recurrent states, which are part of the cache and do not grow."""
    each = record["state_bytes_per_sequence"]
    if not each:
        return []
    total = each * record["workload"]["batch"]
    return [f"    of it states {quantity(total, 'B'):>9}   {each:,} B per sequence, whatever its length"]


def _beside(record: dict[str, Any]) -> list[str]:
    """Experts that a decode step reads, and the tower of a wrapper, which is not in the total."""
    batch = record["workload"]["batch"]
    lines = [
        f"  experts      {kind['distinct']:>12.2f}   of {kind['experts']} per layer read by a decode step at batch "
        f"{batch} ({kind['layers']} layers)"
        for kind in record["experts"]
    ]
    tower = record["tower"]
    if tower is None:
        return lines
    if tower["parameters"] is None:
        return [*lines, f"  tower        {'unknown':>12}   not in the total: {tower['reason']}"]
    size = quantity(tower["weight_bytes"], "B")
    return [
        *lines,
        f"  tower        {size:>12}   not in the total: {tower['parameters']:,} parameters ({tower['kind']})",
    ]


def _phases(record: dict[str, Any]) -> list[str]:
    prefill, decode = record["prefill"], record["decode"]
    total = {k.removeprefix("total_"): v for k, v in decode.items() if k.startswith("total_")}
    steps = decode["steps"]
    header = ("", "prefill", f"decode step, context {decode['context']}", f"decode, {steps} steps")
    rows: list[tuple[str, ...]] = []

    def add(label: str, cell: Any) -> None:
        rows.append((label, cell(prefill), cell(decode), cell(total)))

    add("FLOPs", lambda p: quantity(p["flops"], "FLOP"))
    if prefill["scan_flops"]:
        add("  recurrences besides", lambda p: quantity(p["scan_flops"], "FLOP"))
    thumbs = (prefill["rule_of_thumb_flops"], decode["rule_of_thumb_flops"])
    rows.append(("  rule of thumb, 2N", *(quantity(x, "FLOP") for x in (*thumbs, thumbs[1] * steps))))
    add("bytes that must move", lambda p: quantity(p["bytes"], "B"))
    add("  weights", lambda p: quantity(p["weight_bytes"], "B"))
    add("  KV read", lambda p: quantity(p["kv_read_bytes"], "B"))
    add("besides: KV written", lambda p: quantity(p["kv_write_bytes"], "B"))
    add("  activations", lambda p: quantity(p["activation_bytes"], "B"))
    add("  cache copies", lambda p: quantity(p["cache_copy_bytes"], "B"))
    add("intensity", lambda p: f"{fixed(p['intensity'])} FLOP/B")
    if record["device"]["name"]:
        rows.append(("bound", prefill["bound"], decode["bound"], ""))
        rows.append(
            (
                "ideal time",
                *(seconds(p / 1e3) for p in (prefill["ideal_ms"], decode["ideal_ms"], total["ideal_ms"])),
            )
        )
        rows.append(
            (
                "  with these, no elementwise",
                seconds(prefill["ideal_without_elementwise_ms"] / 1e3),
                seconds(decode["ideal_without_elementwise_ms"] / 1e3),
                "",
            )
        )
        if record["expected"]["known"]:
            rows.append(("expected time", *(_band(p) for p in (prefill, decode)), ""))
        rows.append(("ideal rate", "", f"{fixed(record['tokens_per_s'])} tokens/s", ""))
    widths = [max(len(r[i]) for r in (header, *rows)) for i in range(4)]
    return [
        "  ".join((row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in (1, 2, 3)))).rstrip()
        for row in (header, *rows)
    ]


def _band(phase: dict[str, Any]) -> str:
    """An expected time with the band that holds about 80 % of measured kernels.

    Where less than half of it was measured, the rest stands in at its ideal: then it is a least time, not a band.
    """
    if phase["expected_ms"] is None:
        return "–"
    low, high = (seconds(phase[f"expected_{end}_ms"] / 1e3, 3) for end in ("low", "high"))
    return f"{low} - {high}" if mostly_measured(phase) else f"at least {low}"


def mostly_measured(phase: dict[str, Any]) -> bool:
    """Whether more than half of a phase's expected time rests on measured kernels."""
    return bool(phase["expected_measured_share"] > 0.5)


def _why(record: dict[str, Any]) -> list[str]:
    """By kind of kernel, what makes the expected time longer than the ideal."""
    lines = []
    for phase, words in (("prefill", "prefill"), ("decode", "decode step")):
        if record[phase]["expected_ms"] is None:
            continue
        parts = ", ".join(
            f"{kind} {seconds(part['expected_ms'] / 1e3, 3)} ({seconds(part['ideal_ms'] / 1e3, 3)})"
            for kind, part in record[phase]["expected_parts"].items()
        )
        whole = seconds(record[phase]["expected_ms"] / 1e3, 3)
        text = f"{words} {whole}, by kind of kernel (at their roofs): {parts}"
        lines += textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines


def _besides(record: dict[str, Any]) -> list[str]:
    """What the expected time rests on, and the host's own floor."""
    known, host = record["expected"], record["host"]
    if known["known"]:
        words = f"expected: {known['statement']}; elementwise kernels are not in it"
        if known["transferred"]:
            words += "; learned on another GPU of the same architecture, hence the wider band"
        if known["not_measured"]:
            shares = " and ".join(
                f"{100 * record[phase]['expected_measured_share']:.0f} % of the {words}"
                for phase, words in (("prefill", "prefill"), ("decode", "decode step"))
                if record[phase]["expected_ms"] is not None
            )
            words += f"; at their ideal: {', '.join(known['not_measured'])}; {shares} rest on measurements"
        if known["withheld"]:
            words += f"; none for {', '.join(known['withheld'])}"
    else:
        words = f"expected: not known ({known['reason']}): ideal times only"
    lines = textwrap.wrap(words, _WIDTH, subsequent_indent="  ")
    if known["known"]:
        lines += _why(record)
    floor = " - ".join(seconds(host[f"floor_{end}_ms"] / 1e3, 3) for end in ("low", "high"))
    words = (
        f"host: about {host['launches_per_step']:,} launches per step in eager Hugging Face need {floor} "
        "of the CPU; a step lasts at least as long, unless it is a CUDA graph"
    )
    return lines + textwrap.wrap(words, _WIDTH, subsequent_indent="  ")


def _calibrated(found: dict[str, Any]) -> list[str]:
    lines = textwrap.wrap(
        f"calibrated by {found['run']} ({found['model']} on {found['device']}): measured over ideal by phase, kind of "
        "module and roof, and its gaps, applied to this model's traced ops",
        _WIDTH,
    )
    for phase, words in (("prefill", "prefill"), ("decode", "decode step")):
        p = found[phase]
        lines.append(
            f"  {words:<12} {seconds(p['wall_ms'] / 1e3):>9}  ({seconds(p['low_ms'] / 1e3, 3)} - "
            f"{seconds(p['high_ms'] / 1e3, 3)}, expected error {100 * p['error_share']:.0f} %); kernels "
            f"{seconds(p['kernels_ms'] / 1e3, 3)}, gaps {seconds(p['gaps_ms'] / 1e3, 3)}, ideal "
            f"{seconds(p['ideal_ms'] / 1e3, 3)}"
        )
        if p["unknown_share"] > 0.01:
            lines.append(f"    {100 * p['unknown_share']:.0f} % of it is of kinds that the run did not have")
        if p["outside_share"] > 0.01:
            lines.append(
                f"    {100 * p['outside_share']:.0f} % of it is in ops less than half or more than twice the size of "
                "the run's: the error does not cover that"
            )
    if found["differs"]:
        words = f"the run was made with {', '.join(found['differs'])}"
        if any(d.startswith("batch") for d in found["differs"]):
            words += ": products of another number of rows may run other kernels, which the error does not cover"
        lines += textwrap.wrap(words, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return lines


def _points(record: dict[str, Any]) -> list[tuple[str, str, float]]:
    return [("P", "prefill", record["prefill"]["intensity"]), ("D", "decode", record["decode"]["intensity"])]
