# Sourced by run.sh and test.sh: makes .venv and installs kernelroof into it, once per change of what
# is installed. Needs Python 3.10 or newer with venv; set PYTHON to choose one, VENV to put it elsewhere.
set -euo pipefail
SCRIPT=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV=${VENV:-.venv}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python python3.13 python3.12 python3.11 python3.10}; do
    if new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  echo "No Python 3.10 or newer found; set PYTHON to one." >&2
  return 1
}

# install_kernelroof EXTRAS: editable, with the extras given ("" or "[dev]").
install_kernelroof() {
  local python stamp
  if [ ! -x "$VENV/bin/python" ]; then
    python=$(find_python)
    echo "Making $VENV with $python" >&2
    "$python" -m venv "$VENV"
  fi
  stamp=$VENV/.installed$1-$(cat pyproject.toml scripts/constraints.txt | cksum | tr ' ' -)
  if [ ! -e "$stamp" ]; then
    echo "Installing kernelroof$1 into $VENV (a few minutes the first time)" >&2
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c scripts/constraints.txt -e ".$1"
    touch "$stamp"
  fi
}

# read_flags ARGUMENTS: takes --dry-run out, wherever it stands, into `dry`; the rest is in `rest`. --help or -h
# before a -- prints the head of the calling script and ends it: to ask how it is used installs and starts nothing.
read_flags() {
  local argument
  dry="" rest=()
  while [ $# -gt 0 ]; do
    argument=$1
    shift
    case $argument in
      --dry-run) dry=yes ;;
      --help | -h) sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$SCRIPT"; exit 0 ;;
      --) rest+=(-- "$@"); break ;;
      *) rest+=("$argument") ;;
    esac
  done
}
