#!/usr/bin/env bash
# Installs what the tests need into .venv, then lint, formatting, types and all tests.
# Two test files at a time (JOBS=N: N). Arguments go to pytest: scripts/test.sh tests/models -k spec
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install_kernelroof "[dev]"
PATH=$(cd "$VENV/bin" && pwd):$PATH
scripts/check.sh
exec pytest -n "${JOBS:-2}" --dist loadfile "$@"
