#!/usr/bin/env python3
"""Finds the library of MKL in build/peers. bench_fft --impl mkl runs it, and loads the library.

It is a service (service.py) without commands. Its facts are "version" and "library", the path of libmkl_rt.
"""
import importlib.metadata

from environment import PeerError, check
from service import serve


def start():
    check("mkl")
    package = importlib.metadata.distribution("mkl")
    library = next((file for file in package.files or [] if file.name.startswith("libmkl_rt.so")), None)
    if library is None:
        raise PeerError(f"mkl {package.version} in build/peers has no libmkl_rt.so")
    return {"version": package.version, "library": str(library.locate().resolve())}, lambda command: {}


if __name__ == "__main__":
    serve(start)
