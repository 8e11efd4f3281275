"""Somebody who waits sees for what; a quick command says nothing."""

import time

import pytest
from kernelroof.profile.progress import progress


def test_quick_work_is_silent(capsys):
    with progress("reading", after_s=60):
        pass
    assert capsys.readouterr().err == ""


def test_long_work_is_said_with_its_time(capsys):
    with progress("reading x.csv", after_s=0.01):
        time.sleep(0.3)
    assert capsys.readouterr().err.startswith("reading x.csv ... 0.")


def test_a_failure_ends_its_line(capsys):
    with pytest.raises(ValueError, match="no"), progress("reading", after_s=0.01):
        time.sleep(0.3)
        raise ValueError("no")
    assert capsys.readouterr().err == "reading ...\n"
