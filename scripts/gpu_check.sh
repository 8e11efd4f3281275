#!/usr/bin/env bash
# Everything that one GPU can prove, in one table, in under 8 minutes: what doctor sees, whether a matrix
# product and a copy of known size are counted right, a 4-layer Llama-3-8B shape under nsys (else torch) and
# ncu, the tensor counters level by level, representatives against every kernel, measured ceilings, traced
# and closed-form work against counted, DynamicCache against StaticCache. A missing piece is one line and
# no failure. Leaves runs/gpu-check/ and, below 10 MB, runs/gpu-check.tar.gz. Options: --help.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
[ -n "${KERNELROOF_PYTHON:-}" ] || install_kernelroof ""
exec "${KERNELROOF_PYTHON:-$VENV/bin/python}" -m kernelroof.profile.gpu_check "$@"
