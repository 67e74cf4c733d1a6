#!/usr/bin/env bash
# Downloads Debian's arm64 packages with everything that they depend on, and unpacks them into build/arm64/sysroot. It
# installs nothing, because some packages (libhdf5-dev, libjemalloc-dev) cannot be installed for two architectures at
# once. It is quick if the same packages are there already.
#   tools/arm64_sysroot.sh PACKAGE...
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
  "" | -*) echo "arm64_sysroot.sh: name the packages to unpack; see --help" >&2; exit 2 ;;
esac

folder=$PWD/build/arm64
sysroot=$folder/sysroot
stamp=$folder/sysroot.packages
[ "$(cat "$stamp" 2>/dev/null)" = "$*" ] && exit 0

echo "Downloading and unpacking arm64 packages into $sysroot"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
# An empty list of installed packages makes apt resolve every dependency, down to libc6.
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root
  -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache" -o Dir::State::status=/dev/null)
"${apt[@]}" update
"${apt[@]}" --yes --no-install-recommends --download-only install "$@" >/dev/null

rm -rf "$sysroot" "$stamp"
mkdir -p "$sysroot"
for package in "$folder"/apt/cache/archives/*.deb; do
  dpkg-deb --extract "$package" "$sysroot"
done
# Absolute links would lead to files of the host.
find "$sysroot" -type l -lname '/*' | while read -r link; do
  ln -sfn --relative "$sysroot$(readlink "$link")" "$link"
done
rm -rf "$folder/apt"
echo "$*" >"$stamp"
