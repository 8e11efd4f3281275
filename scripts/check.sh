#!/usr/bin/env bash
# Lint, formatting and types over the whole package. Run inside the environment (make test does).
set -euo pipefail
cd "$(dirname "$0")/.."
ruff check .
ruff format --check .
# mypy does not see through an editable install's import hook, so it gets a tree of links to read.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/kernelroof"
for room in models parsers roofline profile; do ln -s "$PWD/$room" "$tree/kernelroof/$room"; done
MYPYPATH=$tree mypy -p kernelroof.models -p kernelroof.parsers -p kernelroof.roofline -p kernelroof.profile
