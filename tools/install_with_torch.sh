#!/usr/bin/env bash
# Installs the packages of a file of requirements that has PyTorch into a virtual environment.
#   tools/install_with_torch.sh ENVIRONMENT REQUIREMENTS
# PyTorch has to be a build for CPUs. A build with CUDA is refused before it is installed.
set -euo pipefail
folder=$1 requirements=$2
pip=("$folder/bin/python" -m pip --disable-pip-version-check)

# What pip would install: the packages of a build with CUDA need those of NVIDIA.
torch=$(grep '^torch==' "$requirements")
report=$(mktemp)
trap 'rm -f "$report"' EXIT
"${pip[@]}" install --quiet --dry-run --report "$report" "$torch"
if grep -qiE '"name": ?"(nvidia|cuda)[-_]' "$report"; then
  echo "install_with_torch.sh: pip would install $torch with CUDA. Let it find a build for CPUs: PyTorch's own index has" >&2
  echo "  them, PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu before the command" >&2
  exit 1
fi
echo "Installing the packages of $requirements into $folder"
"${pip[@]}" install --quiet --requirement "$requirements"
# The report knows no build whose name alone says CUDA.
build=$("$folder/bin/python" -c 'import torch; print(torch.version.cuda or "")')
if [ -n "$build" ]; then
  echo "install_with_torch.sh: $folder has PyTorch with CUDA $build; remove $folder and use an index of builds for CPUs" >&2
  exit 1
fi
