#!/usr/bin/env python3
"""Adds the licences of bundled libraries to a wheel.

    tools/wheel_licenses.py RAW REPAIRED FOLDER

RAW is the wheel before auditwheel, REPAIRED the one that holds the libraries. The result is written to FOLDER. Each
library belongs to a Debian package, whose copyright file goes to .dist-info/licenses, with the common licences that it
refers to. So do the licences of what is compiled into the extension: headers of Debian packages, and nanobind.
"""
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

COMMON = "/usr/share/common-licenses"
# Debian packages that a wheel must not hold: their licence is that of the whole then.
REFUSED = {"libjbig0", "libfftw3-double3", "libfftw3-single3"}
OWN = {"libjbig.so.0"}  # built from tools/no_jbig.c
# Debian packages of headers whose code the extension contains.
HEADERS = ["libhwy-dev", "libfmt-dev", "libxxhash-dev", "libtomlplusplus-dev", "nlohmann-json3-dev"]


def output(*command: object) -> str:
    return subprocess.run([str(one) for one in command], check=True, capture_output=True, text=True).stdout


def package_of(library: str) -> str:
    """Returns the Debian package that owns a library. dpkg may know its path below /usr only, or above it only."""
    real = pathlib.Path(library).resolve()
    for path in (real, pathlib.Path("/usr") / real.relative_to("/"), pathlib.Path(str(real).removeprefix("/usr"))):
        found = subprocess.run(["dpkg-query", "-S", str(path)], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    raise SystemExit(f"wheel_licenses.py: no Debian package owns {real}; the licence of a bundled library is unknown")


def needed(extension: pathlib.Path) -> dict[str, str]:
    """Returns the paths of the libraries that the extension loads, by their names."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", extension), flags=re.MULTILINE))


def bundled(folder: pathlib.Path) -> list[str]:
    """Returns the names that the libraries in a wheel had before auditwheel added a hash: libtbb-1a2b.so.12.8."""
    return sorted(re.sub(r"-[0-9a-f]{8}(?=\.)", "", one.name, count=1) for one in folder.glob("*.libs/*.so*"))


def main() -> None:
    raw, repaired, target = (pathlib.Path(one) for one in sys.argv[1:4])
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        for wheel, part in ((raw, "raw"), (repaired, "repaired")):
            output(sys.executable, "-m", "wheel", "unpack", "--dest", place / part, wheel)
        (root,) = (place / "repaired").iterdir()
        (extension,) = (place / "raw").glob("*/convolume/_core*.so")
        real = {pathlib.Path(path).resolve().name: path for path in needed(extension).values()} | needed(extension)
        (information,) = root.glob("*.dist-info")
        licenses = information / "licenses"
        licenses.mkdir(exist_ok=True)
        owners: dict[str, list[str]] = {}
        known: set[str] = set()
        for library in bundled(root):
            if library in OWN:
                continue
            if library not in real:
                raise SystemExit(f"wheel_licenses.py: the wheel holds {library}, which {extension.name} does not load")
            owners.setdefault(package_of(real[library]), []).append(library)
        if REFUSED & set(owners):
            raise SystemExit(f"wheel_licenses.py: the wheel holds {', '.join(REFUSED & set(owners))}, which is under the GPL")
        for package in [*owners, *HEADERS]:
            text = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_text(errors="replace")
            if text in known:  # packages of one source have one text
                continue
            known.add(text)
            (licenses / f"{package}.txt").write_text(text)
            for common in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", text):
                if pathlib.Path(COMMON, common).is_file():
                    shutil.copy(pathlib.Path(COMMON, common), licenses / f"common-{common}.txt")
        for file in importlib.metadata.files("nanobind") or []:
            if "LICENSE" in file.name.upper():
                shutil.copy(str(file.locate()), licenses / f"nanobind-{file.name}.txt")
        if not list(licenses.glob("nanobind*")):
            raise SystemExit("wheel_licenses.py: the package nanobind has no licence file")
        target.mkdir(parents=True, exist_ok=True)
        output(sys.executable, "-m", "wheel", "pack", "--dest-dir", target, root)
    for package, libraries in sorted(owners.items()):
        print(f"{package}: {', '.join(libraries)}")


if __name__ == "__main__":
    main()
