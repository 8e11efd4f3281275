"""Which pass a launch belongs to, where one recording holds several: the same phase and step come again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from kernelroof.parsers.kineto import Kineto
    from kernelroof.parsers.nsys_sqlite import Nsys


def nsys_rounds(nsys: Nsys) -> pd.Series[int]:
    """For each row of `nsys.launches` how often its phase and step had come before in its process, from 0.

    Null where the launch is in no step.
    """
    work = nsys.work[nsys.work["kind"] == "kernel"]
    around = work["step_range"].fillna(work["phase_range"])
    known = work.assign(around=around, step=forward_of(work))
    known = known[known["step"].notna() & around.notna()]
    keys = ["process", "phase", "step"]
    ranges = known[[*keys, "around"]].drop_duplicates()
    starts = nsys.ranges["start_ns"].to_numpy()[ranges["around"].to_numpy(np.int64)]
    ranges = ranges.assign(start_ns=starts).sort_values("start_ns", kind="stable")
    numbers = dict(zip(ranges["around"], ranges.groupby(keys, dropna=False).cumcount(), strict=True))
    by_event = dict(zip(known["event"], known["around"].map(numbers), strict=True))
    found: pd.Series[int] = nsys.launches["event"].map(by_event).astype("Int64")
    return found


def forward_of(launches: pd.DataFrame) -> pd.Series[int]:
    """The step of each launch: 0 in a prefill, with a range of its own around it or without; null where not known."""
    one = (launches["phase"] == "prefill").fillna(False)
    step: pd.Series[int] = launches["step"].mask(one & launches["step"].isna(), 0)
    return step


def kineto_rounds(kineto: Kineto, launches: pd.DataFrame) -> pd.Series[int]:
    """The same for the `launches` of a Kineto trace, by the time of the launching call."""
    at = launches["launch_ns"].fillna(launches["start_ns"]).to_numpy(np.int64)
    out: pd.Series[int] = pd.Series(pd.NA, launches.index, dtype="Int64")
    ranges = kineto.ranges
    named = launches.assign(step=forward_of(launches))
    for (phase, step), rows in named[named["step"].notna()].groupby(["phase", "step"], sort=False):
        own = ranges[(ranges["phase"] == phase) & (ranges["step"].fillna(0) == step)]
        level = "step" if (own["level"] == "step").any() else "phase"
        starts = np.sort(own.loc[own["level"] == level, "start_ns"].to_numpy(np.int64))
        number = np.searchsorted(starts, at[launches.index.get_indexer(rows.index)], side="right") - 1
        out.loc[rows.index] = np.maximum(number, 0)
    return out
