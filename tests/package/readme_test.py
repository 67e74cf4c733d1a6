#!/usr/bin/env python3
"""The C++ examples of the README are the programs in examples/ that the tests compile and run, and the scripts that its
commands name can be executed."""

import os
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
page = (source / "README.md").read_text()
readme = re.findall(r"```cpp\n(.*?)```", page, re.S)
examples = ["convolve.cpp", "chain.cpp"]
if len(readme) != len(examples):
    sys.exit(f"README.md: it has {len(readme)} C++ examples; name their programs in {__file__}")
for text, name in zip(readme, examples):
    if text.strip() not in (source / "examples" / name).read_text():
        sys.exit(f"README.md: the C++ example differs from examples/{name}; copy it again")

commands = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.S))
scripts = re.findall(r"^(?:\./)?((?:bench|tools)/\S+\.(?:py|sh))", commands, re.M)
if len(scripts) < 5:
    sys.exit("README.md: its commands name fewer than five scripts; has their form changed?")
for script in scripts:
    if not os.access(source / script, os.X_OK):
        sys.exit(f"README.md: {script} cannot be executed; chmod +x it")
