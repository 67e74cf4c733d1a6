#!/usr/bin/env bash
# Builds Debian packages below build/package/packages: `convolume` (the command), `libconvolume0` (the library) and
# `libconvolume-dev` (headers). They have all SIMD targets and no FFTW. Debian's lintian then checks them.
#   tools/package.sh
# Debian 12: apt install ./build/package/packages/*.deb
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -gt 0 ]; then
  [ "$1" = -h ] || [ "$1" = --help ] || { echo "package.sh: unknown option '$1'; it takes none" >&2; exit 2; }
  sed -n '2,5s/^# \{0,1\}//p' "$0"
  exit 0
fi

tools/install_packages.sh --package
cmake --preset package
cmake --build --preset package
packages=build/package/packages
rm -rf "$packages"
umask 022
cpack --config build/package/CPackConfig.cmake -B "$packages"
rm -rf "$packages/_CPack_Packages"
lintian --fail-on error "$packages"/*.deb
ls -l "$packages"
