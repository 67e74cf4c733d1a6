#!/usr/bin/env bash
# Makes build/peers: a virtual environment of Debian's Python with the peers from PyPI, in the versions of
# bench/peers/requirements.txt. It is quick if they are there already. tools/install_packages.sh --peers runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/peers requirements=bench/peers/requirements.txt
made=$folder/requirements.txt # a copy, written when everything is installed

if [ -e "$made" ] && cmp -s "$requirements" "$made"; then exit 0; fi
"$folder/bin/python" -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear "$folder"
tools/install_with_torch.sh "$folder" "$requirements"
cp "$requirements" "$made"
