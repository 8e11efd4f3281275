"""What a GPU can send to its neighbours and get from its host: NVLink and PCIe rates by product.

Vendors print both directions together; these are one direction, in B/s. NVLink totals are those of the
products' own sheets: V100 300 GB/s, A100 600, H100, H200, H20 and GH200 900, H800 400, H100 NVL 600,
Blackwell 1800, bridges of A30 200, of A40, A6000, RTX 3090 and 3090 Ti 112.5. What has none uses PCIe x16 of its
generation at its coded rate (3.0: 15.75 GB/s, 4.0: 31.5 GB/s, 5.0: 63.0 GB/s). Grace superchips (GH200, GB200)
reach their CPU's memory by NVLink-C2C: 900 GB/s both directions together.
"""

from __future__ import annotations

from typing import NamedTuple

PCIE = {3: 15.75e9, 4: 31.5e9, 5: 63.0e9}
"""PCIe generation to B/s of 16 lanes, one direction."""

_NVLINK = {
    "v100-sxm2-16gb": 150e9,
    "v100-sxm2-32gb": 150e9,
    "a100-40gb": 300e9,
    "a100-80gb": 300e9,
    "a100-40gb-pcie": 300e9,
    "a100-80gb-pcie": 300e9,
    "a30": 100e9,
    "a40": 56.25e9,
    "rtx-a6000": 56.25e9,
    "rtx-3090": 56.25e9,
    "rtx-3090-ti": 56.25e9,
    "h100-sxm": 450e9,
    "h100-pcie": 300e9,
    "h100-nvl": 300e9,
    "h200": 450e9,
    "h200-nvl": 450e9,
    "gh200-96gb": 450e9,
    "gh200-144gb": 450e9,
    "h20": 450e9,
    "h800": 200e9,
    "b200": 900e9,
    "gb200": 900e9,
    "b300": 900e9,
}


_C2C = {"gh200-96gb": 450e9, "gh200-144gb": 450e9, "gb200": 450e9}
"""Links to the host other than PCIe, one direction; a GB200's is shared by its two GPUs."""

_NARROW = {"rtx-4060-ti-8gb": 8, "rtx-4060-ti-16gb": 8}
"""Lanes of products with fewer than 16."""


class Link(NamedTuple):
    """One direction, B/s."""

    byte_s: float
    kind: str


def host_link(key: str, cc: str) -> Link:
    """The link to the host: PCIe by compute capability (3.0 up to 7.5, 4.0 up to 8.9, 5.0 from 9.0), or what it has."""
    if key in _C2C:
        return Link(_C2C[key], "NVLink-C2C")
    major = int(cc.split(".")[0])
    generation = 3 if major < 8 else 4 if major < 9 else 5
    lanes = _NARROW.get(key, 16)
    return Link(PCIE[generation] * lanes / 16, f"PCIe {generation}.0 x{lanes}")


def peer_link(key: str, cc: str) -> Link:
    """The link to other GPUs of the same machine: NVLink where the product has it, else the host link.

    The bridged PCIe cards (A100, A30, A40, A6000, RTX 3090, H100 PCIe and NVL) reach it between the bridged ones only.
    """
    rate = _NVLINK.get(key)
    return host_link(key, cc) if rate is None else Link(rate, "NVLink")
