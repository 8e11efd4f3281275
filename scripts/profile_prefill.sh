#!/usr/bin/env bash
# Prefill under Nsight: a prompt of 4096 tokens and one decode step, on this machine's GPU; prints what it runs first.
#   scripts/profile_prefill.sh                            llama-3-8b
#   scripts/profile_prefill.sh --dry-run                  only print the commands
#   scripts/profile_prefill.sh qwen2.5-7b --prompt 8192 --ncu-set full
# Needs nsys, ncu and leave to read counters: `kernelroof doctor` tells. The options of
# `kernelroof profile --help` may follow the model.
source "$(dirname "${BASH_SOURCE[0]}")/profile_phase.sh"
run_phase 4096 1 "$@"
