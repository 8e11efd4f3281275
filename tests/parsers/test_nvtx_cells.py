"""NVTX columns: one cell holds a stack."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.parsers.nvtx_cells import (
    DEFAULT_DOMAIN,
    CellRange,
    is_push_pop_header,
    is_start_end_header,
    parse_cell,
    range_path,
)

PUSH = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
START = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"


def test_headers():
    assert is_push_pop_header(PUSH)
    assert not is_push_pop_header(START)
    assert is_start_end_header(START)


@pytest.mark.parametrize(
    ("cell", "path"),
    [
        ('97844  "<default domain>:warmup:none:none:none:none:none:none" ', "warmup"),
        ('1  "<default domain>:run:none:none:RGB:0xff00ff00:ASCII:run"  '
         '"<default domain>:init:none:none:RGB:0xff:ASCII:init" ', "run/init"),
        ('1  "torch:aten::mm, op_id = 3:none:none:none:none:none:none" ', "aten::mm, op_id = 3"),
        ('1  "<default domain>:a:b:none:none:none:none:REGISTERED:a:b" ', "a:b"),
        ('1  "<default domain>:x:UINT64:7:none:none:none:none" ', "x"),
        ("", None),
        ("97844", None),
        ('"odd"', ""),
    ],
)  # fmt: skip
def test_paths(cell, path):
    assert range_path(cell) == path


def test_domains():
    assert parse_cell('1 "mine:x:none:none:none:none:none:none"') == (CellRange("mine", "x"),)


@given(
    st.lists(st.text(st.characters(blacklist_characters='"\r\n', blacklist_categories=["Cs"]), min_size=1), max_size=5)
)
def test_any_names(names):
    cell = "7 " + " ".join(f'"<default domain>:{n}:none:none:none:none:none:none" ' for n in names)
    assert [r.name for r in parse_cell(cell)] == names


@pytest.mark.parametrize(
    ("ranges", "path"),
    [
        ([("", "decode"), ("", "step0"), ("", "mlp"), ("NCCL", "ncclAllReduce")], "decode/step0/mlp"),
        ([("NCCL", "ncclAllReduce"), ("", "prefill"), ("", "lm_head")], "prefill/lm_head"),
        ([("", "serve"), ("NCCL", "ncclAllReduce")], "serve/ncclAllReduce"),
        ([("mine", "decode"), ("mine", "a")], "decode/a"),
    ],
)
def test_a_librarys_range_inside_a_phase_is_no_module(ranges, path):
    cell = "7 " + " ".join(f'"{domain or DEFAULT_DOMAIN}:{n}:none:none:none:none:none:none"' for domain, n in ranges)
    assert range_path(cell) == path
