#!/usr/bin/env python3
"""Prints what a safetensors file holds: metadata, then name, dtype, shape and first values of each tensor.

Written against the published format only, with the standard library, so that our writer is judged by other eyes.
"""
import json
import struct
import sys

CODES = {"F32": "f", "F64": "d", "I64": "q", "U8": "B"}


def main(path):
    with open(path, "rb") as file:
        contents = file.read()
    (length,) = struct.unpack_from("<Q", contents)
    header = json.loads(contents[8 : 8 + length].decode("utf-8"))
    data = contents[8 + length :]
    for key, value in sorted(header.pop("__metadata__", {}).items()):
        print(f"{key} = {value}")
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        code = CODES[entry["dtype"]]
        count = (end - begin) // struct.calcsize(code)
        values = struct.unpack_from(f"<{min(count, 4)}{code}", data, begin)
        print(name, entry["dtype"], entry["shape"], *values)


if __name__ == "__main__":
    main(sys.argv[1])
