#!/usr/bin/env bash
# Installs kernelroof into .venv and runs the main job: `kernelroof profile tiny-llama`, or, with
# arguments, `kernelroof ARGUMENTS`. Examples:
#   scripts/run.sh
#   scripts/run.sh profile tiny-qwen --batch 4
#   scripts/run.sh estimate llama-3-8b --gpu a100-80gb
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_kernelroof ""
if [ $# -eq 0 ]; then set -- profile tiny-llama; fi
exec "$VENV/bin/kernelroof" "$@"
