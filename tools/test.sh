#!/usr/bin/env bash
# Installs what is missing, builds and tests.
#   tools/test.sh                release build (GCC) with kernels for this machine only, and all short tests
#   tools/test.sh --all-targets  the same with kernels for all SIMD targets
#   tools/test.sh --sanitizers   only ASan+UBSan and TSan builds (Clang), with the tests that matter there
#   tools/test.sh --long         everything: all targets, the tests labelled `long` (installs valgrind and QEMU),
#                                Python, both sanitizers with the tests of kernels under TSan, and a minute of each fuzz
#                                target
#   tools/test.sh --arm64        only the build for ARM64 and its tests under QEMU (installs a cross compiler, QEMU)
#   tools/test.sh --peers        also parity with PyTorch, nibabel and zarr (makes build/peers)
#   tools/test.sh --python       also builds the Python package and tests it (makes build/python-env)
#   tools/test.sh --torch        the same with PyTorch in that environment, and the tests of convolume.torch
# CI runs --all-targets --torch and --sanitizers. The last line counts: 'N passed, N failed, N skipped'.
# CONVOLUME_DATA_DIR names the folder with real volumes; tests that need it are skipped, and counted, without.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=native sanitizers=0 long=0 peers=0 arm64=0 python=0 torch=()
for option in "$@"; do
  case "$option" in
    --all-targets) preset=release ;;
    --sanitizers) sanitizers=1 ;;
    --long) long=1 preset=release python=1 torch=(--torch) ;;
    --peers) peers=1 ;;
    --python) python=1 ;;
    --torch) python=1 torch=(--torch) ;;
    --arm64) arm64=1 ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown option '$option'; see --help" >&2; exit 2 ;;
  esac
done
if [ $# -gt 1 ] && [ $((sanitizers + arm64)) -gt 0 ]; then
  echo "test.sh: --sanitizers and --arm64 run nothing else; give each in a command of its own" >&2
  exit 2
fi
release=1
[ "$sanitizers" = 1 ] && [ "$long" = 0 ] && release=0
[ "$long" = 1 ] && sanitizers=1

install=()
[ "$long" = 1 ] && install+=(--long)
[ "$peers" = 1 ] && install+=(--peers)
[ "$sanitizers" = 1 ] && install+=(--clang)
[ "$arm64" = 1 ] && install+=(--arm64)
tools/install_packages.sh "${install[@]}"

passed=0 failed=0 skipped=0
# run_suite PRESET CTEST-ARGUMENTS... builds, tests, and adds to the counts. A build that fails counts as one failure.
run_suite() {
  local preset=$1 log status=0
  shift
  log=$(mktemp)
  echo "== $preset"
  local begin=$SECONDS built
  if ! cmake --preset "$preset" "${configure[@]}" >"$log" 2>&1 || ! cmake --build --preset "$preset" >>"$log" 2>&1; then
    tail -n 60 "$log"
    rm -f "$log"
    failed=$((failed + 1))
    return
  fi
  built=$SECONDS
  ctest --test-dir "build/$preset" --output-on-failure "$@" 2>&1 | tee "$log" || status=$?
  local total bad
  total=$(sed -n 's/.*tests passed.* out of \([0-9]*\).*/\1/p' "$log" | tail -n 1)
  bad=$(sed -n 's/.*tests passed, \([0-9]*\) tests failed out of.*/\1/p' "$log" | tail -n 1)
  passed=$((passed + ${total:-0} - ${bad:-0}))
  failed=$((failed + ${bad:-0}))
  [ "$status" -eq 0 ] || [ "${bad:-0}" -gt 0 ] || failed=$((failed + 1))
  # Each skipped test prints one line.
  skipped=$((skipped + $(cat "build/$preset"/Testing/Temporary/LastTest.log 2>/dev/null | grep -c '^SKIPPED:' || true)))
  rm -f "$log"
  echo "== $preset: built in $((built - begin)) s, tested in $((SECONDS - built)) s"
}

configure=()
[ "$long" = 1 ] && configure+=(-DCONVOLUME_TSAN_KERNELS=ON)
labels_out='^peers$'
[ "$long" = 1 ] || labels_out='^(peers|long)$'
export CONVOLUME_WERROR=${CONVOLUME_WERROR:-${CI:+ON}}
[ "$CONVOLUME_WERROR" = true ] && CONVOLUME_WERROR=ON
if [ "$arm64" = 1 ]; then
  run_suite arm64 -j 2 -L '^arm64$'
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
  exit
fi
# In a build without the package there are no tests of Python. If its packages cannot be installed, they count as skipped.
with_python=(-DCONVOLUME_PYTHON=OFF)
if [ "$python" = 1 ]; then
  if tools/make_python.sh "${torch[@]}"; then
    with_python=(-DCONVOLUME_PYTHON=ON "-DPython_EXECUTABLE=$PWD/build/python-env/bin/python")
  else
    echo "SKIPPED: python: the packages of python/requirements-test.txt cannot be installed"
    skipped=$((skipped + 1))
  fi
fi
all_builds=("${configure[@]}")
# Of the sanitizers, ASan tests the package too, in a long run.
asan_builds=("${configure[@]}" -DCONVOLUME_PYTHON=OFF)
[ "$long" = 0 ] || asan_builds=("${configure[@]}" "${with_python[@]}")
configure+=("${with_python[@]}")
[ "$release" = 0 ] || run_suite "$preset" -j 2 -LE "$labels_out"
configure=("${all_builds[@]}")
if [ "$sanitizers" = 1 ]; then
  configure=("${asan_builds[@]}")
  # With ASan's default, 256 MiB of freed memory wait before they are used again. Each allocation then gets new pages,
  # and this takes half of the time of a short process.
  ASAN_OPTIONS="quarantine_size_mb=16:malloc_context_size=8:${ASAN_OPTIONS:-}" \
    run_suite asan -j 2 -L '^sanitize$' -LE "$labels_out"
  configure=("${all_builds[@]}")
  TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}" run_suite tsan -j 2 -L '^sanitize$' -LE "$labels_out"
fi
if [ "$long" = 1 ]; then
  if tools/fuzz.sh 60; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
fi
[ "$peers" = 1 ] && run_suite "$preset" -L '^peers$'

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
