#!/usr/bin/env bash
# Builds the fuzz targets with Clang, and runs each for some time. Crashes are kept in build/fuzz/crashes.
#   tools/fuzz.sh [SECONDS] [TARGET...]   60 seconds each by default; targets: nifti zarr slices net data safetensors nest tiff hdf5
# Seeds come from $CONVOLUME_DATA_DIR/formats, from nets/zoo, and from what convolume writes (build/native or build/release).
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then
  seconds=$1
  shift
fi
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(nifti zarr slices net data safetensors nest tiff hdf5)

tools/install_packages.sh --clang
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}" | tail -n 1

seeds=build/fuzz/seeds crashes=build/fuzz/crashes
mkdir -p "$crashes"
for target in "${targets[@]}"; do mkdir -p "$seeds/$target" "build/fuzz/corpus/$target"; done
convolume=build/native/tools/convolume
[ -x "$convolume" ] || convolume=build/release/tools/convolume
python3 tests/fuzz/seeds.py "$seeds" "${CONVOLUME_DATA_DIR:-}" "$convolume"

failed=0
for target in "${targets[@]}"; do
  # HDF5 1.10 itself leaks when it refuses a damaged file (docs/testing.md).
  leaks=1
  [ "$target" = hdf5 ] && leaks=0
  # A single allocation may have 64 MiB and twice the file, which has at most 1 MiB.
  if ASAN_OPTIONS="detect_leaks=$leaks ${ASAN_OPTIONS:-}" build/fuzz/tests/fuzz/fuzz_"$target" -max_total_time="$seconds" -max_len=1048576 -timeout=20 -malloc_limit_mb=66 \
    -rss_limit_mb=2048 -detect_leaks="$leaks" -artifact_prefix="$crashes/$target-" -print_final_stats=1 "build/fuzz/corpus/$target" \
    "$seeds/$target" >"build/fuzz/$target.log" 2>&1; then
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$target.log") inputs, no crash"
  else
    failed=1
    echo "$target: FAILED, see build/fuzz/$target.log and $crashes"
    grep -E 'ERROR|SUMMARY|runtime error' "build/fuzz/$target.log" | head -n 5 || true
  fi
done
exit "$failed"
