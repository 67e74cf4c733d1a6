"""Checks that the shared library exports our own symbols only.

    exported_symbols_test.py LIBRARY NM

Ours are what the namespace convolume holds and C functions that begin with convolume_. Weak instantiations of standard
templates are no one's: every library that uses the template exports them.
"""
import re
import subprocess
import sys

# Patterns of mangled names: members of a namespace, the tables and guards of its classes, and thunks into it.
PREFIX = r"_Z(Z|T[VTISh]|GVZ?|T[hv]n?\d+_(n?\d+_)?)?N?[KVrRO]*"
OURS = re.compile(rf"convolume_|{PREFIX}9convolume")
STANDARD = re.compile(rf"{PREFIX}(S[tabsiod]|9__gnu_cxx)")
WEAK = {"W", "V", "u"}


def main():
    library, nm = sys.argv[1:]
    table = subprocess.run([nm, "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    symbols = [line.split()[-2:] for line in table.splitlines() if line]
    ours = {name for _, name in symbols if OURS.match(name)}
    foreign = [name for kind, name in symbols
               if name not in ours and not (kind in WEAK and STANDARD.match(name))]
    for name in foreign:
        print(f"foreign symbol: {name}")
    missing = {"convolume_version", "convolume_conv_create", "_ZN9convolume7versionEv"} - ours
    for name in sorted(missing):
        print(f"missing symbol: {name}")
    print(f"{len(ours)} symbols of ours, {len(symbols)} in all")
    return 1 if foreign or missing else 0


sys.exit(main())
