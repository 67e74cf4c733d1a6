"""Shows that tools/check_layers accepts a small good tree and catches each kind of violation in it.

    check_layers_test.py PATH_OF_CHECK_LAYERS
"""
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

SCRIPT = sys.argv.pop() if len(sys.argv) > 1 else None

GOOD = {
    "include/convolume/error.hpp": "#pragma once\n#include <string>\n",
    "include/convolume/fft.hpp": '#pragma once\n#include "convolume/error.hpp"\n',
    "include/convolume/conv.hpp": '#pragma once\n#include "convolume/error.hpp"\n',
    "src/core/checked.hpp": '#include "convolume/error.hpp"\n',
    "src/core/cpu.cpp": "#include <hwy/targets.h>\n",
    "src/core/CMakeLists.txt": "convolume_room(core SOURCES cpu.cpp)\n",
    "src/core/instruction_set.cpp": "#include <cpuid.h>\n#if defined(__x86_64__)\n#endif\n",
    "allocator/slab.hpp": '#include "core/checked.hpp"\n',
    "fft/tile-inl.hpp": '#include "hwy/highway.h"\n',
    "fft/backend.cpp": '#include <fftw3.h>\n#include "convolume/fft.hpp"\n',
    "fft/CMakeLists.txt": "convolume_room(fft SOURCES backend.cpp ROOMS core)\n",
    "scheduler/graph.cpp": "#include <tbb/task_arena.h>\n",
    "src/plan/model.hpp": '#include "fft/plan.hpp"\n',
    "fft/plan.hpp": '#include "convolume/fft.hpp"\n',
    "src/ops/pool.cpp": '#include "hwy/foreach_target.h"\n#include "hwy/highway.h"\n#include "fft/tile-inl.hpp"\n',
    "src/plan/nest/n.hpp": '#include "plan/model.hpp"\n',
    "src/conv/engine.hpp": '#include "plan/model.hpp"\n#include "convolume/conv.hpp"\n// #include "nets/graph/net.hpp"\n',
    "src/conv/list.hpp": '#include "conv/direct/d.hpp"\n',
    "src/conv/direct/d.hpp": '#include "conv/engine.hpp"\n#include "conv/spectra/s.hpp"\n',
    "src/conv/spectra/s.hpp": '#include "conv/engine.hpp"\n',
    "src/conv/CMakeLists.txt": "convolume_room(conv\n  SOURCES a.cpp\n  ROOMS core fft  # below\n  EXTERNAL fmt::fmt)\n",
    "nets/graph/net.hpp": '#include "conv/engine.hpp"\n#include "nets/io/volume.hpp"\n',
    "nets/io/volume.hpp": '#include <hdf5.h>\n#include "core/checked.hpp"\n',
    "nets/io/CMakeLists.txt": "convolume_room(io ROOMS core)\n",
    "nets/infer/infer.hpp": "namespace convolume {\nstruct Grid {\n  int count() const;\n};\nint windows(const Grid& grid);\n}\n",
    "nets/infer/infer.cpp": '#include "nets/graph/net.hpp"\n#include "nets/infer/infer.hpp"\nnamespace convolume {\n'
                            "int Grid::count() const { return 1; }\nint windows(const Grid&) { return 1; }\n}\n",
    "src/models/energy.hpp": '#include "plan/model.hpp"\n',
    "tools/progress.hpp": "#pragma once\n",
    "tools/main.cpp": '#include "convolume/conv.hpp"\n#include "tools/progress.hpp"\n',
    "examples/one.cpp": "#include <convolume/conv.hpp>\n",
    "tests/fft/plan_test.cpp": '#include "fft/plan.hpp"\n',
    "tests/nets/io/tiff_test.cpp": "#include <tiffio.h>\n",
    "bench/bench_fft.cpp": "#include <fftw3.h>\n#include <tbb/info.h>\n",
}

# Each entry: its name, the file and the text that are added to the good tree, the line of the expected error, and a
# part of its message.
BAD = [
    ("upwards", "src/core/a.hpp", '\n#include "fft/plan.hpp"\n', 2, "above"),
    ("upwards through a public header", "fft/a.cpp", '#include "convolume/conv.hpp"\n', 1, "above"),
    ("neighbours", "fft/a.cpp", '#include "allocator/slab.hpp"\n', 1, "both on layer 1"),
    ("neighbours of the middle", "src/ops/a.cpp", '#include "plan/model.hpp"\n', 1, "both on layer 2"),
    ("relative path upwards", "src/plan/a.cpp", '#include "../conv/engine.hpp"\n', 1, "above"),
    ("io knows a middle room", "nets/io/a.cpp", '#include "fft/plan.hpp"\n', 1, "core only"),
    ("io knows nets", "nets/io/a.cpp", '#include "nets/graph/net.hpp"\n', 1, "core only"),
    ("conv knows io", "src/conv/a.cpp", '#include "nets/io/volume.hpp"\n', 1, "nets only"),
    ("a tool looks inside", "tools/a.cpp", '#include "core/checked.hpp"\n', 1, "public headers"),
    ("an example looks inside", "examples/a.cpp", '#include "nets/graph/net.hpp"\n', 1, "public headers"),
    ("an engine knows another engine", "src/conv/tiled/a.cpp", '#include "conv/direct/d.hpp"\n', 1, "engines"),
    ("an engine knows the plan", "src/conv/tiled/a.cpp", '#include "conv/list.hpp"\n', 1, "above"),
    ("what engines share knows an engine", "src/conv/spectra/a.cpp", '#include "conv/direct/d.hpp"\n', 1, "above"),
    ("an engine links another engine", "src/conv/tiled/CMakeLists.txt",
     "convolume_room(conv_tiled ROOMS core conv_direct)\n", 1, "engines"),
    ("a test includes a tool", "tests/a.cpp", '#include "tools/progress.hpp"\n', 1, "both on layer 6"),
    ("a public header shows the inside", "include/convolume/conv_problem.hpp", '#include "core/checked.hpp"\n', 1, "installed"),
    ("a public header of no room", "include/convolume/extra.hpp", "\n", 1, "no room"),
    ("a source of no room", "src/misc/a.cpp", "\n", 1, "no room"),
    ("a header that is not there", "src/core/a.cpp", '#include "core/gone.hpp"\n', 1, "does not exist"),
    ("TBB outside", "src/conv/a.cpp", "/* two\nlines */\n#include <tbb/task_group.h>\n", 3, "TBB"),
    ("oneAPI outside", "nets/graph/a.cpp", "#include <oneapi/tbb.h>\n", 1, "TBB"),
    ("oneDNN outside", "nets/graph/a.cpp", "#include <oneapi/dnnl/dnnl.hpp>\n", 1, "oneDNN"),
    ("oneDNN in a public header", "include/convolume/conv.hpp", "#include <oneapi/dnnl/dnnl.hpp>\n", 1, "a public header"),
    ("TBB in a public header", "include/convolume/scheduler.hpp", "#include <tbb/info.h>\n", 1, "a public header"),
    ("FFTW outside", "src/conv/a.cpp", "#include <fftw3.h>\n", 1, "FFTW"),
    ("a format outside", "nets/graph/a.cpp", "#include <tiffio.h>\n", 1, "file format"),
    ("PNG outside", "tools/a.cpp", "#  include <png.h>\n", 1, "file format"),
    ("Highway in nets", "nets/graph/a-inl.hpp", '#include "hwy/highway.h"\n', 1, "Highway"),
    ("Highway in a plain source", "src/ops/a.cpp", '#include "hwy/highway.h"\n', 1, "Highway"),
    ("Highway in a public header", "include/convolume/cpu.hpp", "#include <hwy/base.h>\n", 1, "Highway"),
    ("kernels in a plain source", "src/ops/a.cpp", '#include "fft/tile-inl.hpp"\n', 1, "-inl.hpp"),
    ("intrinsics outside", "scheduler/a.hpp", "#include <immintrin.h>\n", 1, "instruction_set.cpp"),
    ("cpuid outside", "src/core/a.cpp", "\n#include <cpuid.h>\n", 2, "instruction_set.cpp"),
    ("a macro of an instruction set outside", "fft/a.cpp", "// __x86_64__\n#ifdef __x86_64__\n#endif\n", 2, "__x86_64__"),
    ("an intrinsic in a test", "tests/a.cpp", "void f() { _mm_pause(); }\n", 1, "_mm_pause"),
    ("a header that includes itself", "fft/a.hpp", '#include "fft/a.hpp"\n', 1, "circular"),
    ("links upwards", "fft/CMakeLists.txt", "convolume_room(fft\n ROOMS core\n conv)\n", 3, "above"),
    ("links a neighbour", "src/ops/CMakeLists.txt", "convolume_room(ops ROOMS plan)\n", 1, "both on layer 2"),
    ("io links conv", "nets/io/CMakeLists.txt", "convolume_room(io ROOMS core conv)\n", 1, "core only"),
    ("links no room", "src/ops/CMakeLists.txt", "convolume_room(ops ROOMS cores)\n", 1, "no such room"),
    ("nets upwards", "nets/graph/a.cpp", '#include "nets/infer/infer.hpp"\n', 1, "above"),
    ("a file beside the rooms of nets", "nets/a.cpp", "\n", 1, "no room"),
    ("a cost model knows a nest", "src/plan/a.cpp", '#include "plan/nest/n.hpp"\n', 1, "above"),
    ("an engine knows a model of chips", "src/conv/direct/a.cpp", '#include "models/energy.hpp"\n', 1, "people who plan"),
    ("a net knows a model of chips", "nets/graph/a.cpp", '#include "models/energy.hpp"\n', 1, "people who plan"),
    ("a function that another room declares", "nets/train/a.cpp",
     "namespace convolume {\nint windows(const Grid& grid) {\n  return grid.count();\n}\n}\n", 2, "nets_infer declares"),
    ("a member of another room's class", "nets/graph/a.cpp", "namespace convolume {\n\nint Grid::count() const {\n}\n}\n",
     3, "defines Grid::count()"),
    ("an unknown room", "src/x/CMakeLists.txt", "convolume_room(x ROOMS core)\n", 1, "no such room"),
    ("a room elsewhere", "src/x/CMakeLists.txt", "convolume_room(ops ROOMS core)\n", 1, "belongs to"),
]


def run(files, *options):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            file = Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return subprocess.run([sys.executable, SCRIPT, *options, root], capture_output=True, text=True)


def check(files):
    done = run(files)
    return done.returncode, done.stdout.splitlines()


def texts(picture):
    """The words that a picture shows."""
    return [element.text for element in xml.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]


class CheckLayers(unittest.TestCase):
    def test_accepts_a_good_tree(self):
        status, lines = check(GOOD)
        self.assertEqual((status, len(lines)), (0, 1), lines)
        self.assertIn("OK", lines[0])

    def test_catches_each_violation(self):
        for name, path, text, line, part in BAD:
            with self.subTest(name):
                status, lines = check({**GOOD, path: text})
                self.assertEqual((status, len(lines)), (1, 1), lines)
                self.assertTrue(lines[0].startswith(f"{path}:{line}: "), lines[0])
                self.assertIn(part, lines[0])

    def test_catches_a_long_circle(self):
        around = {f"fft/{a}.hpp": f'#include "fft/{b}.hpp"\n' for a, b in ("ab", "bc", "ca")}
        status, lines = check({**GOOD, **around})
        self.assertEqual((status, len(lines)), (1, 1), lines)
        self.assertIn("fft/a.hpp -> fft/b.hpp -> fft/c.hpp -> fft/a.hpp", lines[0])

    def test_reports_every_violation(self):
        status, lines = check({**GOOD, "nets/graph/a.cpp": "#include <fftw3.h>\n#include <png.h>\n"})
        self.assertEqual((status, len(lines)), (1, 2), lines)

    def test_refuses_an_empty_tree(self):
        self.assertEqual(check({})[0], 2)


class Picture(unittest.TestCase):
    def test_shows_rooms_and_layers(self):
        done = run(GOOD, "--svg", "-")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        shown = texts(done.stdout)
        for word in ["core", "src/core/", "fft", "scheduler", "ops", "interface", "direct", "src/conv/direct/", "conv",
                     "graph", "nets/graph/", "io", "nets/io/", "models", "tests", "bench", "tools", "examples", "layer 0", "layer 3.5",
                     "layers 5, 6"]:
            self.assertIn(word, shown)
        self.assertNotIn("onednn", shown)  # this tree has no such room

    def test_leaves_out_edges_that_others_imply(self):
        above = {**GOOD, "nets/graph/a.hpp": '#include "conv/list.hpp"\n'}
        picture = run(above, "--svg", "-").stdout
        implied = {**above, "nets/graph/b.hpp": '#include "conv/direct/d.hpp"\n'}
        self.assertEqual(picture, run(implied, "--svg", "-").stdout)
        self.assertNotEqual(picture, run(GOOD, "--svg", "-").stdout)

    def test_is_the_same_for_the_same_structure(self):
        first = run(GOOD, "--svg", "-").stdout
        self.assertEqual(first, run(GOOD, "--svg", "-").stdout)
        self.assertEqual(first, run({**GOOD, "fft/more.hpp": '#include "convolume/fft.hpp"\n'}, "--svg", "-").stdout)

    def test_writes_a_file_beside_the_usual_line(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "picture.svg"
            done = run(GOOD, "--svg", str(file))
            self.assertEqual((done.returncode, done.stdout), (0, run(GOOD).stdout))
            self.assertEqual(file.read_text(), run(GOOD, "--svg", "-").stdout)

    def test_draws_no_tree_with_violations(self):
        done = run({**GOOD, "nets/graph/a.cpp": "#include <fftw3.h>\n"}, "--svg", "-")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("FFTW", done.stderr)


if __name__ == "__main__":
    unittest.main()
