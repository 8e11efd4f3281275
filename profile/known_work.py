"""Work of known size for checking counters: one matrix product and one copy, each in an NVTX range.

Run under ncu with --profile-from-start off:  python -m kernelroof.profile.known_work
"""

from __future__ import annotations

SIZE = 4096
"""Rows and columns of the square bf16 matrices."""
COPY_BYTES = 1 << 30
"""Read once and written once, far beyond any cache."""
FLOPS = 2 * SIZE**3
PRODUCT, COPY = "known_product", "known_copy"


def main(device: str = "cuda") -> int:
    """Run both once unrecorded, then once with the profilers' capture open."""
    import nvtx
    import torch

    a = torch.randn(SIZE, SIZE, device=device, dtype=torch.bfloat16)
    b = torch.randn(SIZE, SIZE, device=device, dtype=torch.bfloat16)
    source = torch.zeros(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    for recorded in (False, True):
        if recorded:
            torch.cuda.synchronize(device)
            torch.cuda.profiler.start()
        with nvtx.annotate(PRODUCT):
            a @ b
        with nvtx.annotate(COPY):
            # A kernel, unlike copy_ of a whole tensor, which may be a memory copy that ncu does not see.
            torch.add(source, 1.0, out=target)
        torch.cuda.synchronize(device)
    torch.cuda.profiler.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
