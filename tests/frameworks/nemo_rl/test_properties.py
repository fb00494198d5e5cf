"""The data plane, the asynchronous trainer and router replay as properties of any GRPO run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.frameworks.nemo_rl import commands
from jobspec.frameworks.nemo_rl.levels import BY_NAME, Variant
from jobspec.frameworks.nemo_rl.properties import planned
from jobspec.judging.judge import judge
from jobspec.plan import Plan
from jobspec.verdict import Status
from tests.frameworks.nemo_rl.test_judge_runs import RUN, Runner, places, runner
from tests.kits.framework_kit import context, findings, make_fake_nemo_rl, plan_of, rules

__all__ = ["places", "runner"]

KEYS = {
    "data_plane.enabled": True,
    "data_plane.impl": "transfer_queue",
    "data_plane.backend": "simple",
    "data_plane.storage_capacity": 1000,
    "data_plane.num_storage_units": 2,
    "data_plane.claim_meta_poll_interval_s": 0.5,
    "data_plane.global_segment_size": 4096,
    "data_plane.local_buffer_size": 1024,
}
MOONCAKE = {**KEYS, "data_plane.backend": "mooncake_cpu"}


def asked(name: str, overrides: dict[str, Any], **more: Any) -> dict[str, Any]:
    sizes = {"parallel": {"tp": 2}} if name == "sizes" else {}
    return {"gpus": 8, "coverage": {"variants": [name]}, "train": {"overrides": overrides, **sizes}, **more}


def plan(name: str, overrides: dict[str, Any], **more: Any) -> Plan:
    spec = asked(name, overrides, **more)
    found = [item for item in findings("nemo_rl", BY_NAME[name].level, **spec) if item.is_error]
    assert not found
    return plan_of(context("nemo_rl", BY_NAME[name].level, **spec))


def only(name: str, overrides: dict[str, Any], **more: Any) -> Variant:
    (variant,) = planned(plan(name, overrides, **more).expect)
    return variant


@pytest.mark.parametrize("plus", ["", "+", "++"])
@pytest.mark.parametrize("name", ["colocated", "tp2", "sizes"])
def test_any_grpo_variant_runs_on_the_data_plane(name: str, plus: str) -> None:
    made = plan(name, {f"{plus}{key}": value for key, value in MOONCAKE.items()})
    assert commands.ANNOUNCE in [command.name for command in made.commands]
    (variant,) = planned(made.expect)
    assert (variant.trainer, variant.network_actors) == ("transfer_queue", True)
    assert variant.proofs == (*BY_NAME[name].proofs, "data-plane-mooncake")


def test_only_mooncake_announces() -> None:
    made = plan("tp2", KEYS)
    assert commands.ANNOUNCE not in [command.name for command in made.commands]
    assert planned(made.expect)[0].proofs[-1] == "data-plane-simple"


def test_another_backend_takes_the_place_of_the_variant_s_own() -> None:
    changed = only("data-plane-simple", {"data_plane.backend": "mooncake_cpu"})
    assert changed.proofs == ("data-plane-mooncake",)


def test_a_recipe_that_sets_the_data_plane_itself_counts(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path)
    config = tmp_path / BY_NAME["ep"].config
    recipe = json.loads(config.read_text())
    recipe["data_plane"] = {key.partition(".")[2]: value for key, value in MOONCAKE.items()}
    config.write_text(json.dumps(recipe))
    made = plan("ep", {}, repos={"rl": str(tmp_path)}, resources={"nodes": 2})
    assert [command.name for command in made.commands[-2:]] == [commands.ANNOUNCE, "ep"]


def test_every_variant_on_the_data_plane_gets_its_source(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path)
    adapter = tmp_path / "nemo_rl/data_plane/adapters/transfer_queue.py"
    adapter.parent.mkdir(parents=True)
    adapter.write_text("_patch_tq_actor_runtime_env()\n")
    (tmp_path / "pyproject.toml").write_text('x = ["TransferQueue @ git+https://example.org/a/b.git@c5"]\n')
    repos = {"rl": str(tmp_path)}
    assert "git ls-remote https://example.org/a/b.git" in plan("tp2", KEYS, repos=repos).commands[-1].argv[0]
    assert "git ls-remote" not in plan("tp2", {}, repos=repos).commands[-1].argv[0]


def test_router_replay_of_any_variant_is_proved_and_traced_on_the_data_plane() -> None:
    replay = {"++policy.router_replay.enabled": True}
    alone = only("sizes", replay)
    assert (alone.proofs, alone.trace) == (("parallel-sizes", "router-replay"), False)
    made = plan("sizes", {**replay, **KEYS})
    both = planned(made.expect)[0]
    assert both.proofs == ("parallel-sizes", "router-replay", "data-plane-simple")
    assert commands.CHECK_ROUTES in made.commands[-1].argv[0]
    assert "export NRL_ROUTER_REPLAY_VALIDATE=1" in made.commands[-1].argv[0]


def test_asynchronous_trainer_is_expected_where_the_configuration_has_it() -> None:
    assert only("tp2", {"+grpo.async_grpo.enabled": True}).trainer == "async"
    assert only("lora-async", {"+grpo.async_grpo.enabled": False}).trainer == "sync"
    assert only("tp2", {}) == BY_NAME["tp2"]


def test_plan_of_an_entry_unchanged_keeps_its_name_alone() -> None:
    assert "variants" not in plan("tp2", {}).expect.options


def test_entry_point_that_never_reads_the_data_plane_is_refused(tmp_path: Path) -> None:
    """The entry point of vision-language models trains without it, whatever the keys say."""
    make_fake_nemo_rl(tmp_path)
    entry = tmp_path / BY_NAME["vlm"].script
    for text, refused in (("grpo_train(policy)\n", True), ("config.data_plane\n", False)):
        entry.write_text(text)
        found = findings("nemo_rl", 5, repos={"rl": str(tmp_path)}, **asked("vlm", KEYS))
        assert ("nemo_rl.data-plane" in rules(found)) is refused
        assert "nemo_rl.data-plane" not in rules(
            findings("nemo_rl", 5, repos={"rl": str(tmp_path)}, **asked("vlm", {}))
        )


def test_multimodal_run_on_the_data_plane_is_proved_where_its_entry_point_reads_it(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path)
    (tmp_path / BY_NAME["vlm"].script).write_text("config.data_plane\n")
    made = plan("vlm", MOONCAKE, repos={"rl": str(tmp_path)})
    (variant,) = planned(made.expect)
    assert (variant.trainer, variant.proofs) == ("vlm", ("data-plane-mooncake",))
    assert commands.ANNOUNCE in [command.name for command in made.commands]


def test_plan_of_a_newer_jobspec_claims_nothing() -> None:
    expect = plan("tp2", KEYS).expect
    newer = str(expect.options["variants"]).replace('"trainer"', '"unheard_of"')
    assert planned(replace(expect, options={"variants": newer})) == ()


@pytest.mark.parametrize(
    ("overrides", "errors"),
    [
        ({"+policy.dynamic_batching.enabled": True}, 0),
        ({"+policy.dynamic_batching.enabled": True, "policy.sequence_packing.enabled": True}, 1),
        (
            {
                "+policy.dynamic_batching.enabled": True,
                "policy.megatron_cfg.pipeline_model_parallel_size": 2,
            },
            1,
        ),
        ({"+policy.dynamic_batching.enabled": False, "policy.sequence_packing.enabled": True}, 0),
    ],
)
def test_dynamic_batches_exclude_packing_and_pipeline_stages(overrides: dict[str, Any], errors: int) -> None:
    found = findings("nemo_rl", 4, **asked("tp2", overrides))
    assert sum(item.rule == "nemo_rl.dynamic-batching" for item in found) == errors


def test_run_of_any_variant_on_the_data_plane_passes(runner: Runner) -> None:
    told = {item.name: item for item in judge(runner.run("tp2", train={"overrides": KEYS})).deliverables}
    assert told[RUN].status is Status.PASS
    assert any("TransferQueue" in item.text for item in told[RUN].evidence)
    assert told["Requested variants"].status is Status.PASS


def test_run_of_any_variant_beside_the_data_plane_fails(runner: Runner) -> None:
    verdict = judge(runner.run("tp2", "no-plane", train={"overrides": KEYS}))
    told = {item.name: item for item in verdict.deliverables}
    assert told[RUN].status is Status.FAIL
    assert "transfer_queue" in told[RUN].reason
