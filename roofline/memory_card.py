"""The answers of `kernelroof memory` as plain text, section by section."""

from __future__ import annotations

from typing import Any

from kernelroof.roofline.text_table import text_table
from kernelroof.roofline.units import fixed, quantity, seconds


def memory_card(record: dict[str, Any]) -> str:
    """Render the sections that a record has; see `kernelroof.profile.memory_command`."""
    return "\n\n".join(_SECTIONS[name](record) for name in _SECTIONS if record.get(name))


def _use_text(record: dict[str, Any]) -> str:
    use = record["use"]
    lines = [
        f"{use['model']}: batch {use['batch']}, {use['tokens']:,} tokens per sequence",
        f"  weights      {quantity(use['weight_bytes'], 'B'):>12}",
        f"  KV cache     {quantity(use['kv_bytes'], 'B'):>12}",
        f"  activations  {quantity(use['peak_activation_bytes'], 'B'):>12}   peak, in prefill",
        f"  total        {quantity(use['total_bytes'], 'B'):>12}   with {100 * use['overhead_share']:g} % overhead "
        "(allocator, context, buffers)",
    ]
    if "device" in use:
        lines[-1] += f": {'fits' if use['fits'] else 'does NOT fit'} {quantity(use['memory_bytes'], 'B')}"
        lines.append(f"on {use['device']}: largest batch {use['largest_batch']:,} at {use['tokens']:,} tokens;")
        limit = ", all the model's positions" if use["largest_context"] == use["max_positions"] else ""
        lines.append(f"  largest context {use['largest_context']:,} tokens at batch {use['batch']}{limit}")
    return "\n".join(lines)


def _cache_text(record: dict[str, Any]) -> str:
    cache = record["cache"]
    turn = cache["outgrows_weights_at_tokens"]
    lines = [f"KV cache: {cache['kv_bytes_per_token']:,} B per token"]
    if cache["state_bytes_per_sequence"]:
        lines.append(f"  recurrent state: {quantity(cache['state_bytes_per_sequence'], 'B')} per sequence, fixed")
    where = "never" if turn is None else f"from {turn:,} tokens per sequence"
    positions = cache["max_positions"]
    beyond = turn is not None and positions is not None and turn > positions
    lines.append(
        f"  outgrows the weights {where} at batch {cache['batch']}"
        + (f", beyond the model's {positions:,} positions" if beyond else "")
    )
    if positions is None:
        lines.append("  the model names no limit of positions to reserve for; in blocks (paged):")
    else:
        lines.append(
            f"  reserved for all {positions:,} positions, {100 * cache['contiguous_waste_share']:.1f} % of it "
            "would stay empty; in blocks (paged):"
        )
    rows = [
        [f"{p['block_tokens']:,} tokens", f"{100 * p['waste_share']:.2f} %", quantity(p["waste_bytes"], "B")]
        for p in cache["paging"]
    ]
    return "\n".join(lines) + "\n" + _indent(text_table(["block", "empty on average", "bytes"], rows, left=(0,)))


def _splits_text(record: dict[str, Any]) -> str:
    found = record["splits"]
    header = ["tp", "pp", "weights/GPU", "KV/GPU", "total/GPU", "fits", "sent/step", "comm", "decode step", "prefill"]
    header.append("tokens/s")
    rows = [
        [
            str(r["tp"]),
            str(r["pp"]),
            quantity(r["weight_bytes"], "B"),
            quantity(r["kv_bytes"], "B"),
            quantity(r["total_bytes"], "B"),
            "yes" if r["fits"] else "NO",
            quantity(r["sent_bytes_per_step"], "B", 3),
            seconds(r["step_comm_s"], 3),
            seconds(r["step_s"], 3),
            seconds(r["prefill_s"], 3),
            fixed(r["tokens_per_s"]),
        ]
        for r in found["rows"]
    ]
    link = found["link"]
    text = (
        f"split over GPUs ({found['device']}; {link['kind']}, {quantity(link['byte_s'], 'B/s')} each way)\n"
        + text_table(header, rows)
        + "\nideal times; communication as a ring sends it, nothing of it hidden, 8 us start per collective (assumed);"
        "\ntokens/s with enough batches in flight to fill all pipeline stages"
    )
    return "\n".join([text, *(f"not possible: {r}" for r in found["refused"])])


def _tiers_text(record: dict[str, Any]) -> str:
    found = record["tiers"]
    link = found["link"]
    rate = quantity(link["byte_s"], "B/s")
    lines = [f"outside the GPU (through {link['kind']}, {rate} each way; tiers are typical figures)"]
    if found["excess_bytes"]:
        size = quantity(found["excess_bytes"], "B")
        lines.append(f"  {size} do not fit; streamed where a forward reads them, hidden as far as it goes:")
        rows = [
            [
                r["tier"],
                quantity(r["stream_byte_s"], "B/s", 3),
                seconds(r["offload"]["stream_s"]),
                seconds(r["offload"]["step_s"]),
                f"{fixed(r['offload']['slowdown'], 3)} x",
            ]
            for r in found["rows"]
        ]
        header = ["weights from", "stream", "per step", "decode step", "slower"]
        lines.append(_indent(text_table(header, rows, left=(0,))))
        if found["excess_bytes"] > found["weight_bytes"]:
            lines.append("  more than the weights: the cache would have to go out too")
    first = found["rows"][0]["cold_cache"]
    lines.append(
        f"  a resting conversation of {found['tokens']:,} tokens, {quantity(first['cache_bytes'], 'B')} "
        f"(computing it again: {seconds(first['recompute_s'])}):"
    )
    rows = [
        [
            r["tier"],
            quantity(r["stream_byte_s"], "B/s", 3),
            seconds(r["cold_cache"]["fetch_s"]),
            f"{r['cold_cache']['steps_ahead']:,}",
            "fetch" if r["cold_cache"]["pays"] else "compute again",
        ]
        for r in found["rows"]
    ]
    header = ["KV kept in", "stream", "fetch", "steps ahead to hide it", "faster"]
    lines.append(_indent(text_table(header, rows, left=(0, 4))))
    return "\n".join(lines)


def _sizes_text(record: dict[str, Any]) -> str:
    rows = [[r["dtype"], f"{r['bytes_per_parameter']:g} B", fixed(r["parameters"] / 1e9, 3)] for r in record["sizes"]]
    memory, kept = quantity(record["memory_bytes"], "B"), quantity(record["reserve_bytes"], "B")
    return (
        f"{record['device'] or 'a GPU'} with {memory}, {kept} kept free: parameters whose weights fill the rest\n"
        + text_table(["format", "per parameter", "parameters, billions"], rows, left=(0,))
        + "\nformats without scales and zeros, every parameter in the same one"
    )


def _load_text(record: dict[str, Any]) -> str:
    rows = record["load"]
    fastest = rows[0]["load_s"]
    body = [
        [r["tier"], quantity(r["byte_s"], "B/s"), seconds(r["load_s"]), f"{r['load_s'] / fastest:,.0f} x"] for r in rows
    ]
    return f"reading {quantity(rows[0]['bytes'], 'B')} of 16-bit weights once\n" + text_table(
        ["from", "bandwidth", "time", "against the first"], body, left=(0,)
    )


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


_SECTIONS = {
    "use": _use_text,
    "cache": _cache_text,
    "splits": _splits_text,
    "tiers": _tiers_text,
    "sizes": _sizes_text,
    "load": _load_text,
}
