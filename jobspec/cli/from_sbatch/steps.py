"""The steps of a script: what starts the driver, in which container, with which environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from jobspec.cli.from_sbatch.bash import Command, Values, comma_split, commands, is_keyword, without_redirects
from jobspec.cli.from_sbatch.options import read_options
from jobspec.spec.sbatch import Option

CONTAINERS = ("apptainer", "singularity")
PROGRAMS = re.compile(r"(python[\d.]*|torchrun|accelerate|deepspeed|uv|bash|sh)\Z|.*\.(py|sh)\Z")
_VALUED = ("bind", "B", "env", "pwd", "overlay", "workdir", "home", "H", "W", "env-file", "nv-ccli")


@dataclass(frozen=True)
class Step:
    """One command as it would run, its layers of `srun` and container taken off."""

    words: tuple[str, ...]
    line: int
    end: str
    env: tuple[tuple[str, str], ...] = ()
    srun: tuple[Option, ...] = ()
    inside: bool = False  # below srun, or in a container
    image: str = ""
    mounts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    workdir: str = ""
    folder: str = ""  # where the script was
    submitted: str = ""  # its runtime environment, by `ray job submit`
    components: tuple[int, ...] = (0,)  # of the job, on which it starts

    @property
    def program(self) -> str:
        return PurePath(self.words[0]).name if self.words else ""

    @property
    def is_ray_start(self) -> bool:
        return self.words[:2] == ("ray", "start") or ("ray" in self.words and "start" in self.words)

    @property
    def is_driver(self) -> bool:
        inline = "-c" in self.words[:8] and self.program not in ("bash", "sh")
        about = {"--version", "-V", "-m", "pip"} & set(self.words[1:2]) and "pip" in self.words[:3]
        return bool(PROGRAMS.match(self.program)) and not (
            self.is_ray_start or inline or about or len(self.words) < 2
        )


@dataclass
class Script:
    """Walks a script in its order; `steps` has every command, `exported` what the job's environment has."""

    values: Values = field(default_factory=Values)
    exported: dict[str, int] = field(default_factory=dict)
    assigned: dict[str, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    setup: list[tuple[str, int]] = field(default_factory=list)
    sourced: list[tuple[str, int]] = field(default_factory=list)
    functions: dict[str, list[Command]] = field(default_factory=dict)
    folder: str = ""

    def walk(self, text: str) -> Script:
        """The script with all of `text` read."""
        name, inside = "", False
        waiting = ""
        for command in commands(text):
            words = command.words
            if (words[0] == "function" and len(words) > 1) or (command.end == "(" and len(words) == 1):
                waiting = words[-1]
                continue
            if words[0] == "{" and waiting:
                name, inside, waiting = waiting, True, ""
                self.functions[name] = []
                words = words[1:]
            elif waiting and command.end not in ("(", ")"):
                waiting = ""
            if inside and words[:1] == ("}",):
                inside = False
            elif inside and words:
                self.functions[name].append(replace(command, words=words))
            elif words:
                self._command(replace(command, words=words))
        return self

    def _command(self, command: Command, given: tuple[str, ...] = ()) -> None:
        raw = list(command.words)
        while raw and is_keyword(raw[0]):
            raw = raw[1:]
        if not raw or raw[0] in ("for", "case", "[[", "[", "((", "function"):
            return
        if raw[0] == "read" and command.heredoc and (names := [w for w in raw[1:] if w.isidentifier()]):
            self.values.known[names[-1]] = self.values.here_text(command.heredoc.strip())
            return
        prefix = []
        while raw and (name := self._assigns(raw[0], command.line, keep=len(raw) == 1)):
            prefix.append((name, self.values.text(raw[0].partition("=")[2])))
            raw = raw[1:]
        if not raw:
            return
        if raw[0] in ("export", "declare", "typeset"):
            for word in raw[1:]:
                name = self.values.assign(word) or word
                if name.isidentifier():
                    self.exported[name] = command.line
            return
        if raw[0] == "cd" and len(raw) == 2:
            self.folder = self.values.text(raw[1])
        if raw[0] in ("source", "."):
            self.sourced.append((self.values.text(" ".join(raw[1:])), command.line))
            return
        if raw[0] in ("module", "ml", "conda", "mamba", "spack", "ulimit") and raw[1:2] != ["run"]:
            self.setup.append((" ".join(self.values.text(word) for word in raw), command.line))
            return
        if raw[0] in self.functions and not given:
            self._call(raw, command)
            return
        words = [
            word
            for one in without_redirects(raw)
            for word in (given if one in ('"$@"', "$@") else self.values.split(one))
        ]
        step = Step(tuple(words), command.line, command.end, tuple(prefix), folder=self.folder)
        self.steps += peeled(step)

    def _assigns(self, word: str, line: int, keep: bool) -> str | None:
        before = dict(self.values.known)
        name = self.values.assign(word)
        if name is not None:
            self.assigned[name] = line
            if not keep:  # in front of a command: for that command alone
                self.values.known = before
        return name

    def _call(self, raw: list[str], command: Command) -> None:
        """The body of a function with the call's words for `"$@"`, those that it shifts off left out."""
        args = [word for one in without_redirects(raw[1:]) for word in self.values.split(one)]
        shifted = sum(1 for inner in self.functions[raw[0]] if inner.words[0] == "shift")
        for inner in self.functions[raw[0]]:
            if inner.words[0] not in ("shift", "local"):
                self._command(
                    replace(inner, line=command.line, end=command.end), tuple(args[shifted:]) or ("",)
                )


def peeled(step: Step) -> Iterator[Step]:
    """The step without the layers around its command; a text of `bash -c` is several steps."""
    words = list(step.words)
    match step.program:
        case "srun":
            for components, options, rest in _programs(words[1:]):
                of = {option.name: option.value for option in options}
                yield from peeled(
                    replace(
                        step, words=tuple(rest), srun=tuple(options), inside=True, components=components,
                        image=of.get("container-image", step.image),
                        mounts=tuple(comma_split(of.get("container-mounts", ""))) or step.mounts,
                        workdir=of.get("container-workdir", step.workdir),
                    )
                )  # fmt: skip
        case "apptainer" | "singularity" if words[1:2] in (["exec"], ["run"]):
            yield from peeled(_apptainer(step, words[2:]))
        case "bash" | "sh" if "-c" in words or any(re.fullmatch(r"-[a-z]*c", word) for word in words[1:3]):
            at = next(i for i, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word))
            inner = Script().walk(words[at + 1] if at + 1 < len(words) else "")
            for one in inner.steps:
                env = (
                    *step.env,
                    *(
                        (name, inner.values.known[name])
                        for name in inner.exported
                        if name in inner.values.known
                    ),
                    *one.env,
                )
                image, mounts = one.image or step.image, one.mounts or step.mounts
                yield replace(one, line=step.line, srun=step.srun, inside=True, image=image, mounts=mounts,
                              components=step.components, workdir=one.folder or step.workdir, env=env,
                              end=step.end if one is inner.steps[-1] else one.end)  # fmt: skip
        case "ray" if words[1:3] == ["job", "submit"] and "--" in words:
            cut = words.index("--")
            runtime = next(
                (w.partition("=")[2] for w in words[:cut] if w.startswith("--runtime-env-json=")), ""
            )
            yield from peeled(replace(step, words=tuple(words[cut + 1 :]), submitted=runtime or "{}"))
        case "env" | "exec" | "nohup" | "time":
            rest = words[1:]
            given = list(step.env)
            while rest and re.match(r"[A-Za-z_]\w*=", rest[0]):
                name, _, value = rest.pop(0).partition("=")
                given.append((name, value))
            yield from peeled(replace(step, words=tuple(rest), env=tuple(given)))
        case "timeout" if len(words) > 2:
            yield from peeled(replace(step, words=tuple(words[2:])))
        case _:
            yield step


def _programs(words: list[str]) -> Iterator[tuple[tuple[int, ...], list[Option], list[str]]]:
    """What one call of `srun` starts: components, options and command, one after each bare `:`.

    Without a command it is that of the next one. Source: Slurm's page on heterogeneous jobs.
    """
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    read = [read_options(part) for part in parts]
    for index, (options, rest) in enumerate(read):
        of = {option.name: option.value for option in options}
        listed = of.get("het-group", of.get("pack-group", str(index)))
        yield _numbers(listed), options, rest or next((later for _, later in read[index:] if later), [])


def _numbers(text: str) -> tuple[int, ...]:
    """`0,2-3` as numbers; none for what is no such list.

    >>> _numbers("0,2-3"), _numbers("x")
    ((0, 2, 3), ())
    """
    found: list[int] = []
    for part in text.split(","):
        if not (ends := re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", part)):
            return ()
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return tuple(found)


def _apptainer(step: Step, words: list[str]) -> Step:
    mounts, flags, workdir, at = list(step.mounts), [], step.workdir, 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].lstrip("-").partition("=")
        at += 1
        if name in _VALUED and not equals and at < len(words):
            value, at = words[at], at + 1
        if name in ("bind", "B"):
            mounts += value.split(",")
        elif name == "pwd":
            workdir = value
        else:
            flags.append(f"--{name}" + (f"={value}" if value else ""))
    image, *rest = words[at:] or [""]
    return replace(
        step,
        words=tuple(rest),
        inside=True,
        image=image,
        mounts=tuple(mounts),
        flags=tuple(flags),
        workdir=workdir,
    )


def runtime_env(text: str) -> tuple[dict[str, str], list[str], str]:
    """Variables, other keys and the working directory of `--runtime-env-json`."""
    try:
        data = json.loads(text)
    except ValueError:
        return {}, ["runtime environment"], ""
    if not isinstance(data, dict):
        return {}, [], ""
    variables = {str(k): str(v) for k, v in (data.get("env_vars") or {}).items()}
    return (
        variables,
        [f"{k}={json.dumps(v)}" for k, v in data.items() if k != "env_vars"],
        str(data.get("working_dir", "")),
    )
