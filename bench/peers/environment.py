"""The virtual environment of the peers, build/peers: its interpreter, and the versions that its packages must have.

tools/install_packages.sh --peers makes it from requirements.txt. Needs Python 3 only.
"""
import importlib.metadata
import os
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
PYTHON = FOLDER.parents[1] / "build" / "peers" / "bin" / "python"
REMEDY = "tools/install_packages.sh --peers"
SKIPPED = 77  # the status of a test that was not run


class PeerError(Exception):
    """A peer that cannot be measured; the text says why, and what to do."""


def pinned(requirements=FOLDER / "requirements.txt"):
    """Returns {name of a package: the version that it must have}."""
    lines = (line.split("#")[0].strip() for line in requirements.read_text(encoding="utf-8").splitlines())
    return dict(line.split("==") for line in lines if line)


def check_version(name, installed, wanted):
    """Raises PeerError if the package is missing (None), has another version, or is a build with CUDA."""
    if installed is None:
        raise PeerError(f"{name} is missing in build/peers; run {REMEDY}")
    version, _, build = installed.partition("+")
    if build.startswith("cu"):
        raise PeerError(f"{name} {installed} in build/peers is a build with CUDA, and the comparison is of CPUs; "
                        f"remove build/peers and run {REMEDY}")
    if version != wanted:
        raise PeerError(f"{name} {version} is in build/peers, and bench/peers/requirements.txt pins {wanted}; run "
                        f"{REMEDY}")


def check(*names):
    """Raises PeerError unless each of these packages has its pinned version."""
    versions = pinned()
    for name in names:
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = None
        check_version(name, installed, versions[name])


def enter():
    """Continues the running script in build/peers. If there is none, ends as a test that was not run."""
    if pathlib.Path(sys.prefix) == PYTHON.parents[1]:
        return
    if not PYTHON.exists():
        print(f"SKIPPED: build/peers is missing; {REMEDY} makes it")
        sys.exit(SKIPPED)
    os.execv(PYTHON, [str(PYTHON), "-B", *sys.argv])
