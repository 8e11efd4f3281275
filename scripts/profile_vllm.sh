#!/usr/bin/env bash
# A vLLM model under Nsight, as another program by its own ranges; prints what it runs first.
#   scripts/profile_vllm.sh [--dry-run] [MODEL [options of vllm bench latency]]
#   scripts/profile_vllm.sh --dry-run meta-llama/Meta-Llama-3-8B --input-len 1024 --output-len 32
# What vLLM needs, all set here unless you set it:
# - Its engine runs in a child process, which a profiler of the parent does not see by default. ncu follows
#   children (--target-processes all); for nsys the engine stays in this process with
#   VLLM_ENABLE_V1_MULTIPROCESSING=0, and workers, if there are several, are spawned, not forked:
#   VLLM_WORKER_MULTIPROC_METHOD=spawn.
# - CUDA graphs replay many kernels in one launch: nsys records them node by node (--cuda-graph-trace=node), but
#   ranges and counters by kernel need eager mode: --enforce-eager. EAGER=no keeps the graphs (times only).
# - Ranges around its modules: VLLM_NVTX_SCOPES_FOR_PROFILING=1 and, where your vLLM has the option,
#   --enable-layerwise-nvtx-tracing.
# ESTIMATE=llama-3-8b names a preset that supplies the estimate.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
read_flags "$@"
set -- ${rest[@]+"${rest[@]}"}
model=${1:-meta-llama/Meta-Llama-3-8B}
[ $# -eq 0 ] || shift
eager=(--enforce-eager)
counters=(ncu)
if [ "${EAGER:-yes}" = no ]; then eager=(); counters=(traced); fi
export VLLM_ENABLE_V1_MULTIPROCESSING=${VLLM_ENABLE_V1_MULTIPROCESSING:-0}
export VLLM_WORKER_MULTIPROC_METHOD=${VLLM_WORKER_MULTIPROC_METHOD:-spawn}
export VLLM_NVTX_SCOPES_FOR_PROFILING=${VLLM_NVTX_SCOPES_FOR_PROFILING:-1}
command=("${KERNELROOF:-$VENV/bin/kernelroof}" profile --backend nsight --counters "${counters[@]}")
[ -z "${ESTIMATE:-}" ] || command+=("$ESTIMATE")
command+=(-- vllm bench latency --model "$model" --num-iters-warmup 1 --num-iters 1 --batch-size 1 "${eager[@]}" "$@")
echo "This runs, in $PWD:"
echo " VLLM_ENABLE_V1_MULTIPROCESSING=$VLLM_ENABLE_V1_MULTIPROCESSING VLLM_WORKER_MULTIPROC_METHOD=$VLLM_WORKER_MULTIPROC_METHOD VLLM_NVTX_SCOPES_FOR_PROFILING=$VLLM_NVTX_SCOPES_FOR_PROFILING \\"
printf ' %q' "${command[@]}"; echo
echo "which starts the program once under nsys and once for each set of counters under ncu."
if [ -n "$dry" ]; then exit 0; fi
[ -n "${KERNELROOF:-}" ] || install_kernelroof ""
exec "${command[@]}"
