"""Options and places: odd values for every option of every command, and paths that lead nowhere good."""

from __future__ import annotations

import os
import socket
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.cli_commands import find_command
from tests.fuzz.documents import make_calibrator, make_features, make_probe, make_run
from tests.fuzz.engine import Case, Exit, Surface, command
from tests.fuzz.mutators import word
from tests.fuzz.tables import RESAMPLES, texts

PLACES = (
    *(
        "votes",
        "labels",
        "out",
        "data",
        "images",
        "export",
        "apply",
        "audit",
        "weights",
        "features",
    ),
    *("finetuned", "cache", "files", "file", "path", "probe", "runs", "folder"),
)
"""Parameters that are paths, by name."""

NUMBERS = (
    *(
        "0",
        "1",
        "-1",
        "2",
        "3",
        "0.5",
        "-0.5",
        "1.5",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "1e400",
        "1e-320",
    ),
    *("10", "100", "1000000000000", "9223372036854775808", "-9223372036854775809", "1" + "0" * 300),
    *("0x10", "1_0", "１", "", " ", "1,2", "1,,2", "0,0", "-1,5", "1,nan", "a,b", ",", "7,7,7"),
)
LISTS = (
    *(
        "none",
        "none,none",
        "panel",
        "auto",
        "balanced",
        "temperature",
        "first",
        "drop",
        "error",
        "x",
    ),
    *(
        "excess > 0.05",
        "low: ece > 0.2",
        "ece >",
        "> 1",
        "x: y > z",
        ": ece > 1",
        "ece > nan",
        "ece == 1",
    ),
    *(
        "^(.)",
        "(",
        "(?P<a>.)",
        "(a*)*$",
        "()",
        "[",
        "^(.*)+$",
        "(?<=x)(y)",
        "cpu",
        "cuda",
        "cuda:9",
        "mps",
    ),
    *(
        "fp32",
        "float16",
        "paper",
        "default",
        "onnx",
        "npz",
        "eva",
        "trident",
        "table",
        "local",
        "uni",
    ),
    *("bins=1e6", "bins=", "=3", "x=1", "bins=1e400", "memory=-1", "bins=nan", "bins=10,classes=1"),
    *(
        "easy",
        "hard",
        "mhist",
        "lidc",
        "simulated",
        "resnet18",
        "best",
        "squash",
        "224",
        "100",
        "all",
    ),
)


def _prepare(folder: Path) -> dict[str, Any]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    kinds = texts()
    for name, text in kinds.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    from PIL import Image

    for i in range(4):
        Image.new("RGB", (4, 4), (i, 100, 200)).save(folder / f"t{i}.png")
    make_probe(folder / "probe")
    make_calibrator(folder / "calibrator.json")
    make_features(folder / "features")
    make_run(folder / "run")
    f = folder
    missing = f / "missing"
    lines: dict[str, list[list[Any]]] = {
        "audit": [
            ["audit", f / "full.csv", "--resamples", RESAMPLES],
            ["audit", f / "plain.csv", "--resamples", RESAMPLES, "--stream"],
            ["audit", f / "plain.csv", "--votes", missing],
            ["audit", missing],
        ],
        "calibrate": [
            ["calibrate", f / "full.csv", "--apply", f / "calibrator.json", "--resamples", RESAMPLES],
            ["calibrate", missing, "--out", "out"],
            ["calibrate", f / "full.csv", "--resamples", RESAMPLES, "--method", "none"],
        ],
        "import": [["import", f / "features.csv", "--out", "out"]],
        "check": [["check", f"table:{f / 'images.csv'}", "--data", f], ["check", "mhist", "--data", missing]],
        "predict": [["predict", f / "probe", f / "features.csv", "--out", "p.csv"]],
        "report": [["report", f / "run", "--out", "page.html"], ["report", missing]],
        "export": [["export", f / "probe", "--out", "out", "--audit", missing], ["export", missing]],
        "plan audit": [["plan", "--simulations", "nan"]],
        "plan votes": [["plan", "votes", "--simulations", "x"]],
        "plan precision": [["plan", "precision", "--predictions", missing], ["plan", "precision"]],
        "fit": [
            ["fit", missing, "--method", "none", "--out", "out"],
            ["fit", f / "plain.csv", "--method", "x", "--out", "out"],
        ],
        "compare": [["compare", missing, "--out", "out"]],
        "extract": [
            ["extract", f"table:{f / 'images.csv'}", "nosuch", "--out", "out"],
            ["extract", "mhist", "uni", "--data", missing, "--out", "out"],
        ],
        "finetune": [["finetune", "mhist", "--data", missing, "--out", "out"]],
        "reproduce": [
            ["reproduce", "--features", missing, "--out", "out"],
            ["reproduce", "--datasets", "nosuch", "--out", "out"],
        ],
        "demo": [["demo", "--out", str(f / "plain.csv")]],
        "list datasets": [["list", "datasets"]],
        "list methods": [["list", "methods"]],
        "list encoders": [["list", "encoders"]],
    }  # fmt: skip
    light = ["audit", "calibrate", "import", "check", "predict", "report"]
    options = {name: _options(name) for name in lines}
    return {"lines": lines, "light": light, "options": options, "folder": folder}


def _options(name: str) -> list[tuple[str, str, bool]]:
    """The options of a command: name, how it is written, whether it takes no value."""
    return [
        (p.name, p.opts[0], bool(getattr(p, "is_flag", False)))
        for p in find_command(name).params
        if p.param_type_name == "option" and p.name not in ("debug", "help")
    ]


def _draw(rng: Random, seeds: Any, folder: Path) -> Case:
    os.chdir(folder)
    name = rng.choice(seeds["light"] if rng.random() < 0.7 else list(seeds["lines"]))
    line = list(rng.choice(seeds["lines"][name]))
    about = [name]
    if rng.random() < 0.35:
        about.append(_odd_place(rng, line, folder))
    for _ in range(rng.choice((0, 1, 1, 2)) if len(about) > 1 else rng.choice((1, 1, 2, 3))):
        if not seeds["options"][name]:
            break
        option, written, flag = rng.choice(seeds["options"][name])
        if name == "demo" and option == "out":  # a file, which is refused: a demo takes its time
            continue
        if flag:
            line.append(written)
        elif option in PLACES:
            place, _ = _place(rng, folder, writing=option in ("out", "export", "cache"))
            line += [written, place]
        else:
            value = rng.choice((rng.choice(NUMBERS), rng.choice(LISTS), word(rng))).replace(
                "\x00", ""
            )
            if (option, value) in FORBIDDEN:
                continue
            line += [f"{written}={value}"] if rng.random() < 0.5 else [written, value]
        about.append(written)
    if rng.random() < 0.02:
        line.insert(rng.randrange(len(line) + 1), word(rng).replace("\x00", ""))
    apart = any(str(part).startswith(("/dev/zero", "/proc")) for part in line)
    full = rng.random() < 0.01
    call = partial(_to_full_device, line) if full else partial(command, *line)
    return Case(call, (), " ".join(about), most=20_000, apart=apart)


FORBIDDEN = {("engine", "ray"), ("workers", "100"), ("workers", "1000000000000")}
"""Options that start other programs."""


def _to_full_device(line: list[Any]) -> Exit:
    with open("/dev/full", "w", encoding="utf-8") as full:
        return command(*line, stdout=full)


def _odd_place(rng: Random, line: list[Any], folder: Path) -> str:
    """Put an odd place where a path stands in a line."""
    paths = [
        i
        for i, part in enumerate(line)
        if isinstance(part, Path) or part in ("out", "p.csv", "page.html")
    ]
    if not paths:
        return "-"
    at = rng.choice(paths)
    writing = not isinstance(line[at], Path)
    line[at], kind = _place(rng, folder, writing=writing)
    return kind


def _place(rng: Random, folder: Path, *, writing: bool) -> tuple[str, str]:
    """A place that is odd, made below the folder; and what it is."""
    suffix = rng.choice(
        (
            ".csv",
            ".csv",
            ".npz",
            ".parquet",
            ".json",
            ".h5",
            "",
            ".xlsx",
            ".jsonl",
            ".csv.gz",
            ".html",
        )
    )
    name = f"given{rng.randrange(10**6)}{suffix}"
    file = folder / name
    kinds = (
        *(
            "missing",
            "folder",
            "empty",
            "dangling",
            "loop",
            "fifo",
            "socket",
            "long",
            "longer",
            "empty name",
        ),
        *(
            "below a file",
            "odd name",
            "full folder",
            "dot",
            "dash",
            "tilde",
            "null",
            "full",
            "link to folder",
        ),
        *("read-only", "control", "not utf-8", "trailing slash", "proc", "binary"),
    )
    kind = rng.choice(kinds)
    if kind == "proc" and writing:
        kind = "missing"
    match kind:
        case "folder" | "full folder" | "trailing slash":
            file.mkdir(exist_ok=True)
            if kind == "full folder":
                (file / "run.json").write_text(rng.choice(("", "{}", "[]", "x")))
                (file / "manifest.json").write_text("{}")
                (file / ".scalecal.json").write_text(
                    rng.choice(("{}", '{"files": {}}', '{"files": 3}'))
                )
            return (f"{file}/" if kind == "trailing slash" else str(file)), kind
        case "empty":
            file.touch()
        case "binary":
            file.write_bytes(rng.randbytes(200))
        case "dangling":
            _link(file, "nowhere")
        case "loop":
            _link(file, name)
        case "link to folder":
            _link(file, ".")
        case "fifo":
            if not file.exists():
                os.mkfifo(file)
        case "socket":
            if not file.exists():
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(name)
        case "long":
            return "x" * 300 + suffix, kind
        case "longer":
            return "/".join(["y" * 200] * 30) + suffix, kind
        case "empty name":
            return "", kind
        case "below a file":
            file.touch()
            return f"{file}/x{suffix}", kind
        case "odd name" | "control":
            odd = folder / (
                "a\nb\x1b[31m\x07" + suffix if kind == "control" else "ä %s {x} [1]'\"<b>" + suffix
            )
            if rng.random() < 0.7:
                odd.write_text("p,label\n0.5,1\n")
            return str(odd), kind
        case "not utf-8":
            odd_bytes = os.fsencode(folder) + b"/\xff\xfe" + suffix.encode()
            if rng.random() < 0.7:
                Path(os.fsdecode(odd_bytes)).write_text("p,label\n0.5,1\n0.2,0\n")
            return os.fsdecode(odd_bytes), kind
        case "dot":
            return rng.choice((".", "..", "./.", "/", "//", "../..")) if not writing else ".", kind
        case "dash":
            return "-", kind
        case "tilde":
            return rng.choice(
                ("~nobody-here/x", "~/nowhere/x")
            ) + suffix if not writing else "~", kind
        case "null":
            return "/dev/null", kind
        case "full":
            return rng.choice(("/dev/full", "/dev/zero")) if not writing else "/dev/full", kind
        case "proc":
            return rng.choice(
                ("/proc/self/mem", "/proc/kmsg", "/proc/self/environ", "/proc/self/fd")
            ), kind
        case "read-only":
            file.mkdir(exist_ok=True)
            file.chmod(0o500)
            return str(file / f"x{suffix}"), kind
    return str(file), kind


def _link(file: Path, target: str) -> None:
    if not os.path.lexists(file):
        file.symlink_to(target)


SURFACES = {"options": Surface("options, places", _prepare, _draw, share=0.6, tested=150)}
