"""Rules over start, warning before the end, further attempts and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile
from jobspec.units import is_below


def grace_fits_time(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    grace = plan.slurm.grace_s
    if plan.scheduler == "slurm" and plan.time_limit_s is not None and grace >= plan.time_limit_s:
        yield error(
            "launch.grace",
            f"the grace period of {grace} s is not shorter than the time limit of {plan.time_limit_s} s",
            why="the run would have to stop before it starts",
            fix="use a longer `resources.time` or a shorter `launch.requeue.grace`",
            path="launch.requeue.grace" if spec.launch.requeue.grace != 300 else "resources.time",
        )


def requeue_goes_on(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    requeue = spec.launch.requeue
    if requeue.max_attempts == 1:
        if spec.watch.stall.action == "requeue":
            yield error(
                "launch.requeue-never",
                "`watch.stall.action` is `requeue`, and the run has one attempt",
                fix="set `launch.requeue.max_attempts: 2`, or use `action: end`",
                path="watch.stall.action",
            )
        return
    if plan.scheduler == "local":
        yield warning(
            "launch.requeue-local",
            "a run on this machine is not requeued",
            fix="remove `launch.requeue.max_attempts`, or use a site profile with `scheduler: slurm`",
            path="launch.requeue.max_attempts",
        )
        return
    if requeue.grace == 0:
        yield warning(
            "launch.requeue-no-grace",
            "with `grace: 0` the time limit ends a run without warning and without a further attempt",
            fix="give the run time to save, such as `grace: 300`",
            path="launch.requeue.grace",
        )
    if not plan.checkpoint_dir or spec.checkpoint.resume == "never":
        yield warning(
            "launch.requeue-anew",
            "every further attempt starts training from the beginning",
            why="`checkpoint.resume` is `never`" if plan.checkpoint_dir else "`checkpoint.dir` is not set",
            fix="set `checkpoint.dir` and `checkpoint.every`, and `resume: auto`",
            path="checkpoint",
        )


def checkpoint_is_shared(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.scheduler == "local" or not plan.checkpoint_dir:
        return
    folder = plan.checkpoint_dir
    for local in (plan.node_local, "/tmp", "/dev/shm", "/run", "/var/tmp"):
        if is_below(folder, local) and not is_below(folder, plan.runs):
            yield error(
                "checkpoint.node-local",
                f"`{folder}` lies below `{local}`, and each node has its own `{local}`",
                why="the next attempt may start on other nodes and miss the checkpoints",
                fix="use a folder on shared storage, such as `${cluster:runs}/ckpt/NAME`",
                path="checkpoint.dir",
            )
            return


def has_commands(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if not plan.commands and not plan.hold:
        yield error(
            "launch.no-command",
            f"`{plan.framework}` gives nothing to run for this spec",
            fix="set `train`, or `launch: {hold: true}` for an idle cluster",
            path="train",
        )


def idle_can_be_seen(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.hold_idle_s is None:
        return
    rows = (
        (not plan.hold, "the run is not held", "add `hold: true`"),
        (plan.scheduler != "slurm", "only Slurm counts the steps of a run", "use a Slurm cluster"),
        (plan.mode == "upstream", "the framework's own script starts steps of its own", "use another mode"),
    )
    for applies, why, fix in rows:
        if applies:
            what = "`hold_idle` cannot end this run"
            yield error("launch.hold-idle", what, why, f"{fix}, or remove it", path="launch.hold_idle")


def kept_ray_can_be_used(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if not plan.kept_ray:
        return
    podman = "a container of podman numbers its processes by itself, and Ray finds its workers by number"
    own_gpus = any(service.gpus for service in plan.services)
    rows = (
        (plan.mode != "ray", "jobspec starts no Ray in this mode", "use mode `ray`"),
        (
            plan.scheduler != "slurm",
            "only an allocation of Slurm has a held run in it",
            "use a Slurm cluster",
        ),
        (plan.container.runtime == "podman", podman, "use another container runtime"),
        (own_gpus, "the GPUs of services are the kept Ray's", "use services without `gpus`"),
    )
    for applies, why, fix in rows:
        if applies:
            what = "`kept_ray` cannot be had by this run"
            yield error("launch.kept-ray", what, why, f"{fix}, or remove it", path="launch.kept_ray")


def frozen_copies_reach_the_cluster(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.scheduler == "local" or profile.access.login == "here":
        return
    for index, repo in enumerate(spec.repos):
        if repo.freeze:
            yield error(
                "repo.freeze-remote",
                f"the copy of `{repo.name}` would lie on this machine, and the run is on `{plan.cluster}`",
                why="the cluster behind `access.login` has file systems of its own",
                fix="remove `freeze`, or submit from the login node; a copy by `sync` is frozen anyway",
                path=f"repos[{index}].freeze",
            )


RULES = (
    grace_fits_time,
    requeue_goes_on,
    checkpoint_is_shared,
    has_commands,
    idle_can_be_seen,
    kept_ray_can_be_used,
    frozen_copies_reach_the_cluster,
)
