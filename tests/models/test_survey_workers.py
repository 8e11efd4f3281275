"""Workers that hang or die are rows; the table says what the rows do."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable

import pytest
from kernelroof.models.architectures import workers
from kernelroof.models.architectures.catalog import Architecture
from kernelroof.models.architectures.survey import Row, failed
from kernelroof.models.architectures.table import csv_text, markdown, totals

ONE = Architecture("one", "OneForCausalLM", 2024)


def running(work: Callable[[], None]) -> workers._Running:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work)
    process.start()
    theirs.close()
    return workers._Running(ONE, process, ours, time.monotonic())


def finished(one: workers._Running, timeout_s: float) -> Row:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        row = workers._finished(one, timeout_s)
        if row is not None:
            return row
        time.sleep(0.02)
    raise AssertionError("no row")


def test_a_crash_is_a_row() -> None:
    row = finished(running(lambda: os._exit(7)), 10)
    assert not row.traced
    assert "status 7" in row.why_not_traced


def test_a_hang_is_a_row() -> None:
    one = running(lambda: time.sleep(60))
    row = finished(one, 0.2)
    assert "not traced within" in row.why_not_traced
    assert not one.process.is_alive()


def test_rows_of_processes_come_in_the_order_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_context", lambda: multiprocessing.get_context("fork"))
    monkeypatch.setattr(workers, "survey", lambda a: failed(a, "said", 0.0))
    wanted = [Architecture(name, "X", None) for name in ("a", "b", "c")]
    told: list[str] = []
    rows = workers.survey_all(wanted, jobs=2, done=lambda row: told.append(row.model_type))
    assert [row.model_type for row in rows] == ["a", "b", "c"]
    assert sorted(told) == ["a", "b", "c"]


def test_the_table_marks_what_differs_and_adds_up() -> None:
    same = Row("a", "A", 2022, True, "", True, "", ((1, 1),) * 5, 0, "", "", 1.0)
    other = Row("b", "B", 2024, True, "", True, "", ((1, 1), (2, 3), (1, 1), (1, 1), (1, 1)), 0, "why | so", "", 1.0)
    none = failed(Architecture("c", "C", 2025), "its process ended", 2.0)
    text = markdown([same, other, none], versions="v", command="kernelroof architectures", date="2026-01-01")
    assert "| `b` | B | 2024 | yes | yes | = | ≠ | = | = | = | why \\| so |" in text
    assert "| `c` | C | 2025 | no | no |  |  |  |  |  | its process ended |" in text
    assert "traced: 2 of 3; since 2023: 1 of 2" in text
    assert "all 5 figures equal: 1" in "\n".join(totals([same, other, none]))
    lines = csv_text([same, other, none]).splitlines()
    assert len(lines) == 4
    assert "2/3" in lines[2]
