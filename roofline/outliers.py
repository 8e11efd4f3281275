"""Kernel roles whose time is that of a few launches, or of one recording: nothing that another kernel would mend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from kernelroof.roofline.place import numbers
from kernelroof.roofline.spread import KERNEL
from kernelroof.roofline.summary import with_roles
from kernelroof.roofline.units import counted, seconds

_TIMES = 2.0
"""So many times what its median launch, or its median step, would make of it, a role's time is not its usual one."""
_FEW = 0.25
"""Up to this part of all launches is few."""


def outliers(kernels: pd.DataFrame, rows: pd.DataFrame, steps: int) -> list[str | None]:
    """`outlier` of each row of a phase's kernel table; `rows` are those of kernels.csv of the phase."""
    named = with_roles(rows)
    named = named.assign(**{n: named[n].astype("string") for n in KERNEL})
    groups = dict(iter(named.groupby(list(KERNEL), sort=False, dropna=False)))
    return [
        outlier(row, groups[key], steps) if (key := tuple(str(row[n]) for n in KERNEL)) in groups else None
        for row in kernels.to_dict("records")
    ]


def outlier(row: Mapping[Any, Any], launches: pd.DataFrame, steps: int) -> str | None:
    """What took most of a role's time where its usual launch or step did not; else None.

    Args:
        row: of `summary.kernel_table`, with the columns of `kernelroof.roofline.spread`.
        launches: the role's rows of kernels.csv.
        steps: forwards of the phase.
    """
    single = launches[launches["time_ns"].notna()]
    time_ns = numbers(single["time_ns"])
    total = float((time_ns * numbers(single["count"])).sum())
    if len(time_ns) > 1 and (single["count"] == 1).all() and total > _TIMES * float(np.median(time_ns)) * len(time_ns):
        order = np.argsort(-time_ns, kind="stable")
        most = int(np.searchsorted(np.cumsum(time_ns[order]), total / 2)) + 1
        if most <= max(1, _FEW * len(time_ns)):
            longest = single.iloc[int(order[0])]
            step = "" if pd.isna(longest["step"]) else f", step {int(longest['step'])}"
            return (
                f"{most} of its {counted(len(time_ns), 'launch')} took most of its time: the longest "
                f"{seconds(float(time_ns.max()) / 1e9, 3)} ({longest['module']}{step}), the median "
                f"{seconds(float(np.median(time_ns)) / 1e9, 3)}; see whether they do so in every run before anything "
                "is changed"
            )
    usual = row.get("step_median_ns")
    several = pd.notna(row.get("recordings")) and int(row["recordings"]) > 1
    if several and pd.notna(usual) and total > _TIMES * float(usual) * steps:
        each = " a step" if steps > 1 else ""
        return (
            f"it took {seconds(total / steps / 1e9, 3)}{each} in the recording shown, and {seconds(usual / 1e9, 3)} "
            f"in the median of {int(row['recordings'])} recordings: run again before anything is changed"
        )
    return None
