"""Tells which BLAS and which oneDNN a process of PyTorch computes with."""
import re

from environment import REMEDY, PeerError

# What a file's path must contain, in this order: a path of ATLAS may end with libblas.so.3.
FILES = (("openblas", "OpenBLAS"), ("mkl", "MKL"), ("blis", "BLIS"), ("atlas", "ATLAS"),
         ("libblas", "the reference BLAS"), ("libcblas", "the reference BLAS"))
# What PyTorch's configuration calls a BLAS that it may link statically.
STATIC = {"mkl": "MKL", "open": "OpenBLAS", "openblas": "OpenBLAS", "flame": "BLIS", "blis": "BLIS", "atlas": "ATLAS",
          "generic": "a generic BLAS", "eigen": "Eigen"}
ACCEPTED = ("OpenBLAS", "MKL", "BLIS")


def mapped_files():
    """Returns the shared libraries of this process, without those that NumPy and SciPy bring for themselves."""
    with open("/proc/self/maps", encoding="utf-8") as lines:
        files = {line.split(maxsplit=5)[5].strip() for line in lines if len(line.split(maxsplit=5)) == 6}
    return sorted(file for file in files if ".so" in file and not re.search(r"/(numpy|scipy)(\.libs)?/", file))


def blas_of(files, configuration):
    """Returns the kind of the BLAS and a text that says where it comes from: a mapped file, or, if there is none,
    PyTorch's configuration."""
    for part, kind in FILES:
        for file in files:
            if part in file.lower():
                return kind, f"{kind} ({file})"
    stated = re.search(r"BLAS_INFO=([^,\s]*)", configuration)
    kind = STATIC.get(stated.group(1).lower(), stated.group(1)) if stated else "an unknown BLAS"
    version = re.search(r"Math Kernel Library Version (\S+?)-", configuration) if kind == "MKL" else None
    return kind, f"{kind}{' ' + version.group(1) if version else ''} (linked statically)"


def onednn_of(files, configuration):
    """Returns a text that names oneDNN and says where it comes from."""
    stated = re.search(r"MKL-DNN v(\S+)", configuration)
    version = f"oneDNN {stated.group(1)}" if stated else "oneDNN"
    file = next((file for file in files if "libdnnl" in file or "libmkldnn" in file), None)
    if file is None and stated is None:
        return "none"
    return f"{version} ({file or 'linked statically'})"


def require_fast_blas(kind, text):
    """Raises PeerError for a BLAS that would hold PyTorch back."""
    if kind not in ACCEPTED:
        raise PeerError(f"PyTorch computes with {text}, which holds it back; use a PyTorch with "
                        f"{', '.join(ACCEPTED[:-1])} or {ACCEPTED[-1]} ({REMEDY} installs one), or measure with this "
                        "one by --any-blas")


def torch_facts(torch, any_blas):
    """Returns version, threads, BLAS and oneDNN of this process. Raises PeerError for a slow BLAS, except if
    `any_blas` is set."""
    torch.mm(torch.ones(2, 2), torch.ones(2, 2))  # maps a BLAS that is loaded at the first use
    files, configuration = mapped_files(), torch.__config__.show()
    kind, text = blas_of(files, configuration)
    if not any_blas:
        require_fast_blas(kind, text)
    elif kind not in ACCEPTED:
        text += ", accepted by --any-blas"
    return {"version": torch.__version__, "threads": torch.get_num_threads(), "blas": text,
            "onednn": onednn_of(files, configuration)}
