#!/usr/bin/env bash
# Goes from a fresh clone on Debian 12 to a trained net: installs packages, builds, trains a small 3D net on a built-in
# synthetic EM volume for about a minute, segments the held-out part, and prints the scores and where the results are.
#   tools/demo.sh [OUT]        OUT defaults to runs/demo and is replaced
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) echo "demo.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
esac
out=${1:-runs/demo}

tools/install_packages.sh
cmake --preset native >build-native.log 2>&1 || { cat build-native.log; exit 1; }
rm -f build-native.log
cmake --build --preset native --target convolume_cli
convolume=build/native/tools/convolume

if [ -e "$out" ] && [ ! -d "$out/checkpoints" ]; then
  echo "demo.sh: '$out' exists and is no run of ours; name another folder" >&2
  exit 1
fi
rm -rf "$out"
"$convolume" train nets/zoo/demo.toml --data nets/zoo/data/synthetic.toml --out "$out" --max-minutes 1

echo
echo "The held-out part, from files:"
"$convolume" export nets/zoo/data/synthetic.toml --split validation --image "$out/image.tif" --label "$out/label.tif"
"$convolume" infer "$out/checkpoints/last.safetensors" "$out/image.tif" --out "$out/probabilities.tif"
"$convolume" eval "$out/probabilities.tif" "$out/label.tif"
