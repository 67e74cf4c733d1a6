#!/usr/bin/env bash
# Makes build/python-env: a virtual environment of python3 with what builds and tests the Python package, in the versions
# of python/requirements-test.txt. It is quick if they are there already. tools/test.sh --python runs it.
#   tools/make_python.sh [--torch]
# With --torch it also has PyTorch, in the version of python/requirements-torch.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/python-env

# Tells whether the packages of a file are installed: a copy of it is written when they are.
has() { cmp -s "$1" "$folder/$(basename "$1")"; }

requirements=python/requirements-test.txt
if ! has "$requirements"; then
  python=${PYTHON:-python3}
  if ! "$python" -c 'import sysconfig, os; os.stat(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' 2>/dev/null; then
    tools/install_packages.sh --python
  fi
  "$folder/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$folder"
  echo "Installing the packages of $requirements into $folder"
  "$folder/bin/python" -m pip --disable-pip-version-check install --quiet --requirement "$requirements"
  cp "$requirements" "$folder"
fi
requirements=python/requirements-torch.txt
if [ "${1:-}" = --torch ] && ! has "$requirements"; then
  tools/install_with_torch.sh "$folder" "$requirements"
  cp "$requirements" "$folder"
fi
