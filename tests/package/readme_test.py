#!/usr/bin/env python3
"""The C++ example of the README is the program in examples/ that the tests compile and run."""

import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
readme = re.findall(r"```cpp\n(.*?)```", (source / "README.md").read_text(), re.S)
example = (source / "examples/convolve.cpp").read_text()
if len(readme) != 1 or readme[0].strip() not in example:
    sys.exit("README.md: the C++ example differs from examples/convolve.cpp; copy it again")
