"""The peers from PyPI: their versions, the BLAS that PyTorch computes with, and the script that installs them.

    peers_test.py SOURCE
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(sys.argv.pop()).resolve()
sys.path.insert(0, str(SOURCE / "bench/peers"))
import environment  # noqa: E402
import libraries  # noqa: E402

MKL = ("  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605\n"
       "  - Intel(R) MKL-DNN v3.12.0 (Git Hash 80afa71049cd69)\n  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release")
DEBIAN = "  - Build settings: BLAS_INFO=generic, BUILD_TYPE=RelWithDebInfo"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


class Versions(unittest.TestCase):
    def test_every_peer_is_pinned_to_one_version(self):
        pinned = environment.pinned()
        for name in ("torch", "scipy", "ducc0", "pyfftw", "mkl", "onnxruntime", "openvino", "nibabel", "zarr",
                     "tifffile", "h5py", "scikit-image"):
            self.assertRegex(pinned[name], r"^\d+(\.\d+)+$")
        self.assertLess(int(pinned["zarr"].split(".")[0]), 3)

    def test_the_pinned_version_of_any_build_for_cpus_is_accepted(self):
        environment.check_version("torch", "2.13.0", "2.13.0")
        environment.check_version("torch", "2.13.0+cpu", "2.13.0")

    def test_a_missing_package_another_version_and_cuda_are_refused_with_the_remedy(self):
        for installed, words in ((None, "torch is missing in build/peers"),
                                 ("2.12.1+cpu", "torch 2.12.1 is in build/peers, and .* pins 2.13.0"),
                                 ("2.13.0+cu130", r"torch 2.13.0\+cu130 .* CUDA.* remove build/peers")):
            with self.assertRaisesRegex(environment.PeerError, f"{words}.*tools/install_packages.sh --peers"):
                environment.check_version("torch", installed, "2.13.0")


class Blas(unittest.TestCase):
    def test_a_mapped_file_is_named(self):
        for file, kind in ((f"{LIBRARIES}/openblas-pthread/libblas.so.3", "OpenBLAS"),
                           (f"{LIBRARIES}/libmkl_rt.so", "MKL"), (f"{LIBRARIES}/libblis.so.4", "BLIS"),
                           (f"{LIBRARIES}/atlas/libblas.so.3", "ATLAS"),
                           (f"{LIBRARIES}/blas/libblas.so.3.11.0", "the reference BLAS")):
            self.assertEqual(libraries.blas_of([f"{LIBRARIES}/libc.so.6", file], DEBIAN), (kind, f"{kind} ({file})"))

    def test_a_library_that_is_linked_statically_is_named_by_the_configuration(self):
        self.assertEqual(libraries.blas_of([], MKL), ("MKL", "MKL 2024.2 (linked statically)"))
        self.assertEqual(libraries.onednn_of([], MKL), "oneDNN 3.12.0 (linked statically)")
        self.assertEqual(libraries.onednn_of([], DEBIAN), "none")

    def test_openblas_mkl_and_blis_are_accepted(self):
        for kind in ("OpenBLAS", "MKL", "BLIS"):
            libraries.require_fast_blas(kind, kind)

    def test_every_other_blas_is_refused_by_name_with_the_remedy(self):
        for kind in ("the reference BLAS", "ATLAS", "Eigen", "an unknown BLAS"):
            with self.assertRaisesRegex(environment.PeerError, f"{kind} .*OpenBLAS, MKL or BLIS.*--any-blas"):
                libraries.require_fast_blas(kind, f"{kind} (/a/file)")


def write_wheel(folder, name, version, needs=()):
    """Writes an empty package."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                       + "".join(f"Requires-Dist: {need}\n" for need in needs))
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


class Installing(unittest.TestCase):
    def test_a_build_with_cuda_is_refused_and_the_index_of_builds_for_cpus_is_named(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for part in ("tools", "bench/peers", "wheels"):
                (root / part).mkdir(parents=True)
            for script in ("make_peers.sh", "install_with_torch.sh"):
                shutil.copy(SOURCE / "tools" / script, root / "tools")
            (root / "bench/peers/requirements.txt").write_text("torch==2.13.0\n")
            write_wheel(root / "wheels", "torch", "2.13.0", ["nvidia-cublas"])
            write_wheel(root / "wheels", "nvidia_cublas", "13.0")
            probe = subprocess.run(["/usr/bin/python3", "-m", "venv", str(root / "build/peers")], capture_output=True)
            if probe.returncode != 0:
                self.skipTest("python3-venv is not installed")
            settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(root / "wheels"), "PIP_CONFIG_FILE": os.devnull}
            result = subprocess.run([root / "tools/make_peers.sh"], env={**os.environ, **settings}, capture_output=True,
                                    text=True)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stderr, "torch==2.13.0 with CUDA.*\n.*PIP_EXTRA_INDEX_URL=")
            self.assertFalse((root / "build/peers/requirements.txt").exists())
            self.assertFalse(list((root / "build/peers").glob("lib/*/site-packages/torch*")))


if __name__ == "__main__":
    unittest.main()
