#!/usr/bin/env python3
"""The C++ examples of the README are the programs in examples/ that the tests compile and run."""

import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
readme = re.findall(r"```cpp\n(.*?)```", (source / "README.md").read_text(), re.S)
examples = ["convolve.cpp", "chain.cpp"]
if len(readme) != len(examples):
    sys.exit(f"README.md: it has {len(readme)} C++ examples; name their programs in {__file__}")
for text, name in zip(readme, examples):
    if text.strip() not in (source / "examples" / name).read_text():
        sys.exit(f"README.md: the C++ example differs from examples/{name}; copy it again")
