#!/usr/bin/env python3
"""Checks the libraries of an installed wheel.

    tools/wheel_libraries.py SITE-PACKAGES TREE

Each library finds the others by its own place ($ORIGIN), needs only what the wheel or every Linux has, and holds no path of
the tree that built it. The licences of the project and of all bundled libraries are there.
"""
import pathlib
import re
import subprocess
import sys

# Libraries that every Linux of the wheel's platform has: glibc, the runtime of GCC, and zlib.
SYSTEM = re.compile(r"(libc|libm|libdl|librt|libpthread|libresolv|libz|ld-linux-x86-64|libgcc_s|libstdc\+\+)\.so\.\d+")


def main() -> int:
    site, tree = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    libraries = sorted([*site.glob("convolume/*.so"), *site.glob("convolume.libs/*.so*")])
    names = {library.name for library in libraries}
    problems = [] if any(site.glob("convolume/_core*.so")) and len(names) > 1 else ["the wheel has no libraries"]
    for library in libraries:
        dynamic = subprocess.run(["readelf", "-d", str(library)], check=True, capture_output=True, text=True).stdout
        for path in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic):
            problems += [f"{library.name}: RUNPATH {one}" for one in path.split(":") if not one.startswith("$ORIGIN")]
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            if needed not in names and not SYSTEM.fullmatch(needed):
                problems.append(f"{library.name}: needs {needed}, which the wheel does not have")
        content = library.read_bytes()
        for path in {str(tree), *(["/tmp/"] if library.parent.name == "convolume" else [])}:
            at = content.find(path.encode())
            if at >= 0:
                text = content[at:at + 120].split(b"\0")[0].decode(errors="replace")
                problems.append(f"{library.name}: holds the path {text}")
    licenses = [one.name for one in site.glob("convolume-*.dist-info/licenses/**/*") if one.is_file()]
    if "LICENSE" not in licenses:
        problems.append("the licence of the project is missing")
    if len(licenses) < 3:
        problems.append("licences of bundled libraries are missing")
    for problem in problems:
        print("wheel_libraries.py:", problem, file=sys.stderr)
    print(f"{len(libraries)} libraries, {len(licenses)} licences: {', '.join(sorted(licenses))}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
