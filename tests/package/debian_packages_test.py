#!/usr/bin/env python3
"""The Debian packages hold a library and a command that work: a program is compiled and run with them, beside another
installation too. Nothing is installed: dpkg-deb unpacks the packages into a folder.

    debian_packages_test.py SOURCE CMAKE CXX
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CXX, CMAKE, SOURCE = sys.argv.pop(), sys.argv.pop(), pathlib.Path(sys.argv.pop())
PACKAGES = ["convolume", "libconvolume0", "libconvolume-dev"]
EXAMPLE = SOURCE / "examples/convolve.cpp"


def run(*words, **options):
    """Runs a command that has to succeed. Returns its output."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class DebianPackages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        run(SOURCE / "tools/package.sh")  # lintian's errors end it
        cls.files = {file.name.split("_")[0]: file for file in (SOURCE / "build/package/packages").glob("*.deb")}
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name).resolve() / "root"
        for file in cls.files.values():
            run("dpkg-deb", "-x", file, cls.root)
        cls.libraries = next(cls.root.glob("usr/lib/*/libconvolume.so.0")).parent
        # A build of one's own, as `make install` would put it beside the packages.
        cls.local = cls.root / "usr/local"
        run(CMAKE, "--install", SOURCE / "build/package", "--prefix", cls.local)
        cls.local_libraries = next(cls.local.glob("lib/**/libconvolume.so.0")).parent

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def field(self, package, name):
        return run("dpkg-deb", "--field", self.files[package], name).strip()

    def linked(self, program, libraries):
        """Runs a program and returns the libconvolume that it loads."""
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
        run(program, env=environment)
        found = re.search(r"libconvolume\S* => (\S+)", run("ldd", program, env=environment))
        return pathlib.Path(found.group(1)).parent

    def headers(self, flags, libraries):
        """Compiles and runs the example. Returns the folders of the headers and of the library that it takes."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder.name))
        read = run(CXX, "-std=c++20", "-M", EXAMPLE, *flags)
        header = re.search(r"(\S+)/convolume/convolume\.hpp|(\S+)/convolume/conv\.hpp", read)
        run(CXX, "-std=c++20", EXAMPLE, "-o", folder / "example", *flags)
        return pathlib.Path(header.group(1) or header.group(2)).resolve(), self.linked(folder / "example", libraries)

    def pkg_config(self, libraries):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(libraries / "pkgconfig")}
        return run("pkg-config", "--cflags", "--libs", "convolume", env=environment).split()

    def test_three_packages_depend_on_each_other_and_not_on_fftw(self):
        self.assertEqual(sorted(self.files), sorted(PACKAGES))
        version = self.field("libconvolume0", "Version")
        self.assertEqual(self.field("libconvolume-dev", "Depends"), f"libconvolume0 (= {version})")
        for package in ("convolume", "libconvolume0"):
            depends = self.field(package, "Depends")
            self.assertIn("libtbb12", depends)
            self.assertNotIn("fftw", depends)

    def test_copyright_names_what_is_compiled_in(self):
        for package in PACKAGES:
            text = (self.root / "usr/share/doc" / package / "copyright").read_text()
            for name in ("highway", "toml++", "nlohmann-json", "CLI11", "chart.js"):
                self.assertIn(name, text)

    def test_command_runs(self):
        command = self.root / "usr/bin/convolume"
        self.assertIn("built for AVX3, AVX2, SSE4", run(command, "machine"))
        self.assertIn(self.field("convolume", "Version"), run(command, "--version"))

    def test_example_compiles_with_pkg_config(self):
        headers, library = self.headers(self.pkg_config(self.libraries), self.libraries)
        self.assertEqual((headers, library), (self.root / "usr/include", self.libraries))

    def test_build_of_ones_own_beside_the_package_serves_headers_and_library(self):
        headers, library = self.headers(self.pkg_config(self.local_libraries), self.local_libraries)
        self.assertEqual((headers, library), (self.local / "include", self.local_libraries))

    def test_cmake_takes_headers_and_library_of_one_installation(self):
        for prefix, libraries in ((self.root / "usr", self.libraries), (self.local, self.local_libraries)):
            build = pathlib.Path(tempfile.mkdtemp(dir=self.folder.name))
            # Both are known, as on a machine that has both. The first prefix wins.
            other = self.local if prefix != self.local else self.root / "usr"
            run(CMAKE, "-S", SOURCE / "tests/package/consumer", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix};{other}",
                f"-DCMAKE_CXX_COMPILER={CXX}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
            run(CMAKE, "--build", build)
            self.assertIn(f"{prefix}/include ", (build / "compile_commands.json").read_text())
            self.assertEqual(self.linked(build / "consumer", libraries), libraries)

    def test_only_the_file_of_the_fftw_backend_differs_from_a_build_with_fftw(self):
        commands = {}
        for fftw in ("OFF", "ON"):
            build = pathlib.Path(self.folder.name) / f"fftw-{fftw}"
            run(CMAKE, "--preset", "package", "-B", build, f"-DCONVOLUME_FFTW={fftw}", cwd=SOURCE)
            lines = (build / "compile_commands.json").read_text().replace(str(build), "BUILD").splitlines()
            commands[fftw] = {line.strip() for line in lines if '"command"' in line}
        differing = commands["OFF"] ^ commands["ON"]
        self.assertTrue(differing)
        for line in differing:
            self.assertRegex(line, r"fftw_backend\.cpp")


if __name__ == "__main__":
    unittest.main()
