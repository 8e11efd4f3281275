"""`kernelroof textbook`: figures that texts on inference quote, recomputed."""

from __future__ import annotations

import argparse
import textwrap

from kernelroof.models.textbook import GPUS, figures
from kernelroof.roofline.gpus import find_gpu, peak_for
from kernelroof.roofline.text_table import WIDTH, text_table
from kernelroof.roofline.units import fixed


def run(args: argparse.Namespace) -> int:
    """Print every figure with ours beside it, or a JSON array."""
    gpus = {key: find_gpu(key) for key in GPUS}
    found = figures({key: (peak_for(g, "float16"), g.byte_s, g.memory_bytes) for key, g in gpus.items()})
    if args.json:
        import json

        print(json.dumps([{**f._asdict(), "right": f.right} for f in found], indent=2))
        return 0
    for topic in dict.fromkeys(f.topic for f in found):
        rows = [f for f in found if f.topic == topic]
        table = [[f.what, f"{f.quoted:,g}", fixed(f.ours), "" if f.right else "WRONG"] for f in rows]
        print(text_table([topic, "quoted", "ours", ""], table, left=(0, 3)))
        notes: dict[str, list[str]] = {}
        for f in rows:
            if f.note and not f.right:
                notes.setdefault(f.note, []).append(f.what)
        for note, whats in notes.items():
            others = f" and {len(whats) - 1} more" if len(whats) > 1 else ""
            text = f"{whats[0]}{others}: {note}"
            print(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="    "))
        print(f"  by, for example: {rows[0].command}\n")
    wrong = sum(not f.right for f in found)
    print(f"{len(found)} figures, {wrong} of them wrong. GB = 10^9 B, FMA = 2 FLOP, dense peaks, ideal times.")
    return 0
