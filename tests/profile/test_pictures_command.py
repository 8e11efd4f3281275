"""`kernelroof pictures`: what is refused, and that it needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kernelroof.models.errors import UsageError
from kernelroof.profile.cli import main
from kernelroof.profile.picture_options import parse_formats
from kernelroof.profile.pictures import files_of, slug


def test_formats_are_read_in_order_each_once() -> None:
    assert parse_formats("svg, PDF,svg") == ("svg", "pdf")


@pytest.mark.parametrize("words", ["", "jpg", "png,,pdf"])
def test_unknown_formats_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match="--picture-formats has"):
        parse_formats(words)


def test_every_file_of_every_format_is_named() -> None:
    names = {"decode": {"roofline": "roofline_decode.svg", "kernels": {"mm": "kernels/decode_01_mm.svg"}}}
    assert files_of(names, ("svg", "pdf")) == [
        "roofline_decode.svg", "roofline_decode.pdf", "kernels/decode_01_mm.svg", "kernels/decode_01_mm.pdf",
    ]  # fmt: skip


def test_a_folder_without_a_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pictures", str(tmp_path), "--formats", "pdf"]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_drawing_loads_no_torch() -> None:
    code = "import sys, kernelroof.profile.pictures, kernelroof.profile.pictures_command; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_names_of_files_stay_short_however_long_a_kernels_is() -> None:
    long = "graph_1_cpp_fused_" + "scaled_dot_product_flash_attention_" * 9
    assert slug(long) == "graph_1_cpp_fused_" + "scaled_dot_product_flash_attention_" * 2 + "scaled_dot_p"
    assert slug("(sample) aten::argmax <a, b>") == "sample_aten_argmax_a_b"
