"""What the log shows above a failure of the machine and its software: quoted as a fact where it decides.

`df`, `quota`, `nvidia-smi`, `pip`, `module list`, versions, NCCL's settings: a job prints them, mostly at its
start, and they tell which of several causes it is. Each row is quoted as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from jobspec.log_text import bare

HEAD_LINES, LINES_ABOVE = 1500, 400  # where such rows are looked for: at the log's start, above the failure
MAX_CHARS, MOST_FACTS = 400, 4  # read of a line; told
MAX_SHOWN = 110
ALMOST_FULL = 97  # per cent
SOFTWARE = frozenset(
    {"image", "env", "env-leak", "driver", "provider", "rollout", "model", "config", "exception"}
)
GPUS = frozenset({"gpu", "driver", "image", "ray-resources", "container", "node", "config"})
DISKS = frozenset({"disk", "storage", "shared-storage"})
NETWORKS = frozenset({"network", "collective"})
CONCERNED = SOFTWARE | GPUS | DISKS | NETWORKS  # kinds of failures
_DF = re.compile(r"^(?!/dev/loop)\S+ +[\d.]+[KMGTPE]?i?B? +[\d.]+\S* +[\d.]+\S* +(\d+)% +(/\S*)$")
_QUOTA = re.compile(r"^\s*/\S*\s+[\d.]+[KMGTPEkmgt]?B?\*\s")
_SMI = re.compile(r"\bDriver Version: [\d.]+ +CUDA Version: [\d.]+")
_GPU = re.compile(r"^GPU \d+: [^(]*\(UUID: |^\| +\d+ +(?:NVIDIA|Tesla|Quadro|GeForce|AMD)\b")
# A device of NVIDIA's driver, as `ls -l` lists it.
_DEVICE = re.compile(r"^c[rwx-]{9}[.+@]? .* (?:/dev/)?(nvidia[\w-]*)$")
_STEP = re.compile(r"^(?:[+$>]+ *)?srun +\S+ +\S")
_GPUS_OF_STEP = re.compile(r" --(?:gres|gpus)(?:-per-\w+)?[= ]")
_NO_GPU = re.compile(r"--gres[= ]none\b|--gpus(?:-per-\w+)?[= ]0\b")
_PIP = re.compile(r"^Successfully installed (.*)")
# By the form of pip's requirements any name; in looser forms, which metrics have too, names of packages.
_PACKAGE = re.compile(
    r"^([A-Za-z][\w.-]*)==\d\S*$"
    r"|^(torch\w*|transformers|trl|vllm|sglang|peft|accelerate|deepspeed|datasets|tokenizers|ray|numpy|scipy|pandas"
    r"|pyarrow|flash[-_]\w+|transformer[-_]engine\w*|megatron[-_\w]*|nvidia-\S+|triton|xformers|bitsandbytes"
    r"|huggingface[-_]hub|tensordict|verl|nemo[-_\w]*|openrlhf|llamafactory|unsloth\w*|liger[-_]kernel|protobuf"
    r"|pydantic\w*|hydra-core|omegaconf|wandb|tensorboard|mkl|setuptools|math[-_]verify|lightning|axolotl|swift"
    r"|ms[-_]swift|slime|skyrl\S*|fla|mamba[-_]\w+|apex|nccl|cudnn|python)"
    r"(?:: v?|[ =]+v?)\d+\.\d[\w.+]*(?:[\s,;].*)?$"
)
_TOOL = re.compile(
    r"^(?:gcc|g\+\+|cc|c\+\+|ldd)(?:-\d+)? \([^)]*\) \d+\.\d|^(?:clang|cmake) version \d"
    r"|^Cuda compilation tools, release [\d.]+"
    r"|^Python \d+\.\d+\.\d+$"
)
_MODULES = re.compile(r"^\s*1\) \w[\w+-]*/\S+")
# Pip's word on what it leaves behind: who wants the package, and which.
_CONFLICT = re.compile(
    r"^([A-Za-z][\w.-]*) \d\S* requires ([A-Za-z][\w.-]*)\S*, (?:but you have|which is not) "
)
_INTERFACE = re.compile(r"\b(NCCL_SOCKET_IFNAME set (?:by environment )?to =?(\S+))")
_ROWS = (_DF, _QUOTA, _SMI, _GPU, _DEVICE, _STEP, _PIP, _PACKAGE, _CONFLICT, _TOOL, _MODULES, _INTERFACE)
_ANY = re.compile("|".join(f"(?:{item.pattern})" for item in _ROWS))
# Words of a failure that make a row of a tool tell something.
_OF_TOOLS = re.compile(r"(?i)gcc|g\+\+|nvcc|compiler|glibc|cuda\b|cudnn|unsupported gnu|python[ _]?\d")
_OF_MODULES = re.compile(r"(?i)cuda|cudnn|nccl|mpi\b|glibc|gcc|nvcc|\.so\b|command not found")
_OF_GPUS = re.compile(r"(?i)gpu|cuda|driver|nvidia|bf16|bfloat16|capability|sm_\d|flash")
# Classes that a line names, and the package that has them.
_CLASSES = (
    (re.compile(r"\b(?:SFT|DPO|GRPO|KTO|ORPO|CPO|RLOO|PPO|Reward)(?:Trainer|Config)\b"), "trl"),
    (re.compile(r"\b(?:Trainer|(?:Seq2Seq)?TrainingArguments)\b"), "transformers"),
    (re.compile(r"\bAccelerator\b"), "accelerate"),
    (re.compile(r"\bLoraConfig\b|\bPeft(?:Model|Config)\w*\b"), "peft"),
)
_OF_DEVICES = re.compile(r"CUDA (?:driver )?initialization|no CUDA-capable device")
_OF_SETTINGS = re.compile(r"(?i)\bgpus?\b|driver|capability|ordinal")  # of settings the GPUs matter to these
_WORDS = re.compile(r"[A-Za-z][\w.-]*")
_INSTALLED = re.compile(r"(?:site|dist)-packages/(\w+)")
_PATH = re.compile(r"(?<![\w:/])/[\w.@+/-]+")


class Row(NamedTuple):
    number: int
    text: str


def rows_of_tools(lines: Iterable[bytes], first: int) -> list[Row]:
    """The lines that tools print; `first` is the number of the first line."""
    texts = (bare(line[:MAX_CHARS].decode("utf-8", "replace")).rstrip() for line in lines)
    return [Row(number, text) for number, text in enumerate(texts, first) if _ANY.search(text)]


def facts_above(
    kind: str, text: str, frames: Iterable[str], rows: Sequence[Row], file: str
) -> tuple[str, ...]:
    """What the rows above a failure say that concerns it."""
    told = list[str]()
    if kind in DISKS:
        told += (_earlier(said) for said in _quoted(file, _filled(text, rows)))
        told += _quoted(file, [row for row in rows if _QUOTA.search(row.text)])
    if kind in GPUS and (_OF_SETTINGS if kind == "config" else _OF_GPUS).search(text):
        told += [f"{file}:{row.number} shows {_SMI.findall(row.text)[0]}" for row in _last(rows, _SMI)]
        told += _step(file, _last(rows, _STEP))
        told += _gpus(file, [row for row in rows if _GPU.search(row.text)])
        told += _devices(file, rows) if _OF_DEVICES.search(text) else ()
    if kind in SOFTWARE:
        told += _packages(file, text, frames, rows, whole=kind == "image")
        told += _quoted(file, _last(rows, _TOOL, all_kinds=True) if _OF_TOOLS.search(text) else ())
        told += _quoted(file, _last(rows, _MODULES) if _OF_MODULES.search(text) else ())
    if kind in NETWORKS:
        told += _interface(file, _last(rows, _INTERFACE))
    return tuple(dict.fromkeys(told))[:MOST_FACTS]


def _filled(text: str, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of `df` for the path that the line names; without one those of file systems that are full."""
    found = [(row, match) for row in rows if (match := _DF.search(row.text))]
    paths = [path for path in _PATH.findall(text) if path.count("/") > 1]
    mounts = [
        match[2] for _, match in found if any(f"{path}/".startswith(_folder(match[2])) for path in paths)
    ]
    deepest = max((mount for mount in mounts if mount != "/"), key=len, default="")
    for row, match in found:
        if match[2] == deepest or (not deepest and int(match[1]) >= ALMOST_FULL):
            yield row


def _earlier(said: str) -> str:
    """A file system that was not full when the row was printed may have filled since."""
    return said if " 100% " in said else said.replace(" shows ", " showed earlier ", 1)


def _folder(mount: str) -> str:
    return f"{mount.rstrip('/')}/"


def _step(file: str, rows: Iterable[Row]) -> Iterator[str]:
    """The last `srun` above, where it names GPUs: a step may get fewer than its job has."""
    for row in rows:
        if not _GPUS_OF_STEP.search(row.text):
            continue
        word = (
            "starts a step of Slurm without GPUs, whatever the job has"
            if _NO_GPU.search(row.text)
            else "shows"
        )
        yield f"{file}:{row.number} {word}: `{' '.join(row.text.split())[:MAX_SHOWN]}`"


def _gpus(file: str, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        numbers = {found[0] for row in rows if (found := re.search(r"\d+", _name(row.text)))}
        more = f"; such lines above name {len(numbers)} different GPU numbers" if len(numbers) > 1 else ""
        more = more or (", and no other GPU number above" if numbers else "")
        yield f"{file}:{rows[0].number} lists `{_name(rows[0].text)}`{more}"


def _devices(file: str, rows: Iterable[Row]) -> Iterator[str]:
    """The devices that a listing shows, where it lacks the one that CUDA needs beside those of the GPUs."""
    found = {match[1]: row.number for row in rows if (match := _DEVICE.search(row.text))}
    if "nvidiactl" in found and "nvidia-uvm" not in found:
        shown, line = ", ".join(found), min(found.values())
        yield f"devices listed from {file}:{line} on: {shown}, not nvidia-uvm, which CUDA needs"


def _interface(file: str, rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        said, name = _INTERFACE.findall(row.text)[0]
        loop = ": lo is each node's own, so no other node is reached by it" if name == "lo" else ""
        yield f"{file}:{row.number} shows `{said}`{loop}"


def _name(text: str) -> str:
    return re.sub(r" \(UUID.*|\s{2,}(?:On|Off|N/A)\b.*|^\| +", "", text)[:MAX_SHOWN]


def _packages(
    file: str, text: str, frames: Iterable[str], rows: Sequence[Row], *, whole: bool
) -> Iterator[str]:
    """The versions that the log shows of packages that the line names, or, of an image, its traceback."""
    names = {_plain(word.partition(".")[0]) for word in _WORDS.findall(text)}
    if whole:
        names |= {_plain(name) for frame in frames for name in _INSTALLED.findall(frame)}
        names |= {"fsspec"} if "LocalFileSystem" in text else set()
        names |= {package for words, package in _CLASSES if words.search(text)}
        names |= {"torch"} if re.search(r"undefined symbol|ABI\b", text) else set()
    shown: dict[str, str] = {}
    for row in rows:
        installed = _PIP.search(row.text)
        if installed is not None:
            for item in installed[1].split():
                name, _, version = item.rpartition("-")
                if _plain(name) in names and version[:1].isdigit():
                    shown[_plain(name)] = f"{file}:{row.number}: pip installed {name} {version}"
        elif (conflict := _CONFLICT.search(row.text)) is not None:
            if names & {_plain(conflict[1]), _plain(conflict[2])}:
                shown[conflict[0]] = f"{file}:{row.number} shows `{row.text.strip()[:MAX_SHOWN]}`"
        elif (package := _PACKAGE.search(row.text)) is not None:
            name = _plain(package[1] or package[2])
            if name in names:
                shown[name] = f"{file}:{row.number} shows `{row.text.strip()[:MAX_SHOWN]}`"
    yield from shown.values()


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _last(rows: Sequence[Row], pattern: re.Pattern[str], *, all_kinds: bool = False) -> list[Row]:
    """The last row of the pattern; of each program with `all_kinds`."""
    found: dict[str, Row] = {}
    for row in rows:
        if pattern.search(row.text):
            found[row.text.split(" ", 1)[0] if all_kinds else ""] = row
    return list(found.values())


def _quoted(file: str, rows: Iterable[Row]) -> Iterator[str]:
    return (f"{file}:{row.number} shows `{' '.join(row.text.split())[:MAX_SHOWN]}`" for row in rows)
