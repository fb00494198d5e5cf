"""Rules over several keys: one valid and one invalid sample for each."""

# ruff: noqa: E501 - a row of the table reads better than its pieces

from __future__ import annotations

import json
import os
import subprocess

import pytest
import yaml

from jobspec.finding import JobspecError
from jobspec.spec.load import parse_spec

HEAD = "version: 1\nname: x\n"
VERL = HEAD + "framework: verl\n"
PIPELINES = HEAD + "framework: rlix\npipelines: "
COMMAND = HEAD + "framework: command\n"
SERVICE = COMMAND + "train: {command: [a]}\nservices: [{"

VALID = [
    VERL + "repos: [{name: a, path: ~/a}, {name: b, url: 'https://h/x', ref: main}]",
    VERL + "repos: [{name: a, url: 'git@github.com:o/r.git', ref: main}]",
    VERL + "repos: [{name: a, url: 'ssh://git@h/x', ref: main, pythonpath: [src, ./lib], prove: {import: a.b}}]",
    VERL + "repos: [{name: a, url: 'host:r.git', ref: main}, {name: b, url: 'file:///srv/r', ref: main}]",
    VERL + "model: {id: Qwen/Qwen3-0.6B, revision: main}",
    VERL + "model: {id: gpt2}",
    VERL + "model: {path: ../models/x}",
    VERL + "repos: [{name: b, path: /b}]\nmcore_helpers: {repo: b}",
    VERL + "mcore_helpers: {package: megatron.core}",
    VERL + "data: [{name: a, source: x}, {name: b, source: x}]",
    VERL + "container: {mounts: [{source: '${cluster:scratch}', target: /a}, {source: ~/x, target: /b}]}",
    VERL + "checkpoint: {dir: /c, resume: must}",
    VERL + "checkpoint: {every: 5}",
    VERL + "metrics: {require: ['max(reward/mean) > 0.8', 'finite(loss)']}",
    VERL + "sweep: {list: [{train.seed: 1}], grid: {train.overrides.any.key: [1]}}",
    VERL + "train: {overrides: {tokenizer.pad_token: x, max_tokens: 5, wandb.api_key: null}}",
    VERL + "container: {env: {TOKENIZERS_PARALLELISM: 'false', MAX_TOKENS: '5'}}",
    PIPELINES + "[{name: a, config: x, train_gpus: [0]}, {name: b, config: x, train_gpus: [0], infer_gpus: [0, 1]}]",
    COMMAND + "train: {command: [python3, train.py]}",
    COMMAND + "train: {command: ['set -x; a | b'], shell: true}",
    SERVICE + "name: judge, command: [a]}]",
    SERVICE + "name: judge, command: ['a $PORT'], shell: true, on: all, gpus: 2, port: 8000}]",
    SERVICE + "name: judge, command: [bash, -c, 'a $PORT'], nodes: 2, ready: {http: '/v1/health?x=1', status: 204}}]",
    SERVICE + "name: judge, command: [sh, -c, 'exec a --port $PORT']}]",
    SERVICE + "name: judge, command: [env, A=b, /bin/bash, -c, 'a $${PORT:-8000}']}]",
    SERVICE + "name: judge, command: [a, 'port=$${oc.env:PORT}', '${cluster:runs}/x']}]",
    SERVICE + "name: a-1, command: [a], port: auto, ready: {log: 'ready (now|here)', timeout: 5}, required: false}]",
]  # fmt: skip


@pytest.mark.parametrize("text", VALID)
def test_valid(text: str) -> None:
    assert parse_spec(text, env={}).findings == ()


INVALID: list[tuple[str, str, str, str]] = [
    (VERL + "repos: [{name: a}]", "spec.repo-source", "repos[0]", "neither"),
    (VERL + "repos: [{name: a, path: /a, url: 'https://h/x', ref: m}]", "spec.repo-source", "repos[0]", "both"),
    (VERL + "repos: [{name: a, url: 'https://h/x'}]", "spec.repo-ref", "repos[0]", "add `ref"),
    (VERL + "repos: [{name: a, url: 'https://me:pw@h/x', ref: m}]", "spec.secret", "repos[0].url", "credentials"),
    (VERL + "repos: [{name: a, url: 'https://ghp_abc@h/x', ref: m}]", "spec.secret", "repos[0].url", "credentials"),
    (VERL + "repos: [{name: a, url: 'https://h/x.git?access_token=t', ref: m}]", "spec.secret", "repos[0].url", "query"),
    (VERL + "repos: [{name: a, url: 'https://h/x.git#t=t', ref: m}]", "spec.secret", "repos[0].url", "query"),
    (VERL + "repos: [{name: a, url: 'http://h/x', ref: m}]", "spec.repo-url", "repos[0].url", "`https://`?"),
    (VERL + "repos: [{name: a, url: 'fd::17/x', ref: m}]", "spec.repo-url", "repos[0].url", "`path`"),
    (VERL + "repos: [{name: a, url: 'ext::sh -c x', ref: m}]", "spec.repo-url", "repos[0].url", "`path`"),
    (VERL + "repos: [{name: a, url: ../x, ref: m}]", "spec.repo-url", "repos[0].url", "`path`"),
    (VERL + "repos: [{name: a, path: /a, pythonpath: [../b]}]", "spec.repo-folder", "repos[0].pythonpath[0]", "leaves"),
    (VERL + "repos: [{name: a, path: /a, pythonpath: [/b]}]", "spec.repo-folder", "repos[0].pythonpath[0]", "leaves"),
    (VERL + "repos: [{name: a, path: /a, pythonpath: ['a:b']}]", "spec.repo-folder", "repos[0].pythonpath[0]", "PYTHONPATH"),
    (VERL + "repos: [{name: a, path: /a, prove: {import: 'a b'}}]", "spec.module", "repos[0].prove.import", "module"),
    (VERL + "repos: [{name: a, path: /a}, {name: a, path: /b}]", "spec.duplicate-name", "repos[1]", "twice"),
    (VERL + "model: {}", "spec.model-source", "model", "neither"),
    (VERL + "model: {id: a, path: /b}", "spec.model-source", "model", "both"),
    (VERL + "model: {id: a/../b}", "spec.model-id", "model.id", "`path`"),
    (VERL + "model: {id: /models/x}", "spec.model-id", "model.id", "`path`"),
    (VERL + "model: {id: a/b/c}", "spec.model-id", "model.id", "owner/name"),
    (VERL + "model: {id: a..b}", "spec.model-id", "model.id", "`..`"),
    (VERL + "model: {path: /b, revision: main}", "spec.revision", "model.revision", "`id`"),
    (VERL + "train: {command: [a]}", "spec.command", "train.command", "framework: command"),
    (VERL + "train: {shell: true}", "spec.command", "train.shell", "remove it"),
    (COMMAND, "spec.command", "train.command", "add `command"),
    (COMMAND + "train: {command: []}", "spec.command", "train.command", "is empty"),
    (HEAD + "framework: comand\ntrain: {command: [a]}", "spec.command", "train.command", "did you mean `framework: command`"),
    (COMMAND + "train: {command: [' ']}", "spec.command", "train.command", "name a program"),
    (COMMAND + "train: {command: [a, b], shell: true}", "spec.command", "train.command", "one bash text"),
    (VERL + "coverage: {checks: [{repo: brigde}]}\nrepos: [{name: bridge, path: /b}]", "spec.checks", "coverage.checks[0].repo", "did you mean `bridge`"),
    (VERL + "coverage: {checks: [{repo: b}, {repo: b}]}\nrepos: [{name: b, path: /b}]", "spec.checks", "coverage.checks[1].repo", "second entry for `b` adds no test"),
    (VERL + "coverage: {checks_only: [{repo: brigde, tests: [a]}]}\nrepos: [{name: bridge, path: /b}]", "spec.checks", "coverage.checks_only[0].repo", "did you mean `bridge`"),
    (VERL + "coverage: {variants: [a+b], not_applicable: [{variant: b, why: w, evidence: e}]}", "coverage.not-applicable", "coverage.not_applicable[0].variant", "asked for"),
    (VERL + "coverage: {not_applicable: [{variant: b, why: w, evidence: e}, {variant: b, why: w, evidence: e}]}", "coverage.not-applicable", "coverage.not_applicable[1].variant", "twice"),
    (VERL + "coverage: {not_applicable: [{variant: b, why: w, evidence: ' '}]}", "coverage.not-applicable", "coverage.not_applicable[0].evidence", "merely left out"),
    (PIPELINES + "[{name: a, config: x, train_gpus: [1], metrics: {baseline: x}}]", "metrics.baseline", "pipelines[0].metrics.baseline", "remove"),
    (VERL + "coverage: {split: jobs}", "coverage.levels", "coverage.split", "no levels to split"),
    (VERL + "metrics: {tolerances: [{metric: a, within: 1}]}", "metrics.baseline", "metrics.tolerances", "give `metrics.baseline`"),
    (VERL + "metrics: {baseline: a, tolerances: [{metric: a, within: 1, from_step: 3, to_step: 2}]}", "metrics.baseline", "metrics.tolerances[0].from_step", "exchange"),
    (VERL + "metrics: {baseline: a, tolerances: [{metric: a, within: 1}, {metric: a, within: 2}]}", "metrics.baseline", "metrics.tolerances[1].metric", "there twice"),
    (VERL + "coverage: {checks_only: [{repo: b}]}\nrepos: [{name: b, path: /b}]", "spec.checks", "coverage.checks_only[0].repo", "replaced by none"),
    (VERL + "coverage: {checks: [{repo: b}], checks_only: [{repo: b, tests: [a]}]}\nrepos: [{name: b, path: /b}]", "spec.checks", "coverage.checks_only[0].repo", "is in `coverage.checks` and"),
    (VERL + "mcore_helpers: {}", "spec.helpers", "mcore_helpers", "neither"),
    (VERL + "repos: [{name: bridge, path: /b}]\nmcore_helpers: {repo: brigde}", "spec.helpers", "mcore_helpers.repo", "did you mean `bridge`"),
    (VERL + "container: {env: {HF_TOKEN: x}}", "spec.secret", "container.env.HF_TOKEN", "`secrets`"),
    (VERL + "container: {env: {PLAIN: x}}\nsecrets: [PLAIN]", "spec.secret", "container.env.PLAIN", "`secrets`"),
    (VERL + "train: {overrides: {wandb.api_key: abc}}", "spec.secret", "train.overrides.'wandb.api_key'", "`secrets`"),
    (PIPELINES + "[{name: a, config: x, train_gpus: []}]", "spec.pipeline", "pipelines[0].train_gpus", "[0, 1]"),
    (PIPELINES + "[{name: a, config: x, train_gpus: [1, 1]}]", "spec.pipeline", "pipelines[0].train_gpus[1]", "twice"),
    (PIPELINES + "[{name: a, config: x, train_gpus: [0], infer_gpus: [0, 1, 0]}]", "spec.pipeline", "pipelines[0].infer_gpus[2]", "`a`"),
    (PIPELINES + "[{name: a, config: x, train_gpus: [0]}, {name: a, config: x, train_gpus: [1]}]", "spec.duplicate-name", "pipelines[1]", "twice"),
    (PIPELINES + "[{name: a, config: x, train_gpus: [0], metrics: {require: ['max(x']}}]", "metrics.require", "pipelines[0].metrics.require[0]", "missing"),
    (PIPELINES + "[{name: a, config: x, train_gpus: [0], train: {overrides: {wandb.api_key: abc}}}]", "spec.secret", "pipelines[0].train.overrides.'wandb.api_key'", "`secrets`"),
    (VERL + "secrets: [A, A]", "spec.duplicate-name", "secrets[1]", "twice"),
    (VERL + "data: [{name: a, source: x}, {name: a, source: y}]", "spec.duplicate-name", "data[1]", "twice"),
    (VERL + "data: [{name: a-b, source: x}, {name: a.b, source: y}]", "spec.duplicate-name", "data[1].name", "JOBSPEC_DATA_A_B"),
    (VERL + "container: {mounts: [{source: a, target: /b}]}", "spec.mount", "container.mounts[0].source", "absolute"),
    (VERL + "container: {mounts: [{source: /a, target: b}]}", "spec.mount", "container.mounts[0].target", "absolute"),
    (VERL + "container: {mounts: [{source: /a, target: /t}, {source: /b, target: /t}]}", "spec.mount", "container.mounts[1].target", "two mounts"),
    (VERL + "checkpoint: {resume: must}", "spec.checkpoint", "checkpoint.resume", "dir"),
    (VERL + "metrics: {require: ['max(x']}", "metrics.require", "metrics.require[0]", "`)`"),
    (SERVICE + "name: Judge, command: [a]}]", "spec.format", "services[0].name", "`code-judge`"),
    (SERVICE + "name: judge-, command: [a]}]", "spec.format", "services[0].name", "as in DNS"),
    (SERVICE + "name: a, command: [a]}, {name: a, command: [b]}]", "spec.duplicate-name", "services[1]", "twice"),
    (SERVICE + "name: a, command: []}]", "spec.service", "services[0].command", "no command"),
    (SERVICE + "name: a, command: [a, b], shell: true}]", "spec.service", "services[0].command", "one bash text"),
    (SERVICE + "name: a, command: [vllm, --port, $PORT]}]", "spec.service", "services[0].command[2]", "`shell: true`"),
    (SERVICE + "name: a, command: [a, 'p=$${PORT:-8000}']}]", "spec.service", "services[0].command[1]", "no shell"),
    (SERVICE + "name: a, command: [bashful, 'p=$${PORT}']}]", "spec.service", "services[0].command[1]", "no shell"),
    (SERVICE + "name: a, command: [a], on: all, nodes: 2}]", "spec.service", "services[0].on", "both `on` and `nodes`"),
    (SERVICE + "name: a, command: [a], on: haed}]", "spec.service", "services[0].on", "did you mean `head`"),
    (SERVICE + "name: a, command: [a], port: 80}]", "spec.range", "services[0].port", "1024 or more"),
    (SERVICE + "name: a, command: [a], port: atuo}]", "spec.choice", "services[0].port", "write `auto`"),
    (SERVICE + "name: a, command: [a], ready: {tcp: true, log: x}}]", "spec.service", "services[0].ready.log", "remove the others"),
    (SERVICE + "name: a, command: [a], ready: {tcp: false}}]", "spec.service", "services[0].ready.tcp", "nothing"),
    (SERVICE + "name: a, command: [a], ready: {status: 204}}]", "spec.service", "services[0].ready.status", "`http: /PATH`"),
    (SERVICE + "name: a, command: [a], ready: {http: 'health'}}]", "spec.service", "services[0].ready.http", "`/health`"),
    (SERVICE + "name: a, command: [a], ready: {http: '/a b'}}]", "spec.service", "services[0].ready.http", "`/health`"),
    (SERVICE + "name: a, command: [a], ready: {log: 'a('}}]", "spec.service", "services[0].ready.log", "regular expression"),
    (SERVICE + "name: a, command: [a], redy: {}}]", "spec.unknown-key", "services[0].redy", "did you mean `ready`"),
    (SERVICE + "name: a, command: [a], container: x}]", "spec.type", "services[0].container", "mapping"),
    (SERVICE + "name: a, command: [a], container: {imge: x}}]", "spec.unknown-key", "services[0].container.imge", "`image`"),
    (SERVICE + "name: a, command: [a], container: {env: {API_KEY: x}}}]", "spec.secret", "services[0].container.env.API_KEY", "secrets"),
    (SERVICE + "name: a, command: [a], container: {mounts: [{source: a, target: /a}]}}]", "spec.mount", "services[0].container.mounts[0].source", "start it with `/`"),
    (SERVICE + "name: a, command: [a], image: x}]", "spec.unknown-key", "services[0].image", "`container: {image: …}`"),
    (SERVICE + "name: a, command: [a], env: {A: b}}]", "spec.unknown-key", "services[0].env", "[env, NAME=VALUE"),
    (VERL + "sweep: {}", "spec.sweep", "sweep", "no points"),
    (VERL + "sweep: {grid: {train.seed: []}}", "spec.sweep", "sweep.grid.'train.seed'", "no values"),
    (VERL + "sweep: {list: [{trian.seed: 1}]}", "spec.sweep", "sweep.list[0].'trian.seed'", "did you mean `train`"),
    (VERL + "sweep: {exclude: [{name: 1}], grid: {sweep.grid: [1]}}", "spec.sweep", "sweep.grid.'sweep.grid'", "cannot change"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rule", "path", "words"), INVALID)
def test_invalid(text: str, rule: str, path: str, words: str) -> None:
    with pytest.raises(JobspecError) as caught:
        parse_spec(text, env={})
    errors = [found for found in caught.value.findings if found.is_error]
    assert [(f.rule, f.path) for f in errors] == [(rule, path)]
    assert errors[0].line >= 1
    assert errors[0].fix
    assert words in errors[0].text()


def test_advice_for_a_variable_is_yaml_and_bash_as_it_stands() -> None:
    words = ["python3", "-c", """print('a "b" \\\\', $PORT)"""]
    with pytest.raises(JobspecError) as caught:
        parse_spec(SERVICE + f"name: a, command: {json.dumps(words)}}}]", env={})
    advice = caught.value.findings[0].fix.partition("`shell: true`: `")[2].rstrip("`")
    (text,) = yaml.safe_load(advice)["command"]
    done = subprocess.run(
        ["bash", "-c", text], env={**os.environ, "PORT": "7"}, capture_output=True, text=True
    )
    assert done.stdout == 'a "b" \\ 7\n', done.stderr


@pytest.mark.timeout(60)  # a list of all points does not end
def test_a_grid_of_more_points_than_anybody_runs() -> None:
    keys = [f"train.overrides.k{number}" for number in range(12)]
    grid = "".join(f"    {key}: {list(range(50))}\n" for key in keys)
    text = f"version: 1\nname: a\nframework: command\ntrain: {{command: [a]}}\nsweep:\n  grid:\n{grid}"
    with pytest.raises(JobspecError) as caught:
        parse_spec(text)
    assert [(f.rule, f.path) for f in caught.value.findings] == [("spec.sweep", "sweep.grid")]
