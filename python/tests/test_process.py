"""What the package does to a process, and what it bears from it: forks, bound threads, ends, signals."""
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import convolume

X = np.random.default_rng(1).standard_normal((1, 16, 12, 12, 12), dtype="float32")
W = np.random.default_rng(2).standard_normal((16, 16, 3, 3, 3), dtype="float32")


def run(code: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True,
                          timeout=120, check=False)


def status_of_child(body) -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            status = 0 if body() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_fork_computes_with_the_same_bits_while_other_threads_compute():
    with convolume.threads(2):
        wanted = convolume.conv3d(X, W)
    spectrum = convolume.fft.rfftn(X, workers=2)

    def same() -> bool:
        y = convolume.conv3d(X, W, threads=2)
        fresh = convolume.conv3d(X[:, :, :9], W, threads=2)
        again = convolume.fft.rfftn(X, workers=2)
        return np.array_equal(y, wanted) and fresh.shape[2] == 7 and np.array_equal(again, spectrum)

    end = threading.Event()

    def work() -> None:
        while not end.is_set():
            assert same()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert [status_of_child(same) for _ in range(20)] == [0] * 20
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_a_child_of_multiprocessing_ends_in_peace():
    result = run("""
import multiprocessing, numpy as np, convolume
x, w = np.ones((1, 16, 12, 12, 12), "float32"), np.ones((16, 16, 3, 3, 3), "float32")
convolume.conv3d(x, w, threads=2)
def child(n):
    return round(float(convolume.conv3d(x * n, w, threads=2)[0, 0, 0, 0, 0]))
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(child, [1, 2]))
""")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["[432,", "864]"]


BOUND = """
import ctypes, os
ctypes.CDLL("libgomp.so.1")
mine = os.sched_getaffinity(0)
import numpy as np, convolume
x, w = np.ones((1, 16, 24, 24, 24), "float32"), np.ones((16, 16, 3, 3, 3), "float32")
before = set(os.listdir("/proc/self/task"))
cpus = convolume._core.available_cpus()
for _ in range(20):
    convolume.conv3d(x, w, threads=2)
helpers = set(os.listdir("/proc/self/task")) - before
widest = max((len(os.sched_getaffinity(int(one))) for one in helpers), default=0)
print(len(mine), cpus, widest, os.sched_getaffinity(0) == mine)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_helpers_use_all_processors_if_openmp_bound_the_thread_that_imports():
    cpus = len(os.sched_getaffinity(0))
    result = run(BOUND, OMP_PROC_BIND="true")
    if "libgomp.so.1" in result.stderr:
        pytest.skip("libgomp.so.1 is not installed")
    assert result.stdout.split() == ["1", str(cpus), str(cpus), "True"], result.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2 or shutil.which("taskset") is None, reason="needs taskset")
def test_a_process_that_is_restricted_from_outside_stays_there():
    last = str(max(os.sched_getaffinity(0)))
    result = subprocess.run(["taskset", "-c", last, sys.executable, "-c", BOUND], capture_output=True, text=True,
                            env={**os.environ, "OMP_PROC_BIND": "true"}, timeout=120, check=False)
    if "libgomp.so.1" in result.stderr:
        pytest.skip("libgomp.so.1 is not installed")
    assert result.stdout.split() == ["1", "1", "1", "True"], result.stderr


@pytest.mark.parametrize("daemon", [False, True])
def test_threads_that_compute_while_the_interpreter_ends_do_not_crash_it(daemon):
    result = run(f"""
import threading, time, numpy as np, convolume
x, w = np.ones((1, 16, 32, 32, 32), "float32"), np.ones((16, 16, 3, 3, 3), "float32")
def work():
    try:
        for _ in range(2000 if {daemon} else 20):
            convolume.conv3d(x, w, threads=2)
            convolume.fft.rfftn(x)
    except RuntimeError as error:
        assert "ending" in str(error)
threads = [threading.Thread(target=work, daemon={daemon}) for _ in range(4)]
for thread in threads:
    thread.start()
time.sleep(0.2)
""")
    assert result.returncode == 0 and "terminate" not in result.stderr, result.stderr


def test_ctrl_c_ends_a_training_with_a_checkpoint_that_can_be_continued(tmp_path, tiny_net):
    code = f"""
import numpy as np, convolume
image = np.random.default_rng(1).random((6, 20, 24), dtype="float32")
data = {{"train": [(image, (image > 0.5).astype("uint8"))]}}
def progress(state):
    if state.iteration == 3:
        print("running", flush=True)
try:
    convolume.train({str(tiny_net)!r}, data, {str(tmp_path / "run")!r}, iterations=10**6, on_progress=progress)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print(convolume.train({str(tiny_net)!r}, data, {str(tmp_path / "run")!r}, resume=True, iterations=10**6,
                          max_minutes=1e-3).iteration > 3)
"""
    # A shell starts what runs behind it without interrupts.
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:  # noqa: PLW1509
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - begin < 5
        assert process.stdout.read() == "True\n"
    assert process.returncode == 0


OLD_TBB = 'extern "C" const char* TBB_runtime_version() { return "2020.3"; }\n'


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_an_older_tbb_that_is_loaded_already_is_named(tmp_path):
    (tmp_path / "old.cpp").write_text(OLD_TBB)
    library = tmp_path / "libtbb.so.12"
    subprocess.run(["g++", "-shared", "-fPIC", "-Wl,-soname,libtbb.so.12", "-o", library, tmp_path / "old.cpp"], check=True)
    result = run(f"import ctypes; ctypes.CDLL({str(library)!r}, ctypes.RTLD_GLOBAL); import convolume")
    if not convolume._libraries.uses_tbb_of_the_system():  # noqa: SLF001
        assert result.returncode == 0, result.stderr
        return
    assert "ImportError" in result.stderr and str(library) in result.stderr and "2020.3" in result.stderr


def test_no_function_of_the_package_changes_the_simd_target():
    assert not any("set_simd" in name for module in (convolume, convolume._core) for name in dir(module))  # noqa: SLF001


@pytest.mark.parametrize("engine", ["fft_tiled", "fft_volume"])
def test_a_changed_x_is_found_between_the_passes_if_the_environment_asks_for_it(engine):
    code = f"""
import numpy as np, convolume
x, w = np.ones((1, 8, 12, 12, 12), "float32"), np.ones((8, 8, 5, 5, 5), "float32")
plan = convolume.ConvPlan(x.shape, w.shape, engine={engine!r})
x_hat = plan.spectra()
y = plan.forward(x, w, x_hat=x_hat)
plan.backward(x, y, w, x_hat=x_hat)
x[0, 3, 2, 1, 0] = 2
try:
    plan.backward(x, y, w, x_hat=x_hat)
    print("unseen")
except convolume.StaleCache:
    print("found")
"""
    assert run(code).stdout == "unseen\n"
    assert run(code, CONVOLUME_CHECK_WEIGHTS="1").stdout == "found\n"
