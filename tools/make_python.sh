#!/usr/bin/env bash
# Makes build/python-env: a virtual environment of python3 with what builds and tests the Python package, in the versions
# of python/requirements-test.txt. It is quick if they are there already. tools/test.sh --python runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/python-env requirements=python/requirements-test.txt
made=$folder/requirements-test.txt # a copy, written when everything is installed

if [ -e "$made" ] && cmp -s "$requirements" "$made"; then exit 0; fi
python=${PYTHON:-python3}
if ! "$python" -c 'import sysconfig, os; os.stat(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' 2>/dev/null; then
  tools/install_packages.sh --python
fi
"$folder/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$folder"
echo "Installing the packages of $requirements into $folder"
"$folder/bin/python" -m pip --disable-pip-version-check install --quiet --requirement "$requirements"
cp "$requirements" "$made"
