#!/usr/bin/env bash
# Installs the Debian packages for building and testing. It is quick if they are installed already.
#   tools/install_packages.sh [--long] [--peers] [--lint] [--clang] [--arm64] [--package] [--python]
# --arm64 installs a cross compiler and QEMU, and unpacks the arm64 libraries below build/arm64.
# --peers also makes build/peers, a virtual environment with the pinned versions of bench/peers/requirements.txt. PyTorch
# has to be a build for CPUs.
set -euo pipefail

libraries=(libhwy-dev libhwloc-dev libfftw3-dev libtbb-dev libjemalloc-dev libtiff-dev libhdf5-dev zlib1g-dev libzstd-dev libblosc-dev
  libnifti2-dev libpng-dev libpugixml-dev liblzf-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libcli11-dev libxxhash-dev libjs-chart.js catch2)
packages=(g++ cmake ninja-build ccache pkg-config "${libraries[@]}" libbenchmark-dev relacy-dev python3)
arm64=0 peers=0
for option in "$@"; do
  case "$option" in
    --long) packages+=(valgrind qemu-user-static python3-numpy python3-scipy python3-pytest python3-hypothesis) ;;
    --peers) peers=1 packages+=(python3-venv libdnnl-dev libmimalloc-dev libisl-dev libopenblas0-pthread libatlas3-base) ;;
    --lint) packages+=(clang-format) ;;
    --clang) packages+=(clang libclang-rt-dev) ;;
    --python) packages+=(python3-venv python3-dev) ;;
    --package) packages+=(dpkg-dev fakeroot file lintian) ;;
    --arm64) arm64=1 packages+=(g++-aarch64-linux-gnu qemu-user-static) ;;
    *) echo "install_packages.sh: unknown option '$option'; use --long, --peers, --lint, --clang, --package, --python or --arm64" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "Installing: ${missing[*]}"
  sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  export DEBIAN_FRONTEND=noninteractive
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
[ "$arm64" = 0 ] || "$(dirname "$0")/arm64_sysroot.sh" libc6-dev "${libraries[@]}"
[ "$peers" = 0 ] || "$(dirname "$0")/make_peers.sh"
