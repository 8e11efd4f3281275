#!/usr/bin/env bash
# Decode under Nsight: a prompt of 1024 tokens, then 32 steps, on this machine's GPU; prints what it runs first.
#   scripts/profile_decode.sh                             llama-3-8b
#   scripts/profile_decode.sh --dry-run                   only print the commands
#   scripts/profile_decode.sh qwen2.5-7b --output 64 --every-kernel
# Needs nsys, ncu and leave to read counters: `kernelroof doctor` tells. The options of
# `kernelroof profile --help` may follow the model.
source "$(dirname "${BASH_SOURCE[0]}")/profile_phase.sh"
run_phase 1024 32 "$@"
