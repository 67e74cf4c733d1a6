"""Builds the command and an example for one SIMD target each. They have to compute the bits of a build for all targets.
On a processor without the target they have to say so. QEMU plays these processors.

    simd_targets_test.py SOURCE BUILD CMAKE CXX
BUILD has all targets and was compiled by CXX.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CXX = sys.argv.pop()
CMAKE = sys.argv.pop()
BUILD = pathlib.Path(sys.argv.pop())
SOURCE = pathlib.Path(sys.argv.pop())
sys.path.insert(0, str(SOURCE / "tests/contract"))
import record_test  # noqa: E402

os.environ.pop("CONVOLUME_SIMD", None)

TARGETS = ["SSE4", "AVX2", "AVX3"]
# A processor without this target that has all narrower ones.
TOO_OLD = {"AVX2": ("Nehalem", "SSE4"), "AVX3": ("Haswell", "AVX2, SSE4")}
QEMU = shutil.which("qemu-x86_64-static")

NET = """
name = "small"
[input]
patch = [6, 6, 6]
[[node]]
name = "hidden"
type = "conv"
out_channels = 4
kernel = [3, 3, 3]
[[node]]
name = "logits"
type = "conv"
out_channels = 1
kernel = [1, 1, 1]
[training]
validate_every = 1000
"""


def cmake(*words):
    done = subprocess.run([CMAKE, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"cmake {words}:\n{done.stdout[-5000:]}{done.stderr[-5000:]}")
    return done.stdout + done.stderr


def configure(folder, *options):
    return cmake("-S", SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                 f"-DCMAKE_CXX_COMPILER={CXX}", "-DCONVOLUME_BUILD_TESTS=OFF", "-DCONVOLUME_BUILD_BENCH=OFF", *options)


def targets_of(command, word):
    """The targets that a build names after "available:" or "built for"."""
    text = subprocess.run([command, "machine"], capture_output=True, text=True, check=True).stdout
    return text.split(word, 1)[1].split(";")[0].split(")")[0].strip().split(", ")


class SimdTargets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.builds = {target: BUILD / "simd_targets" / target for target in TARGETS}
        for target, folder in cls.builds.items():
            configure(folder, f"-DCONVOLUME_SIMD_TARGETS={target}")
            cmake("--build", folder, "--target", "convolume_cli", "example_convolve")
        cls.available = targets_of(BUILD / "tools/convolume", "available:")

    def refuses(self, command, says):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
        self.assertNotIn(done.returncode, [0, -4, 132], done.stderr)  # no illegal instruction
        for words in says:
            self.assertIn(words, done.stderr)

    def test_a_build_names_its_targets(self):
        for target, folder in self.builds.items():
            if target in self.available:
                self.assertEqual(targets_of(folder / "tools/convolume", "built for"), [target])

    def test_the_bits_of_a_target_are_those_of_a_build_for_all(self):
        for target, folder in self.builds.items():
            if target not in self.available:
                print(f"SKIPPED: simd_targets_test: this machine or the whole build has no {target}")
                continue
            for net, patch, extent in record_test.NETS:
                with self.subTest(target=target, net=net):
                    alone = record_test.train(folder / "tools/convolume", SOURCE, target, net, patch, extent)
                    among = record_test.train(BUILD / "tools/convolume", SOURCE, target, net, patch, extent)
                    self.assertEqual(alone, among)

    def test_runs_resume_in_a_build_for_one_target(self):
        # The transforms of this net have 4 to 7 points. With AVX3 they use vectors of half the width.
        with tempfile.TemporaryDirectory(prefix="convolume-simd-") as folder:
            folder = pathlib.Path(folder)
            (folder / "net.toml").write_text(NET)
            (folder / "data.toml").write_text(record_test.DATA.format(extent=[16, 16, 16], half=8, end=16))
            for target in (target for target in self.builds if target in self.available):
                programs = [BUILD / "tools/convolume", self.builds[target] / "tools/convolume"]
                results = []
                for first, second in [(0, 0), (0, 1), (1, 0)]:
                    run = folder / f"{target}-{first}-{second}"
                    train = ["train", folder / "net.toml", "--data", folder / "data.toml", "--out", run, "--engine",
                             "fft_volume", "--quiet"]
                    record_test.run([programs[first], *train, "--iterations", 2], target)
                    record_test.run([programs[second], *train, "--iterations", 4, "--resume"], target)
                    results.append((run / "checkpoints/last.safetensors").read_bytes())
                with self.subTest(target=target):
                    self.assertEqual(results[0], results[1])
                    self.assertEqual(results[0], results[2])

    def test_a_library_without_the_kernels_of_a_processor_says_so(self):
        if not QEMU:
            print("SKIPPED: simd_targets_test: apt-get install qemu-user-static")
            return
        for target, (processor, has) in TOO_OLD.items():
            says = [f"compiled for {target} only", f"this processor has {has}",
                    f"-DCONVOLUME_SIMD_TARGETS={has.split(',')[0]}"]
            for program in [["tools/convolume", "info"], ["examples/example_convolve"]]:
                with self.subTest(target=target, program=program):
                    command = [self.builds[target] / program[0], *program[1:]]
                    self.refuses([QEMU, "-cpu", processor, *command], says)

    def test_a_machine_without_the_target_gets_the_same_message(self):
        for target in TOO_OLD:
            if target not in targets_of(BUILD / "tools/convolume", "available:"):
                self.refuses([self.builds[target] / "tools/convolume", "info"], [f"compiled for {target} only"])

    def test_installing_says_which_targets_are_missing(self):
        folder = self.builds["AVX2"]
        cmake("--build", folder)
        text = cmake("--install", folder, "--prefix", folder / "prefix")
        self.assertIn("this build has kernels for AVX2 only", text)

    def test_names_of_targets_are_checked(self):
        folder = BUILD / "simd_targets/refused"
        for value, says in [("avx512", "there is no target 'avx512'"), ("", "CONVOLUME_SIMD_TARGETS is empty"),
                            ("AVX2,", "there is no target ''"), ("AVX2;AVX9", "SSE4;AVX2;AVX3")]:
            shutil.rmtree(folder, ignore_errors=True)
            with self.subTest(value=value), self.assertRaises(AssertionError) as caught:
                configure(folder, f"-DCONVOLUME_SIMD_TARGETS={value}")
            self.assertIn(says, str(caught.exception).replace("\n  ", " "))

    def test_the_alias_is_not_kept(self):
        folder = BUILD / "simd_targets/alias"
        self.assertIn("compiled for AVX2\n", configure(folder, "-DCONVOLUME_AVX2_ONLY=ON"))
        self.assertIn("compiled for SSE4, AVX2, AVX3\n", configure(folder, "-DCONVOLUME_AVX2_ONLY=OFF"))
        # Kernels for AVX3 use some for AVX2.
        self.assertIn("compiled for SSE4, AVX2, AVX3\n", configure(folder, "-DCONVOLUME_SIMD_TARGETS=SSE4,AVX3"))

    def test_a_cache_folder_that_cannot_be_written_is_left_out(self):
        folder = BUILD / "simd_targets/no_cache"
        shutil.rmtree(folder, ignore_errors=True)
        os.environ["CCACHE_DIR"] = "/proc/no-such-folder"
        try:
            text = configure(folder, "-DCONVOLUME_SIMD_TARGETS=native")
        finally:
            del os.environ["CCACHE_DIR"]
        if shutil.which("ccache"):
            self.assertIn("ccache is not used: ", text)
        for file in ["build.ninja", "CMakeFiles/rules.ninja"]:
            self.assertNotIn("CCACHE_BASEDIR", (folder / file).read_text())

    def test_native_is_the_best_target_by_name(self):
        folder = BUILD / "simd_targets/native"
        configure(folder, "-DCONVOLUME_SIMD_TARGETS=native")
        self.assertIn(f"CONVOLUME_SIMD_TARGETS:STRING={self.available[0]}\n", (folder / "CMakeCache.txt").read_text())


if __name__ == "__main__":
    unittest.main()
