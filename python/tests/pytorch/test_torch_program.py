"""`python -m convolume.torch` runs programs and the processes that they start. Settings of OpenMP change no bits."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import zipfile

import pytest

torch = pytest.importorskip("torch")

from convolume.torch import __main__ as command  # noqa: E402
from convolume.torch import _problem  # noqa: E402

# Prints what it was given, and convolves once in each of four processes.
PROGRAM = """
import multiprocessing, os, subprocess, sys
import torch

def convolve(index=0):
    return torch.nn.functional.conv3d(torch.full((1, 2, 4, 4, 4), 1.0 + index), torch.ones(2, 2, 3, 3, 3)).sum().item()

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return convolve(1)

if __name__ == "__main__":
    results = [convolve()]
    for method in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Samples(), num_workers=1, multiprocessing_context=method, timeout=60)
        results += [one.item() for one in loader]
    code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import program; print(program.convolve(2))"
    results.append(float(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout))
    print(sys.argv[1:], repr(sys.stdin.read()), results, __file__, sys.flags.utf8_mode)
    sys.exit(3)
"""
# Does not need PyTorch, so it starts soon.
SMALL = """#!/usr/bin/env python3
import os, sys
print(sys.argv[1:], repr(sys.stdin.read()), getattr(sys, "customized", 0), "convolume" in sys.modules)
"""
LINE = r"convolume\.torch: (\d+) convolutions in \d+\.\d{3} s; (\d+) left to PyTorch( \(\d+ processes\))?\n"


def run(*words, options=(), standard_input="", **environment):
    return subprocess.run([sys.executable, *options, "-m", "convolume.torch", *map(str, words)], text=True, timeout=120,
                          check=False, capture_output=True, input=standard_input, env={**os.environ, **environment})


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """Returns a folder with a script, a module, an archive, and things that are no Python; PATH has it."""
    (tmp_path / "small.py").write_text(SMALL)
    (tmp_path / "module").mkdir()
    (tmp_path / "module/__main__.py").write_text(SMALL)
    with zipfile.ZipFile(tmp_path / "archive", "w") as archive:
        archive.writestr("__main__.py", SMALL)
    (tmp_path / "script").write_text(SMALL)
    (tmp_path / "shell").write_text("#!/bin/sh\n")
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    for name in ("script", "shell", "binary"):
        (tmp_path / name).chmod(0o755)
    # Python imports this one without us too.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.customized = 7\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    folders = [os.path.abspath(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *folders]))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_program_and_its_processes_are_served(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    found = run("--policy", "always", file, "-m", "--policy", options=["-X", "utf8"], standard_input="text\n",
                TMPDIR=str(tmp_path))
    assert found.stdout == f"['-m', '--policy'] 'text\\n' [864.0, 1728.0, 1728.0, 2592.0] {file} 1\n", found.stderr
    assert found.returncode == 3
    assert re.fullmatch(LINE, found.stderr)[1] == "4", found.stderr
    assert "(4 processes)" in found.stderr
    assert not list(tmp_path.glob("convolume-torch-*"))


@pytest.mark.parametrize("words", [["small.py"], ["-m", "module"], ["script"], ["archive"], ["module"],
                                   ["--", "script"]])
def test_files_modules_and_console_scripts_run_as_python_runs_them(words, scripts, monkeypatch):
    monkeypatch.chdir(scripts if words != ["script"] else pathlib.Path("/"))
    found = run("--memory-budget=5", *words, "-i", "in", standard_input="text")
    assert found.stdout == "['-i', 'in'] 'text' 7 False\n", found.stderr
    assert re.fullmatch(LINE, found.stderr).groups() == ("0", "0", None)
    assert found.returncode == 0


@pytest.mark.parametrize(("words", "error"), [
    ([], "no program"), (["--"], "no program"), (["-m"], "-m needs the name of a module"),
    (["nnUNet_missing"], "found no program 'nnUNet_missing': neither a file, nor beside .*python.*, nor in PATH"),
    (["/missing/file.py"], "found no program '/missing/file.py'"), (["shell"], "shell is not a Python program"),
    (["binary"], "binary is not a Python program"), (["./"], r"\./ is not a Python program"),
    (["-m", "missing.module"], "found no module 'missing.module'"), (["--pol", "always"], "unrecognized .*--pol"),
    (["--policy", "fast", "script"], r"invalid choice: 'fast' \(choose from .*fastest.*tuned.*always"),
    (["--policy"], "--policy: expected one argument"), (["--memory-budget", "1G", "script"], "'1G' is not a number"),
])
def test_what_cannot_run_ends_with_status_2_and_says_why(words, error, scripts, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["convolume.torch", *words])
    monkeypatch.chdir(scripts)
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 2
    assert re.search(f"python -m convolume.torch: error: .*{error}", capsys.readouterr().err)


def test_policies_are_those_of_the_package_and_the_help_names_them(monkeypatch, capsys):
    assert command._POLICIES == _problem.POLICIES  # noqa: SLF001
    monkeypatch.setattr(sys, "argv", ["convolume.torch", "--help"])
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 0
    assert "fastest (default), tuned or always" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("words", "options"), [
    ("python -m convolume.torch", []), ("python -mconvolume.torch", []), ("python -um convolume.torch", ["-u"]),
    ("python -W error -X utf8 -Omconvolume.torch", ["-W", "error", "-X", "utf8", "-O"]),
    ("python -m convolume.torch.__main__", []), ("python folder/convolume/torch", []),
])
def test_options_of_the_interpreter_are_those_before_the_module(words, options):
    for arguments in ([], ["-m", "convolume.torch"]):
        assert command._interpreter_options([*words.split(), *arguments], len(arguments)) == options  # noqa: SLF001


def test_an_interpreter_that_reads_no_environment_is_refused(scripts):
    # `python -m` finds the package in the working folder.
    found = subprocess.run([sys.executable, "-E", "-m", "convolume.torch", "script"], capture_output=True, text=True,
                           check=False, cwd=pathlib.Path(command.__file__).parents[2])
    assert found.returncode == 2
    assert "-E, -I and -S" in found.stderr


def test_an_interrupt_ends_the_program_as_it_does_without_us(tmp_path):
    (tmp_path / "program.py").write_text("import time; print('ready', flush=True); time.sleep(60)")
    # A shell starts what runs behind it without interrupts.
    process = subprocess.Popen([sys.executable, "-m", "convolume.torch", str(tmp_path / "program.py")], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # noqa: PLW1509
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert re.search(LINE + r"\Z", errors)


STEP = """
import hashlib, torch, convolume.torch

def step():
    generator = torch.Generator().manual_seed(1)
    shapes = (1, 8, 12, 12, 12), (8, 8, 3, 3, 3)
    x, w = (torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes)
    with convolume.torch.accelerated("always"):
        y = torch.nn.functional.conv3d(x, w)
        y.square().sum().backward()
    results = b"".join(one.detach().numpy().tobytes() for one in (y, x.grad, w.grad))
    return hashlib.sha256(results).hexdigest()

torch.set_num_threads(2)
results = {step() for _ in range(3)}
assert len(results) == 1
print(*results)
"""


@pytest.mark.parametrize(("settings", "one_cpu"), [
    ({"OMP_PROC_BIND": "true"}, False), ({"OMP_PROC_BIND": "true", "OMP_WAIT_POLICY": "passive"}, True)])
def test_settings_of_openmp_and_of_processors_change_no_bits(settings, one_cpu, capsys):
    cpus = os.sched_getaffinity(0)
    bind = (lambda: os.sched_setaffinity(0, {min(cpus)})) if one_cpu else None
    found = subprocess.run([sys.executable, "-c", STEP], env={**os.environ, **settings}, capture_output=True, text=True,
                           check=False, timeout=60, preexec_fn=bind)  # noqa: PLW1509
    assert found.returncode == 0, found.stderr
    threads = torch.get_num_threads()
    try:
        exec(STEP, {})  # noqa: S102
    finally:
        torch.set_num_threads(threads)
    assert found.stdout == capsys.readouterr().out
