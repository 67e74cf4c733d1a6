"""Loads the shared library into Python and convolves through the C interface.

    python_loads_test.py LIBRARY VERSION
"""
import ctypes
import sys

Three = ctypes.c_int64 * 3
COUNT = ctypes.c_int64


class Problem(ctypes.Structure):
    """convolume_conv_problem of convolume.h."""

    _fields_ = [("data_type", COUNT), ("batch", COUNT), ("in_channels", COUNT), ("out_channels", COUNT),
                ("groups", COUNT), ("input", Three), ("kernel", Three), ("stride", Three), ("dilation", Three),
                ("pad_before", Three), ("pad_after", Three), ("transposed", COUNT), ("output_padding", Three),
                ("x_layout", COUNT), ("y_layout", COUNT), ("bias", COUNT), ("activation", COUNT),
                ("activation_slope", ctypes.c_double)]


def main():
    library = ctypes.CDLL(sys.argv[1])
    for name in ("convolume_version", "convolume_last_error"):
        getattr(library, name).restype = ctypes.c_char_p
    library.convolume_conv_destroy.argtypes = [ctypes.c_void_p]
    library.convolume_conv_destroy.restype = None
    version = library.convolume_version().decode()
    assert version == sys.argv[2], f"version {version}, expected {sys.argv[2]}"

    def call(name, *arguments):
        status = getattr(library, name)(*arguments)
        assert status == 0, f"{name}: {status}, {library.convolume_last_error().decode()}"

    problem = Problem()
    call("convolume_conv_problem_init", ctypes.byref(problem))
    problem.input, problem.kernel = Three(1, 1, 5), Three(1, 1, 2)
    plan = ctypes.c_void_p()
    call("convolume_conv_create", ctypes.byref(problem), 2, ctypes.byref(plan))
    shape = (ctypes.c_int64 * 5)()
    call("convolume_conv_output_shape", plan, shape)
    assert list(shape) == [1, 1, 1, 1, 4], list(shape)
    x, w, y = (ctypes.c_float * 5)(1, 2, 3, 4, 5), (ctypes.c_float * 2)(10, 1), (ctypes.c_float * 4)()
    call("convolume_conv_forward", plan, x, w, None, y)
    assert all(abs(a - b) < 1e-3 for a, b in zip(y, (12, 23, 34, 45))), list(y)
    library.convolume_conv_destroy(plan)

    problem.kernel[2] = 9
    assert library.convolume_conv_create(ctypes.byref(problem), 1, ctypes.byref(plan)) == 1 and not plan.value
    assert b"kernel" in library.convolume_last_error()
    print(f"convolume {version} in Python {sys.version.split()[0]}")


main()
