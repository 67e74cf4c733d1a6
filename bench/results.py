#!/usr/bin/env python3
"""Runs the measurements that the documents quote, and renders the pages that quote them.

    bench/results.py --run [--build build/release] [--quick] [--only fft,conv] [--processes 5]
    bench/results.py --render
    bench/results.py --check
    bench/results.py --list

--run writes one JSON file per measurement to docs/performance/data: the rows of the benchmark's report with the
machine, the commit, the date and the command, in the form of bench/results_data.py. --render writes
docs/performance/results.md, losses.md, plots/*.svg and the table of README.md from these files. --check compares what
is committed with what --render would write and exits with status 1 if they differ. docs/performance/method.md says how
the benchmarks measure. Needs Python 3 only.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from typing import Any, Iterable, Optional

import results_conv
import results_data
import results_pages

SOURCE = pathlib.Path(__file__).resolve().parent.parent
INTERRUPTED = 130  # the status of a benchmark that Ctrl-C stopped


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One command line. `groups` are words that --only knows, `quick` replaces the arguments with --quick.

    Minutes are estimates for two cores and one process. An empty `quick` means that --quick leaves the measurement
    out.
    """
    name: str
    groups: str
    program: str
    arguments: str
    minutes: float
    quick: str = ""
    quick_minutes: float = 0.0

    def command(self, build: str, quick: bool) -> list[str]:
        """Words of the command, without --json."""
        return [f"{build}/bench/{self.program}", *shlex.split(self.quick if quick else self.arguments)]

    def cost(self, quick: bool) -> float:
        """Minutes that the measurement takes in one process."""
        return self.quick_minutes if quick else self.minutes


BLOCKED = "--side-by-side --layout blocked --threads 2 --one-thread-too"
BESIDE_ONEDNN, WITH_TORCH = f"{BLOCKED} --peers onednn", f"{BLOCKED} --peers onednn,torch --batch 1,2"
HEADLINE_LIST = "--problems bench/problems/headline.txt"
FFT = "--side-by-side --kind r2c"
PEERS = "--peers torch,onnxruntime,openvino --batch 1,2 --threads 2"
ONEDNN = ("--side-by-side --engine automatic,onednn --backend native --cache on --threads 2 --batch 1,2 "
          "--work training,inference --memory-budget 16")
ISOTROPIC, ANISOTROPIC = "--net nets/zoo/unet_isotropic.toml", "--net nets/zoo/unet_anisotropic.toml"
WIDTH_DEPTH = "--width 30 --depth 8 --kernel 5 --extent 48"
GRAPHS = "--side-by-side --net nets/zoo/width_depth.toml nets/zoo/unet_isotropic.toml --threads 2"
ALLOC = "--side-by-side --net nets/zoo/width_depth.toml"
PUBLISHED = " ".join(f"bench/problems/published/{name}.txt" for name in results_pages.PUBLISHED)


def conv_list(name: str, minutes: float, quick_minutes: float = 0.0, with_torch: bool = False) -> Measurement:
    """The measurement of a list of problems: forward and training beside oneDNN; with PyTorch, for batches of 1 and
    2."""
    problems = f"--problems bench/problems/{name}.txt"
    quick = f"{BESIDE_ONEDNN} {problems} --dir fwd --rounds 3 --max-seconds 0.1" if quick_minutes > 0 else ""
    full = f"{WITH_TORCH if with_torch else BESIDE_ONEDNN} {problems} --dir fwd,training --rounds 3 --max-seconds 0.2"
    return Measurement(f"conv_{name}", "conv", "bench_conv", full, minutes, quick, quick_minutes)


# Everything that is measured, and how. This is the place to adjust a command.
MEASUREMENTS: tuple[Measurement, ...] = (
    Measurement("fft_r2c", "fft", "bench_fft", f"{FFT} --sizes 8:256", 9,
                f"{FFT} --sizes 8,12,16,17,20,24,30,31,32,40,48,61,64,80,96,97,128", 0.5),
    Measurement("fft_peers", "fft peers", "bench_fft",
                "--side-by-side --kind r2c,c2c --impl native,fftw,ducc0,mkl "
                "--sizes 16,17,24,31,32,48,61,64,96,97,127,128,192,193,251,256", 3),
    Measurement("conv_headline_blocked", "conv peers onednn headline", "bench_conv",
                f"{WITH_TORCH} {HEADLINE_LIST} --dir fwd,training --rounds 3 --max-seconds 0.3", 31,
                f"{BESIDE_ONEDNN} {HEADLINE_LIST} --dir fwd,training --rounds 3 --max-seconds 0.2", 2),
    conv_list("anisotropic", 1),
    conv_list("depthwise", 6),
    conv_list("dilated_strided", 1),
    conv_list("grouped", 1),
    conv_list("kernels", 1, 0.5),
    conv_list("paper_nets", 3),
    conv_list("planar", 1, 0.5),
    conv_list("unet3d", 45, with_torch=True),
    Measurement("conv_published", "published", "bench_conv",
                f"--side-by-side --layout blocked --threads 2 --peers onednn --dir fwd,training --max-seconds 0.3 "
                f"--problems {PUBLISHED}", 25),
    Measurement("net_peers_unet_isotropic", "net peers torch", "bench_net", f"{PEERS} {ISOTROPIC} --rounds 5", 3),
    Measurement("net_peers_unet_anisotropic", "net peers torch", "bench_net", f"{PEERS} {ANISOTROPIC} --rounds 9", 2,
                f"{PEERS} {ANISOTROPIC} --rounds 2 --min-seconds 0", 1),
    Measurement("net_peers_width_depth", "net peers torch", "bench_net", f"{PEERS} {WIDTH_DEPTH} --rounds 9", 1.5,
                f"{PEERS} {WIDTH_DEPTH} --rounds 2 --min-seconds 0", 0.5),
    Measurement("net_onednn_unet_isotropic", "net peers onednn", "bench_net", f"{ONEDNN} {ISOTROPIC} --rounds 5", 1.5),
    Measurement("net_onednn_unet_anisotropic", "net peers onednn", "bench_net", f"{ONEDNN} {ANISOTROPIC} --rounds 7",
                1),
    Measurement("net_onednn_width_depth", "net peers onednn", "bench_net", f"{ONEDNN} {WIDTH_DEPTH} --rounds 7", 1,
                f"{ONEDNN} {WIDTH_DEPTH} --rounds 3 --min-seconds 0", 0.5),
    Measurement("scheduler", "scheduler", "bench_scheduler", f"{GRAPHS} --rounds 101 --min-seconds 1", 1,
                f"{GRAPHS} --rounds 11 --min-seconds 0.1", 0.5),
    Measurement("alloc", "alloc", "bench_alloc", f"{ALLOC} --threads 1,2 --rounds 5", 5,
                f"{ALLOC} --threads 1 --rounds 2 --iterations 1", 1),
)


def minutes_text(minutes: float) -> str:
    return "1 minute" if minutes == 1 else f"{minutes:g} minutes"


class RunError(Exception):
    """What the user has to know and can repair; the text says how."""


def chosen(only: str, quick: bool) -> list[Measurement]:
    """The measurements that --only names (all without it), without those that --quick leaves out."""
    words = [word for word in only.split(",") if word]
    known = {word for m in MEASUREMENTS for word in (m.name, *m.groups.split())}
    for word in words:
        if word not in known:
            names = ", ".join(sorted(known))
            raise RunError(f"--only {word}: there is no such measurement or group; known are {names}")
    selected = [m for m in MEASUREMENTS if not words or {m.name, *m.groups.split()} & set(words)]
    selected = [m for m in selected if m.quick or not quick]
    if not selected:
        raise RunError(f"--only {only} --quick: --quick leaves all of these out; run them without --quick")
    return selected


def require_programs(measurements: Iterable[Measurement], build: str) -> None:
    """Raises RunError if a benchmark has not been built."""
    programs = sorted({m.command(build, False)[0] for m in measurements})
    missing = [program for program in programs if not os.access(SOURCE / program, os.X_OK)]
    if missing:
        raise RunError(f"{', '.join(missing)}: there is no such program. Build it with 'cmake --preset release && "
                       "cmake --build --preset release', or name the build folder with --build")


def git(*words: str) -> str:
    """What git prints, or nothing where the sources are not in a repository."""
    result = subprocess.run(["git", "-C", str(SOURCE), *words], capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else ""


def commit() -> str:
    """The commit, with "-dirty" if tracked files other than the performance pages differ from it."""
    name = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/performance")
    return f"{name}-dirty" if changed else name


def processor() -> dict[str, Optional[str]]:
    """Name, family and model of the processor, as the kernel says; None for what it does not say."""
    keys = {"model name": "processor", "cpu family": "family", "model": "model"}
    found: dict[str, Optional[str]] = {name: None for name in keys.values()}
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        key, _, value = line.partition(":")
        name = keys.get(key.strip())
        if name and found[name] is None:
            found[name] = value.strip()
    return found


def machine(report: dict[str, Any], load_average: float) -> dict[str, Any]:
    """The machine as the kernel and the benchmark describe it."""
    said = report.get("machine", {})
    here = processor()
    here["processor"] = said.get("cpu") or here["processor"]
    return {**here, "threads": said.get("cpus") or os.cpu_count(), "simd": said.get("simd"), "row": said.get("model"),
            "load_average": round(load_average, 2)}


def write_atomically(file: pathlib.Path, text: str) -> None:
    """Writes beside the file, then renames, so that no reader and no power cut sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise


def measure(measurement: Measurement, build: str, quick: bool) -> dict[str, Any]:
    """Runs one measurement and returns the content of its file. Raises RunError if the benchmark fails."""
    command = measurement.command(build, quick)
    load, date = os.getloadavg()[0], datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "report.json"
        status = subprocess.run([*command, "--json", str(file)], cwd=SOURCE).returncode
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        if status != 0:
            raise RunError(f"{measurement.name}: {measurement.program} ended with status {status}")
        try:
            report = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{measurement.name}: {measurement.program} left no report ({error})") from error
    return {"name": measurement.name, "machine": machine(report, load), "commit": commit(), "date": date,
            "quick": quick, "command": shlex.join(command), "report": report}


def combined(contents: list[dict[str, Any]]) -> dict[str, Any]:
    """One content from those of several processes: of each row of convolutions the process with the median ratio that
    counts (of an even number, the lower one), and the ratio of each process. Of other measurements the last process."""
    if len(contents) == 1:
        return contents[0]
    if not contents[0]["name"].startswith("conv_"):
        return contents[-1]
    rows = []
    reports = [content["report"]["results"] for content in contents]
    if len(set(map(len, reports))) > 1:
        raise RunError(f"{contents[0]['name']}: the processes measured different numbers of rows")
    for same in zip(*reports):
        if len({(row["name"], row["dir"], row["threads"]) for row in same}) > 1:
            raise RunError(f"{contents[0]['name']}: the processes measured different rows")
        ratios = [results_conv.ratio_that_counts(row) for row in same]
        median = sorted(zip(ratios, same), key=lambda pair: pair[0] or 0.0)[(len(same) - 1) // 2][1]
        rows.append({**median, "ratios": ratios})
    processes = [{"date": content["date"], "load_average": content["machine"]["load_average"]} for content in contents]
    return {**contents[0], "processes": processes, "report": {**contents[0]["report"], "results": rows}}


def file_text(content: dict[str, Any]) -> str:
    """The text of a data file. Raises RunError if a value does not fit into a line."""
    report = results_data.compact(content["report"])
    known = {"cpu", "cpus", "model", "simd", "load_average"}  # machine() has them
    report["machine"] = {key: value for key, value in report.get("machine", {}).items() if key not in known}
    try:
        return results_data.text({**content, "command": shlex.split(content["command"]), "report": report})
    except results_data.FormError as error:
        raise RunError(f"{content['name']}: the report cannot be written: {error}") from error


def run(build: str, quick: bool, only: str, processes: int, data: pathlib.Path) -> int:
    """Runs the chosen measurements one after the other, and all of them again for each further process. One that fails
    does not stop the others. Each process completes a file."""
    measurements = chosen(only, quick)
    require_programs(measurements, build)
    turns = measurements * processes
    total = sum(m.cost(quick) for m in turns)
    print(f"{len(turns)} processes, about {minutes_text(total)}; nothing else should run on this machine "
          f"(load average {os.getloadavg()[0]:.1f})", flush=True)
    failures: list[str] = []
    contents: dict[str, list[dict[str, Any]]] = {}
    for number, measurement in enumerate(turns, 1):
        print(f"\n[{number}/{len(turns)}] {measurement.name}, about {minutes_text(measurement.cost(quick))}: "
              f"{shlex.join(measurement.command(build, quick))}", flush=True)
        so_far = contents.setdefault(measurement.name, [])
        try:
            so_far.append(measure(measurement, build, quick))
            text = file_text(combined(so_far))
        except RunError as error:
            print(f"results.py: {error}", file=sys.stderr, flush=True)
            failures.append(measurement.name)
            continue
        file = data / f"{measurement.name}.json"
        write_atomically(file, text)
        print(f"wrote {file}", flush=True)
    if failures:
        print(f"results.py: failed: {', '.join(dict.fromkeys(failures))}", file=sys.stderr)
    return 1 if failures else 0


def render(data: pathlib.Path, out: pathlib.Path, readme: pathlib.Path) -> int:
    """Writes the pages, the plots and the README's table; removes plots whose data are gone."""
    for file, text in rendered(data, out, readme).items():
        if text is None:
            file.unlink(missing_ok=True)
        else:
            write_atomically(file, text)
            print(f"wrote {file}")
    return 0


def rendered(data: pathlib.Path, out: pathlib.Path, readme: pathlib.Path) -> dict[pathlib.Path, Optional[str]]:
    """{file: its text}, None for a plot without data."""
    texts = {out / name: text for name, text in results_pages.pages(data).items()}
    try:
        texts[readme] = results_pages.readme(data, readme.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{readme}: cannot be read ({error.strerror}); name the README with --readme") from error
    return texts


def check(data: pathlib.Path, out: pathlib.Path, readme: pathlib.Path) -> int:
    """1 if a page, a plot or the README differs from what render() would write, else 0."""
    different = [str(file) for file, text in rendered(data, out, readme).items()
                 if (file.read_text(encoding="utf-8") if file.is_file() else None) != text]
    for file in different:
        print(f"results.py: {file} differs from the data; run bench/results.py --render", file=sys.stderr)
    return 1 if different else 0


def list_measurements(build: str, quick: bool, only: str) -> int:
    """Prints what --run would do."""
    for m in chosen(only, quick):
        print(f"{m.name} ({', '.join(m.groups.split())}), about {minutes_text(m.cost(quick))}\n"
              f"    {shlex.join(m.command(build, quick))}")
    return 0


def arguments(words: list[str]) -> argparse.Namespace:
    """The command line, read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_mutually_exclusive_group(required=True)
    modes.add_argument("--run", action="store_true", help="measure, and write the data")
    modes.add_argument("--render", action="store_true", help="write the pages from the data")
    modes.add_argument("--check", action="store_true", help="compare the pages with the data; status 1 if they differ")
    modes.add_argument("--list", action="store_true", help="print the measurements with their commands")
    parser.add_argument("--build", default="build/release", help="folder of the build (build/release)")
    parser.add_argument("--quick", action="store_true", help="fewer problems and rounds: at most 8 minutes, not 145")
    parser.add_argument("--processes", type=int, default=1, metavar="N",
                        help="with --run: measure convolutions in N processes; of each row the median one counts (1)")
    parser.add_argument("--only", default="", metavar="NAMES", help="measurements or groups, separated by commas")
    pages = SOURCE / "docs/performance"
    parser.add_argument("--data", type=pathlib.Path, default=pages / "data", help="folder of the JSON files")
    parser.add_argument("--out", type=pathlib.Path, default=pages, help="folder of the pages")
    parser.add_argument("--readme", type=pathlib.Path, default=SOURCE / "README.md", help="file with the short table")
    options = parser.parse_args(words)
    if options.processes < 1:
        parser.error(f"--processes {options.processes}: at least one process has to measure")
    return options


def main(words: list[str]) -> int:
    """Returns the status of the process."""
    options = arguments(words)
    try:
        if options.run:
            return run(options.build, options.quick, options.only, options.processes, options.data)
        if options.list:
            return list_measurements(options.build, options.quick, options.only)
        return (render if options.render else check)(options.data, options.out, options.readme)
    except (RunError, results_pages.DataError) as error:
        print(f"results.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("results.py: interrupted; files of finished measurements stay", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
