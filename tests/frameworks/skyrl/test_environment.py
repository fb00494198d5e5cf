"""SkyRL's environment: versions by the lock, the probe before a model is built, and what the spec shows.

The lock is cut from the one of SkyRL a9564572; the lacks are those that its runs on an H200 found one by one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec import frameworks
from jobspec.evidence.evidence import Attempt, Evidence, LogFile
from jobspec.finding import Finding
from jobspec.frameworks.skyrl import environment_probe, installed_versions
from jobspec.frameworks.skyrl.locked_versions import locked
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import parse_spec
from jobspec.verdict import Deliverable, Status
from tests.kits.fake_skyrl import make_fake_skyrl

ROOT = Path(__file__).parents[3]
SITE = """\
version: 1
name: site
scheduler: local
paths: {{runs: /shared/runs, hf_home: /shared/hf, node_local: /mnt/local}}
node: {{gpus: {gpus}, cpus: 32, memory: 200G, gpu_memory: 141G}}
"""
ENV = {"USER": "u", "HOME": "/home/u"}
STATS = "generator.inference_engine.enable_ray_prometheus_stats"
FUSION = "trainer.policy.megatron_config.transformer_config_kwargs.gradient_accumulation_fusion"
WORKER = environment_probe.WORKERS["megatron"]
LINUX = "python_full_version == '3.12.*' and platform_machine == 'x86_64' and sys_platform == 'linux'"
OTHER = "platform_machine != 'aarch64' and platform_machine != 'x86_64' and sys_platform == 'linux'"
MAC = "python_full_version >= '3.14' and platform_machine == 'arm64' and sys_platform == 'darwin'"
LOCK = f"""\
version = 1
[[package]]
name = "megatron-core"
version = "0.19.0+71e418ea7"
source = {{ git = "https://github.com/NVIDIA/Megatron-LM?rev=71e418ea#71e418ea7d7b" }}

[[package]]
name = "torch"
version = "2.11.0+cu130"
source = {{ registry = "https://download.pytorch.org/whl/cu130" }}
resolution-markers = [
    "{LINUX}",
]

[[package]]
name = "torch"
version = "2.13.0"
source = {{ registry = "https://download.pytorch.org/whl/cpu" }}
resolution-markers = ["{MAC}"]

[[package]]
name = "vllm-router"
version = "0.1.14.post1"
source = {{ url = "https://example.org/vllm_router-0.1.14.post1.whl" }}
resolution-markers = ["{LINUX}"]

[[package]]
name = "vllm-router"
version = "0.1.15"
source = {{ registry = "https://pypi.org/simple" }}
resolution-markers = ["{OTHER}"]
"""


# -- versions ----------------------------------------------------------------------------------------


def test_entries_of_other_platforms_are_not_locked_for_gpus(tmp_path: Path) -> None:
    """vllm-router 0.1.15 lacks what SkyRL reads: as a locked version it passed."""
    (tmp_path / "uv.lock").write_text(LOCK)
    assert locked(tmp_path) == {
        "megatron-core": ["0.19.0+71e418ea7"],
        "torch": ["2.11.0"],
        "vllm-router": ["0.1.14.post1"],
    }
    (tmp_path / "uv.lock").write_text("[[package]\n")
    assert locked(tmp_path) == {}


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("megatron-core is 0.19.0+71e418e, locked 0.19.0+71e418ea7", Status.PASS),
        ("megatron-core is 0.19.0, locked 0.19.0+71e418ea7", Status.FAIL),
        ("megatron-core is 0.19.0+91a15142, locked 0.19.0+71e418ea7", Status.FAIL),
        ("megatron-core is 0.19.2+71e418ea7, locked 0.19.0+71e418ea7", Status.FAIL),
    ],
)
def test_release_is_not_the_pinned_commit(tmp_path: Path, said: str, status: Status) -> None:
    found = judged(tmp_path, f"jobspec: package {said}\n")
    assert (found.status, found.required) == (status, False)


def judged(tmp_path: Path, text: str) -> Deliverable:
    plan = resolved(make_fake_skyrl(tmp_path / "skyrl"), tmp_path).plan
    assert plan is not None
    (tmp_path / "train.log").write_text(text)
    attempt = Attempt(1, "attempts/1", logs=(LogFile("train.log", "n1", len(text)),))
    found = frameworks.get("skyrl").judge(Evidence(tmp_path, plan, attempts=(attempt,)))
    return next(item for item in found if item.name == "Environment")


def test_megatron_of_sources_tells_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources on PYTHONPATH have no metadata; importing them would take half a minute."""
    core = tmp_path / "megatron/core"
    core.mkdir(parents=True)
    (core / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (core / "package_info.py").write_text("__version__ = '.'.join(map(str, (0, 19, 0))) + '+71e418ea7'\n")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    wanted = {"megatron-core": ["0.19.0+71e418ea7"], "megatron-bridge": ["0.6.0+91a15142"]}
    argv = [sys.executable, "-S", installed_versions.__file__, json.dumps(wanted)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "jobspec: package megatron-core is 0.19.0+71e418ea7, locked 0.19.0+71e418ea7",
        "jobspec: package megatron-bridge is missing, locked 0.6.0+91a15142",
    ]


# -- the probe ---------------------------------------------------------------------------------------


def resolved(checkout: Path, tmp_path: Path, gpus: int = 1, **change: Any) -> Resolved:
    """The example on Megatron with a stand-in checkout; `change` goes into the overrides, None removes."""
    data = yaml.safe_load((ROOT / "examples/skyrl_megatron.yaml").read_text())
    data["repos"] = [{"name": "skyrl", "path": str(checkout), "prove": {"import": "skyrl"}}]
    data["train"]["command"] = change.pop(
        "command", [sys.executable, "-m", "skyrl.train.entrypoints.main_base"]
    )
    data["container"] = {"env": change.pop("env", {})}
    data["model"] = change.pop("model", data["model"])
    overrides = {**data["train"]["overrides"], **{key.replace("__", "."): change[key] for key in change}}
    data["train"]["overrides"] = {key: value for key, value in overrides.items() if value is not None}
    site = tmp_path / "site.yaml"
    site.write_text(SITE.format(gpus=gpus))
    loaded = parse_spec(yaml.safe_dump(data, sort_keys=False), env=ENV)
    return resolve(loaded, load_cluster(None, site, env=ENV), env=ENV)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A stand-in with the modules that are probed, and beside it packages that import without a GPU."""
    made = make_fake_skyrl(tmp_path / "skyrl")
    packages = tmp_path / "packages"
    for module in (WORKER, environment_probe.ACTOR, environment_probe.ROUTER):
        write_module(made, module, "")
    for module in (
        "megatron.core",
        "megatron.bridge",
        "transformer_engine.pytorch",
        "modelopt",
        "transformers",
    ):
        write_module(packages, module, "")
    write_module(
        packages, "vllm.entrypoints.openai.api_server", "def create_server_socket(at, *, reuse_port): ...\n"
    )
    write_module(
        packages,
        "vllm_router.router_args",
        "class RouterArgs:\n    def __init__(self, pd_disaggregation): ...\n",
    )
    write_module(packages, "ray.serve", "")
    return made


def write_module(root: Path, module: str, text: str) -> None:
    file = root / f"{module.replace('.', '/')}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    for folder in [at for at in file.parents if root in at.parents]:
        (folder / "__init__.py").touch()
    file.write_text(text)


def lacks(checkout: Path, tmp_path: Path, **change: Any) -> list[str]:
    """What ends the run in its driver; the stand-in of Ray has no workers, which would be asked next."""
    plan = resolved(checkout, tmp_path, **change).plan
    assert plan is not None
    text = plan.commands[0].argv[0]
    begin = text.index(f"{sys.executable} - ")
    script = text[begin : text.rindex("JOBSPEC_PROBE\n") + len("JOBSPEC_PROBE\n")].replace(
        sys.executable, f"{sys.executable} -S"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{checkout}:{tmp_path / 'packages'}"}
    done = subprocess.run(["bash", "-ec", script], env=env, capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if line.startswith("jobspec: blocked: ")]
    assert (done.returncode == 3) == bool(said), done.stderr
    assert said or "has no attribute 'init'" in done.stderr  # all is there; Ray is asked next
    return [line.removeprefix("jobspec: blocked: ") for line in said]


def test_complete_environment_lacks_nothing(checkout: Path, tmp_path: Path) -> None:
    assert lacks(checkout, tmp_path) == []


SOCKET = "vllm.entrypoints.openai.api_server"
ROUTER_ARGS = "vllm_router.router_args"
FLASH = "trainer.flash_attn"
LACKS: list[tuple[str, str, str, dict[str, Any], str]] = [
    (
        "another Core",
        WORKER,
        "from json import base\n",
        {},
        f"{WORKER} cannot be imported in the driver: Imp",
    ),
    ("no ModelOpt", WORKER, "import modelopt.torch\n", {}, "install nvidia-modelopt in the image"),
    ("no training part", WORKER, "import megatron.training\n", {}, "install the Megatron-LM sources"),
    ("engine", environment_probe.ACTOR, "import pycountry\n", {}, "No module named 'pycountry'"),
    ("vLLM 0.24", SOCKET, "def create_server_socket(at): ...\n", {}, "takes no `reuse_port`"),
    ("router 0.1.15", ROUTER_ARGS, "class RouterArgs:\n    pass\n", {}, "has no `pd_disaggregation`"),
    ("ray without serve", "ray.serve", "import grpc_\n", {STATS: None}, f"`train.overrides.{STATS}: false`"),
    ("flash attention", "", "", {FLASH: None}, f"set `train.overrides.{FLASH}: false`"),
    ("Apex", "", "", {FUSION: True}, f"set `train.overrides.{FUSION}: false`, or remove the key"),
]


@pytest.mark.parametrize(
    ("module", "text", "change", "said"), [row[1:] for row in LACKS], ids=[r[0] for r in LACKS]
)
def test_lack_is_told_with_its_cure_before_a_model_is_built(
    checkout: Path, tmp_path: Path, module: str, text: str, change: dict[str, Any], said: str
) -> None:
    if module:
        write_module(checkout if module.startswith("skyrl.") else tmp_path / "packages", module, text)
    told = lacks(checkout, tmp_path, **{key.replace(".", "__"): value for key, value in change.items()})
    assert len(told) == 1
    assert said in told[0]


def test_statistics_that_are_off_need_no_serve(checkout: Path, tmp_path: Path) -> None:
    write_module(tmp_path / "packages", "ray.serve", "import grpc_\n")
    assert lacks(checkout, tmp_path) == []  # as the example has it


def test_uv_and_other_layouts_are_not_probed(checkout: Path, tmp_path: Path) -> None:
    plan = resolved(checkout, tmp_path, command=None).plan
    assert plan is not None
    assert "JOBSPEC_PROBE" not in plan.commands[0].argv[0]
    (checkout / f"{environment_probe.ACTOR.replace('.', '/')}.py").unlink()
    other = resolved(checkout, tmp_path).plan
    assert other is not None
    assert "JOBSPEC_PROBE" not in other.commands[0].argv[0]


# -- what the spec shows -----------------------------------------------------------------------------


def told(found: Resolved) -> dict[str, Finding]:
    return {finding.rule: finding for finding in found.findings}


@pytest.mark.parametrize(
    ("variable", "flash", "wrong"),
    [
        ("NVTE_FLASH_ATTN", True, True),
        ("NVTE_FLASH_ATTN", False, False),
        ("NVTE_FUSED_ATTN", False, True),
        ("NVTE_FUSED_ATTN", True, False),
    ],
)
def test_variable_that_leaves_no_attention(
    checkout: Path, tmp_path: Path, variable: str, flash: bool, wrong: bool
) -> None:
    found = told(resolved(checkout, tmp_path, env={variable: "0"}, trainer__flash_attn=flash))
    assert ("skyrl.flash-attention" in found) is wrong
    if wrong:
        assert found["skyrl.flash-attention"].path == f"container.env.{variable}"


@pytest.mark.parametrize(
    ("config", "warned"),
    [
        ({"dtype": "float32"}, True),
        ({"torch_dtype": "float32"}, True),
        ({"dtype": "bfloat16"}, False),
        ({}, False),
    ],
)
def test_model_in_float32_is_warned_of(
    checkout: Path, tmp_path: Path, config: dict[str, str], warned: bool
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    found = told(resolved(checkout, tmp_path, model={"path": str(folder)}))
    assert ("skyrl.float32" in found) is warned


@pytest.mark.parametrize(("gpus", "warned"), [(1, False), (4, True)])
def test_node_that_another_run_may_share(checkout: Path, tmp_path: Path, gpus: int, warned: bool) -> None:
    """Found by two runs on one machine: the engine of the first answered the second's requests."""
    found = told(resolved(checkout, tmp_path, gpus=gpus))
    assert ("skyrl.shared-node" in found) is warned
