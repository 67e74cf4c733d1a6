"""Threads of PyTorch and of the package: bits, several callers, forks, and environments that bind threads."""
import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import convolume  # noqa: E402
import convolume.torch as ours  # noqa: E402
from convolume.torch import _threads  # noqa: E402


def net_and_input(extent):
    torch.manual_seed(5)
    net = nn.Sequential(nn.Conv3d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 16, 5, groups=16, padding=2),
                        nn.ConvTranspose3d(16, 4, 2, stride=2))
    ours.replace_conv3d(net, policy="always")
    return net, torch.randn(2, 3, extent, extent, extent, requires_grad=True)


def step(net, x):
    """Returns the results of a training step."""
    net.zero_grad()
    x.grad = None
    y = net(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(one.grad for one in net.parameters())]


def equal(found, wanted):
    return all(torch.equal(one, other) for one, other in zip(found, wanted))


@pytest.fixture
def _threads_of_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    _threads.use_team_of_pytorch()


@pytest.mark.usefixtures("_threads_of_before")
def test_bits_are_the_same_on_any_threads_of_any_pool():
    torch.set_num_threads(1)
    wanted = step(*net_and_input(20))
    for use in (_threads.use_team_of_pytorch, _threads.use_own_threads):
        use()
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            assert equal(step(*net_and_input(20)), wanted), (use.__name__, number)


@pytest.mark.usefixtures("_threads_of_before")
def test_pytorch_of_pypi_has_a_team_that_can_be_used():
    if sys.platform != "linux" or "openmp" not in torch.__config__.parallel_info().lower():
        pytest.skip("this PyTorch computes in no threads of OpenMP")
    assert _threads.use_team_of_pytorch()
    for number, calls in ((2, 2), (1, 0)):
        torch.set_num_threads(number)
        before = convolume.statistics()["team_calls"]
        for _ in range(2):
            ours.conv3d(torch.randn(1, 8, 12, 12, 12), torch.randn(8, 8, 3, 3, 3))
        assert convolume.statistics()["team_calls"] == before + calls


def test_threads_that_compute_at_the_same_time_get_the_same_bits():
    wanted, found, barrier = step(*net_and_input(12)), {}, threading.Barrier(4)

    def train(number, net, x):
        barrier.wait()
        found[number] = [equal(step(net, x), wanted) for _ in range(5)]

    workers = [threading.Thread(target=train, args=(number, *net_and_input(12))) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == {number: [True] * 5 for number in range(4)}


def test_a_forked_child_gets_the_same_bits():
    x, w = torch.randn(1, 8, 12, 12, 12), torch.randn(8, 8, 3, 3, 3)
    wanted = ours.conv3d(x, w).numpy().tobytes()
    child = os.fork()
    if child == 0:  # on two threads, whose team is not there; PyTorch's own functions would wait for it
        code = 1
        try:
            code = 0 if ours.conv3d(x, w).numpy().tobytes() == wanted else 2
        finally:
            os._exit(code)  # noqa: SLF001
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wanted = step(*net_and_input(12))
    assert equal(step(*net_and_input(12)), wanted)


@pytest.mark.parametrize("environment", [{"OMP_PROC_BIND": "true"}, {"OMP_WAIT_POLICY": "passive"},
                                         {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}])
def test_environments_of_openmp_change_no_bits(environment, tmp_path):
    wanted = [one.numpy().tobytes() for one in step(*net_and_input(12))]
    code = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_torch_threads import net_and_input, step
before = os.sched_getaffinity(0)
open({str(tmp_path / "bits")!r}, "wb").write(b"".join(one.numpy().tobytes() for one in step(*net_and_input(12))))
assert os.sched_getaffinity(0) == before
"""
    path = os.pathsep.join(one for one in sys.path if one)
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path, **environment}, check=True)
    assert (tmp_path / "bits").read_bytes() == b"".join(wanted)
