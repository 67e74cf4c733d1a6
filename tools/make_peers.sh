#!/usr/bin/env bash
# Makes build/peers: a virtual environment of Debian's Python with the peers from PyPI, in the versions of
# bench/peers/requirements.txt. It is quick if they are there already. tools/install_packages.sh --peers runs it.
# PyTorch has to be a build for CPUs. A build with CUDA is refused before it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/peers requirements=bench/peers/requirements.txt
made=$folder/requirements.txt # a copy, written when everything is installed

if [ -e "$made" ] && cmp -s "$requirements" "$made"; then exit 0; fi
"$folder/bin/python" -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear "$folder"
pip=("$folder/bin/python" -m pip --disable-pip-version-check)

# What pip would install: the packages of a build with CUDA need those of NVIDIA.
torch=$(grep '^torch==' "$requirements")
report=$(mktemp)
trap 'rm -f "$report"' EXIT
"${pip[@]}" install --quiet --dry-run --report "$report" "$torch"
if grep -qiE '"name": ?"(nvidia|cuda)[-_]' "$report"; then
  echo "make_peers.sh: pip would install $torch with CUDA. Let it find a build for CPUs: PyTorch's own index has them," >&2
  echo "  PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu tools/install_packages.sh --peers" >&2
  exit 1
fi
echo "Installing the packages of $requirements into $folder"
"${pip[@]}" install --quiet --requirement "$requirements"
# The report knows no build whose name alone says CUDA.
build=$("$folder/bin/python" -c 'import torch; print(torch.version.cuda or "")')
if [ -n "$build" ]; then
  echo "make_peers.sh: $folder has PyTorch with CUDA $build; remove $folder and use an index of builds for CPUs" >&2
  exit 1
fi
cp "$requirements" "$made"
