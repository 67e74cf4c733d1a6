"""The nets in the pages of bench/results.py: tables, losses, and rows of the README."""
from typing import NamedTuple, Sequence

from results_text import Json, Loss, mebibytes, ratio_text, reason, seconds_text, spread, table

LIBRARIES = {"torch": "PyTorch", "onnxruntime": "onnxruntime", "openvino": "OpenVINO"}
OUR_FRAMEWORK = "our framework with oneDNN's convolutions"


class NetRatio(NamedTuple):
    """A kind of work of a net with one batch, beside one peer."""
    ratio: Json
    ours: Json
    name: str
    peer: Json
    same_precision: bool

    def times(self) -> str:
        return f"{seconds_text(self.ours['seconds'])}, {seconds_text(self.peer['seconds'])}"


def same_net(row: Json, ratio: Json) -> bool:
    return all(row[key] == ratio[key] for key in ("net", "work", "batch"))


def peer_net(report: Json, ratio: Json) -> NetRatio:
    """The rows that a ratio compares: ours with automatic choice, and a library's or ours with another engine."""
    rows = [row for row in report["results"] if same_net(row, ratio)]
    ours = next((row for row in rows if row.get("engine", "automatic") == "automatic"), rows[0])
    if "peer" not in ratio:
        other = next(row for row in rows if row is not ours)
        name = OUR_FRAMEWORK if other["engine"] == "onednn" else f"engine {other['engine']}"
        return NetRatio(ratio, ours, name, other, True)
    row = next(row for row in report["peers"] if same_net(row, ratio)
               and (row["peer"], row["setting"]) == (ratio["peer"], ratio["setting"]))
    name = f"{LIBRARIES[row['peer']]} {row['version']}"
    same = row["setting"] != "bfloat16"
    return NetRatio(ratio, ours, name if same else f"{name}, bfloat16", row, same)


def net_ratios(data: Json) -> list[NetRatio]:
    """The ratios of a report: training first, then by batch, in each the strongest peer first."""
    report = data["report"]
    ratios = sorted(report.get("ratios", []),
                    key=lambda ratio: (ratio["work"] != "training", ratio["batch"], ratio["ratio"]))
    return [peer_net(report, ratio) for ratio in ratios]


def net_table(data: Json) -> str:
    """A row for each ratio of the report, and what the peers compute with."""
    cells = []
    for one in net_ratios(data):
        setting = one.peer.get("setting")
        cells.append([one.ratio["work"], str(one.ratio["batch"]), seconds_text(one.ours["seconds"]),
                      f"{one.name} ({setting})" if setting and one.same_precision else one.name,
                      seconds_text(one.peer["seconds"]), ratio_text(one.ratio), mebibytes(one.ours.get("peak_bytes")),
                      mebibytes(one.ours.get("resident_bytes")), mebibytes(one.peer.get("resident_bytes"))])
    left_out = dict.fromkeys(f"{LIBRARIES[row['peer']]} ({row['setting']}) was left out: {row['reason']}.\n"
                             for row in data["report"].get("left_out", []))
    if not cells:
        return "The peer did not take part.\n" + "".join(left_out)
    facts = dict.fromkeys(f"- {LIBRARIES[row['peer']]} {row['version']}: {row['peer_threads']} threads, BLAS: "
                          f"{row['blas']}, oneDNN: {row['onednn']}\n" for row in data["report"].get("peers", []))
    head = ["work", "batch", "our time", "peer", "its time", "ratio", "our peak, MiB", "our resident memory, MiB"]
    return ("".join(facts) + ("\n" if facts else "") + table([*head, "the peer's, MiB"], cells)
            + ("\n" + "".join(left_out) if left_out else ""))


def net_losses(data: Json) -> list[Loss]:
    """Work in which a peer is faster."""
    return [Loss(one.ratio["ratio"], data["name"], f"{one.ratio['net']}, {one.ratio['work']}, batch "
                 f"{one.ratio['batch']}", one.name, one.times(), spread(one.ratio), "automatic",
                 reason("net", one.ratio["work"] if one.same_precision else "bfloat16"))
            for one in net_ratios(data) if one.ratio["ratio"] < 1]


def readme_net_rows(title: str, found: Sequence[Json], by_batch: bool) -> list[list[str]]:
    """Training and inference of one net, each with the peer whose ratio is the least. Rows for each batch, or for the
    batch with the least ratio."""
    ratios = [one for data in found for one in net_ratios(data) if one.same_precision]
    least: dict[tuple[str, int], NetRatio] = {}
    for one in ratios:
        key = one.ratio["work"], one.ratio["batch"] if by_batch else 0
        if key not in least or one.ratio["ratio"] < least[key].ratio["ratio"]:
            least[key] = one
    works = {"training": "training iteration", "inference": "inference"}
    return [[f"{title}, {works[work]}, batch {one.ratio['batch']}", seconds_text(one.ours["seconds"]), one.name,
             seconds_text(one.peer["seconds"]), ratio_text(one.ratio)]
            for (work, _), one in sorted(least.items(), key=lambda item: (item[0][0] != "training", item[0][1]))]
