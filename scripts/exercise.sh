#!/usr/bin/env bash
# Three configurations with the full report, and where the cache outgrows the weights.
# Needs no GPU and no weights; installs kernelroof into .venv if it is not there.
#
#   scripts/exercise.sh [--gpu NAME]     (default: a100-80gb)
set -euo pipefail
case "${1:-}" in
--gpu) gpu=${2:?--gpu needs a name, see: kernelroof gpus} ;;
"") gpu=a100-80gb ;;
*) sed -n '2,5s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
run=$(dirname "${BASH_SOURCE[0]}")/run.sh
load=(--prompt 1024 --output 256 --gpu "$gpu")
"$run" estimate llama-3-8b --batch 1 "${load[@]}"
echo
"$run" estimate llama-3-8b --batch 32 "${load[@]}"
echo
"$run" estimate qwen2.5-7b --batch 1 --weights-dtype int4 "${load[@]}"
for batch in 1 32; do
    echo
    echo "When does the cache outgrow the weights at batch $batch?"
    "$run" memory llama-3-8b --batch "$batch" --prompt 1024 --output 7168
done
