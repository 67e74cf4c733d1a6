"""Checks that the public headers know the standard library and each other, and no foreign type.

    public_headers_test.py INCLUDE_DIRECTORY
"""
import re
import sys
from pathlib import Path

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
ALLOWED = re.compile(r"convolume/[a-z_]+\.(hpp|h)|[a-z_]+|std(int|def)\.h")
FOREIGN = re.compile(r"\b(tbb|oneapi|hwy|fmt|toml|nlohmann)::|\b(fftwf?_|H5[A-Z]?[a-z]+_|hid_t|TIFF|png_|HWY_|__m\d+)", re.ASCII)


def main():
    headers = sorted(Path(sys.argv[1]).rglob("*.h*"))
    if not headers:
        print(f"no header below {sys.argv[1]}")
        return 1
    found = 0
    for header in headers:
        text = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), header.read_text(encoding="utf-8"))
        for line, content in enumerate(text.split("\n"), start=1):
            include = INCLUDE.match(content)
            if include and not ALLOWED.fullmatch(include.group(1)):
                print(f"{header}:{line}: includes {include.group(1)}")
                found += 1
            foreign = None if include else FOREIGN.search(content)
            if foreign:
                print(f"{header}:{line}: names {foreign.group()}")
                found += 1
    print(f"{len(headers)} public headers, {found} violations")
    return 1 if found else 0


sys.exit(main())
