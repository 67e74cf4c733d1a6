"""Results that must not change by accident: what the cost model chooses for every list of problems, and the losses and
parameters of every net of the zoo after some iterations. A machine row decides choices, and choices decide roundings,
so the rows are selected by name. The results are then the same on every machine with these SIMD targets.

    record_test.py SOURCE CONVOLUME CHOICES_DUMP [--update]

--update writes the record for the SIMD targets that this machine has. Do that only if a change of results is meant.
"""
import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

# Net of the zoo, input patch, extent of the synthetic volume: one half of its planes for training, one for validation.
NETS = [
    ("demo", [8, 64, 64], [16, 64, 64]),
    ("n4", [1, 100, 100], [2, 100, 100]),
    ("unet_anisotropic", [12, 32, 32], [24, 32, 32]),
    ("unet_isotropic", [32, 32, 32], [64, 32, 32]),
    ("width_depth", [36, 36, 36], [72, 36, 36]),
]
# Machine rows whose choices are recorded. Nets are trained under the first.
ROWS = ["zen4", "zen5", "ice_lake_sp"]
ITERATIONS = 2
DATA = """
name = "synthetic"
[synthetic]
extent = {extent}
cell_diameter = 12
[[train]]
slices = [0, {half}]
[[validation]]
slices = [{half}, {end}]
"""


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def run(command, target, row=""):
    environment = dict(os.environ, CONVOLUME_SIMD=target, CONVOLUME_MACHINE=row)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, timeout=500)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def choices(dump, source, target, row):
    """Row and SIMD target, and the text of the choices of each list."""
    # No net has the layers of a paper's test sets.
    files = [file for file in sorted((source / "bench/problems").glob("*.txt")) if file.stem != "swdnn"]
    lines = run([dump, *files], target, row).splitlines()
    lists = {}
    for line in lines[1:]:
        lists.setdefault(line.split(":")[0], []).append(line)
    return lines[0].split(" ", 1)[1], {name: "\n".join(text) for name, text in lists.items()}


def tensors(file):
    """Names, shapes and bytes of a checkpoint's tensors; not its texts, which name versions of libraries."""
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    text = b""
    for name in sorted(header):
        begin, end = header[name]["data_offsets"]
        text += f"{name} {header[name]['dtype']} {header[name]['shape']} ".encode() + data[8 + size + begin:8 + size + end]
    return text


def train(convolume, source, target, net, patch, extent):
    """Digests of the losses and of the state after some iterations."""
    with tempfile.TemporaryDirectory(prefix="convolume-record-") as folder:
        folder = pathlib.Path(folder)
        (folder / "data.toml").write_text(DATA.format(extent=extent, half=extent[0] // 2, end=extent[0]))
        run([convolume, "train", source / f"nets/zoo/{net}.toml", "--data", folder / "data.toml", "--out",
             folder / "run", "--iterations", ITERATIONS, "--seed", 5, "--threads", 2, "--quiet",
             "--set", "training.validate_every=1000", "--set", f"input.patch={patch}"], target, ROWS[0])
        metrics = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
        losses = json.dumps([line["loss"] for line in metrics]).encode()
        return {"losses": digest(losses), "state": digest(tensors(folder / "run/checkpoints/last.safetensors"))}


def main():
    update = "--update" in sys.argv
    source, convolume, dump = (pathlib.Path(word) for word in sys.argv[1:4])
    file = pathlib.Path(__file__).with_name("record.json")
    record = json.loads(file.read_text()) if file.exists() else {}
    failures, skipped = 0, set()
    targets = run([convolume, "info"], "").split("available:", 1)[-1].split(";")[0]
    for target, machine in [(target, machine) for target in ["AVX3", "AVX2"] for machine in ROWS]:
        if target not in targets:
            skipped.add(target)
            continue
        row, lists = choices(dump, source, target, machine)
        found = {"choices": {name: digest(text.encode()) for name, text in lists.items()}, "nets": {}}
        if machine == ROWS[0]:
            found["nets"] = {net: train(convolume, source, target, net, patch, extent) for net, patch, extent in NETS}
        if update:
            record[row] = found
            continue
        if row not in record:
            failures += 1
            print(f"{row}: there is no record; write it with --update")
            continue
        for part in ["choices", "nets"]:
            for name, value in record[row][part].items():
                if found[part].get(name) == value:
                    continue
                failures += 1
                print(f"{row}: {part} of {name} changed: {found[part].get(name)}, recorded {value}")
                if part == "choices":
                    text = pathlib.Path(tempfile.gettempdir()) / f"{row.replace('/', '-')}-{name}.txt"
                    text.write_text(lists.get(name, ""))
                    print(f"  what is chosen now stands in {text}")
    for target in sorted(skipped):
        print(f"SKIPPED: record_test: {target} is missing in this machine or in this build")
    if update:
        file.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        print(f"wrote {file}")
    elif failures == 0:
        print("results are as recorded")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
