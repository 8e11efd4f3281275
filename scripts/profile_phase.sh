# Sourced by profile_prefill.sh and profile_decode.sh: runs `kernelroof profile` under Nsight.
#   run_phase PROMPT OUTPUT [MODEL] [options of kernelroof profile], among them --dry-run
# MODEL defaults to llama-3-8b. Options given by the caller come last and win.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

run_phase() {
  local prompt=$1 output=$2 model=llama-3-8b dry rest
  shift 2
  read_flags "$@"
  set -- ${rest[@]+"${rest[@]}"}
  if [ $# -gt 0 ] && [[ $1 != -* ]]; then model=$1; shift; fi
  local command=("${KERNELROOF:-$VENV/bin/kernelroof}" profile "$model" --backend nsight --prompt "$prompt" --output "$output" "$@")
  echo "This runs, in $PWD:"
  printf ' %q' "${command[@]}"; echo
  echo "which starts the driver once bare, once under nsys and once for each set of counters under ncu:"
  echo "  nsys profile --trace cuda,nvtx --capture-range cudaProfilerApi ... python -m kernelroof.profile.driver --spec RUN/spec.json --mode ranges"
  echo "  ncu --profile-from-start off --nvtx --metrics ... python -m kernelroof.profile.driver --spec RUN/spec.json --count-plan RUN/count-plan-1.json"
  if [ -n "$dry" ]; then return 0; fi
  [ -n "${KERNELROOF:-}" ] || install_kernelroof ""
  exec "${command[@]}"
}
