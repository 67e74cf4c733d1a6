"""Plans, trains and predicts with the commands of nnU-Net, with `python -m convolume.torch` and without.

    nnunet_commands.py       status 77 if nnU-Net or the volumes are missing

Both predict with the same weights. A voxel may have another label only if the two best probabilities of the voxel
differ by less than 1e-4. nnU-Net adds the logits of windows in half precision. So single probabilities differ more: by
3e-3 from PyTorch's, and by 2e-3 between PyTorch's own kernels (ONEDNN_MAX_CPU_ISA=SSE41).

build/peers has nnU-Net (tools/install_packages.sh --peers). CONVOLUME_DATA_DIR names the folder that has the folder
`hippocampus`.
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

DATA = pathlib.Path(os.environ.get("CONVOLUME_DATA_DIR", "")) / "hippocampus"
TRAINING, TEST = 6, 2
LINE = re.compile(r"convolume\.torch: (\d+) convolutions in [\d.]+ s; (\d+) left to PyTorch( \(\d+ processes\))?")
# nnUNetv2_train with one short epoch. A trainer of another name would do, but nnU-Net then imports all of its own
# trainers. Some need torchvision, and the one of PyPI cannot be imported beside a PyTorch for CPUs.
TRAIN = """
import functools
from nnunetv2.run.run_training import run_training_entry
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

original = nnUNetTrainer.__init__

@functools.wraps(original)
def init(self, *args, **kwargs):
    original(self, *args, **kwargs)
    self.num_epochs, self.num_iterations_per_epoch, self.num_val_iterations_per_epoch = 1, 6, 1

nnUNetTrainer.__init__ = init
if __name__ == "__main__":
    run_training_entry()
"""


def make_dataset(folder):
    """Writes the cases in the folders that nnU-Net reads, and a program that trains for one short epoch."""
    dataset = folder / "raw/Dataset004_Hippocampus"
    for name in ("imagesTr", "labelsTr", "imagesTs"):
        (dataset / name).mkdir(parents=True)
    for number, image in enumerate(sorted((DATA / "images").glob("*.nii.gz"))[:TRAINING + TEST]):
        case = image.name.removesuffix(".nii.gz")
        shutil.copy(image, dataset / ("imagesTr" if number < TRAINING else "imagesTs") / f"{case}_0000.nii.gz")
        if number < TRAINING:
            shutil.copy(DATA / "labels" / image.name, dataset / "labelsTr" / image.name)
    labels = {"background": 0, "anterior": 1, "posterior": 2}
    (dataset / "dataset.json").write_text(json.dumps({
        "channel_names": {"0": "MRI"}, "labels": labels, "numTraining": TRAINING, "file_ending": ".nii.gz"}))
    (folder / "nnUNetv2_train_shortly.py").write_text(TRAIN)
    return dataset


def environment(folder):
    paths = {f"nnUNet_{name}": str(folder / name) for name in ("raw", "preprocessed", "results")}
    return {**os.environ, **paths, "nnUNet_n_proc_DA": "1", "nnUNet_def_n_proc": "1", "nnUNet_compile": "f"}


def run(folder, program, *arguments, ours=True):
    """Runs a command of nnU-Net, and returns its seconds and how many convolutions were ours."""
    start = [sys.executable, *(["-m", "convolume.torch"] if ours else [])]
    if not ours:
        program = pathlib.Path(sys.executable).parent / program  # which is that of an absolute path
    begin = time.perf_counter()
    found = subprocess.run([*start, *map(str, [program, *arguments])], env=environment(folder), capture_output=True,
                           text=True, check=False, timeout=1500)
    seconds = time.perf_counter() - begin
    line = LINE.search(found.stderr)
    if found.returncode != 0 or ours != bool(line):
        print(found.stdout[-3000:], found.stderr[-3000:], sep="\n")
        sys.exit(f"{program} ended with status {found.returncode}")
    who = line[0] if line else "PyTorch"
    print(f"{pathlib.Path(program).name}: {seconds:.1f} s ({who})", flush=True)
    return seconds, int(line[1]) if line else 0


def use_small_batches(folder):
    """Changes the batch of the plan from 9 to 2, so that a step takes less time."""
    (file,) = folder.glob("preprocessed/*/nnUNetPlans.json")
    plans = json.loads(file.read_text())
    plans["configurations"]["3d_fullres"]["batch_size"] = 2
    file.write_text(json.dumps(plans))


def compare(mine, theirs):
    """Asserts that labels differ only where the two best probabilities are close, and prints how much they differ."""
    import nibabel
    import numpy
    different, largest, mean, known = 0, 0.0, 0.0, set()
    files = sorted(theirs.glob("*.nii.gz"))
    assert len(files) == TEST
    for file in files:
        labels, wanted = (numpy.asarray(nibabel.load(folder / file.name).dataobj) for folder in (mine, theirs))
        name = file.name.replace(".nii.gz", ".npz")
        found, probabilities = (numpy.load(folder / name)["probabilities"] for folder in (mine, theirs))
        best = numpy.sort(probabilities, axis=0)[-2:]
        # The axes of the probabilities are those of SimpleITK: Z, Y, X.
        close = (best[1] - best[0] < 1e-4).transpose(2, 1, 0)
        assert close.shape == labels.shape == wanted.shape
        assert ((labels == wanted) | close).all()
        different += int((labels != wanted).sum())
        distances = abs(found - probabilities)
        largest, mean = max(largest, float(distances.max())), max(mean, float(distances.mean()))
        known |= set(numpy.unique(wanted).tolist())
    print(f"labels {known}; {different} differ; probabilities differ by {mean:.1e}, and by {largest:.1e} at most")
    assert 0 < mean < 1e-5


def main():
    if importlib.util.find_spec("nnunetv2") is None:
        print("SKIPPED: nnU-Net is not installed")
        sys.exit(77)
    if not DATA.is_dir():
        print("SKIPPED: CONVOLUME_DATA_DIR does not name a folder that holds hippocampus")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        dataset = make_dataset(folder)
        run(folder, "nnUNetv2_plan_and_preprocess", "-d", 4, "-c", "3d_fullres", "-np", 1, "-npfp", 1, "--no_pbar")
        use_small_batches(folder)
        seconds = {}
        for ours in (False, True):
            seconds["training", ours], count = run(
                folder, folder / "nnUNetv2_train_shortly.py", 4, "3d_fullres", 0, "-device", "cpu", ours=ours)
            assert (count > 0) == ours
        for ours in (False, True):
            seconds["prediction", ours], count = run(
                folder, "nnUNetv2_predict", "-i", dataset / "imagesTs", "-o", folder / f"out{ours}", "-d", 4, "-c",
                "3d_fullres", "-f", 0, "-npp", 1, "-nps", 1, "--save_probabilities", "-device", "cpu",
                ours=ours)
            assert (count > 0) == ours
        for what in ("training", "prediction"):
            print(f"{what}: PyTorch's time over ours {seconds[what, False] / seconds[what, True]:.2f}")
        compare(folder / "outTrue", folder / "outFalse")


if __name__ == "__main__":
    main()
