"""The rules about specs, site profiles and plans: the names that `--allow` takes.

A rule is `FAMILY.NAME`, and its family alone means all of them. A test compares this list with the sources.
The rules of an adapter from another package are not listed; their family is the framework's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from jobspec.finding import Finding, error
from jobspec.words import nearest


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


RULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "checkpoint": _names("node-local"),
        "cluster": _names(
            "access env gpu-type hook name network path place ports reference runtime sbatch secret unknown "
            "unused variable"
        ),
        "command": _names("file file-beside missing module not-recorded shell tasks unused-key variant"),
        "container": _names(
            "image-absent image-form image-latest image-missing image-tag image-unused mount-characters "
            "mount-hides-run mount-writable mounts-unused not-cached oci-config oci-mount registry-form "
            "source-tag tag-moved tag-unknown workdir"
        ),
        "coverage": _names("checks level-unknown levels not-applicable variant"),
        "data": _names("source unpinned"),
        "env": _names("hub-endpoint reserved secret secret-twice"),
        "framework": _names("duplicate plugin unknown"),
        "group": _names("array nodelist nodes upstream"),
        "launch": _names(
            "grace here hold-idle incomplete kept-ray locked maintenance mode mode-chosen moved no-command "
            "no-job no-paramiko no-program no-ssh not-yours refused remote-failed requeue-anew requeue-local "
            "requeue-never requeue-no-grace scheduler secret-missing ssh ssh-auth ssh-closed ssh-host-key "
            "ssh-name ssh-no-master ssh-unknown-host unsettled upstream-characters upstream-container "
            "upstream-gpus "
            "upstream-shared upstream-slurm upstream-unsupported"
        ),
        "local": _names("module"),
        "megatron": _names(
            "batch-dp batch-micro batch-steps context-parallel engine-experts engine-heads "
            "engine-node expert-grid experts ffn heads layers linear-attention mamba model-unknown "
            "placement recompute sequence-parallel sequence-parallel-tp1 shapes tp-node vpp vpp-skyrl "
            "world"
        ),
        "memory": _names("engine gpu host"),
        "metrics": _names("baseline require"),
        "model": _names("unpinned"),
        "nemo_rl": _names(
            "announce backend bridge cache checkout checks config data-plane data-plane-install "
            "data-plane-shared dynamic-batching exclusive extras gpus key leftover megatron-lm mode model "
            "nodes nothing override owned packing parallel python r3 recipe recipe-level recipe-smaller "
            "recipe-value resume script stale-key steps submodules text-only tp-guard unused-key variant "
            "weak-evidence"
        ),
        "nodes": _names("asked-for avoided damaged not-listed not-named too-long too-many-excluded"),
        "paths": _names("characters node-local-long"),
        "render": _names("bash checker exists no-bash no-plan shellcheck value"),
        "repo": _names(
            "bundle checkout elsewhere filter freeze freeze-remote helpers left-out lfs missing no-git "
            "not-asked not-fetched not-git not-here older-clone other-clone pythonpath ref-mismatch "
            "ref-unknown restore sync synced timeout two-sides unreadable"
        ),
        "reproduce": _names(
            "cluster data image jobspec left-out model no-lock not-confirmed not-same patch ran repo unpinned"
        ),
        "resources": _names(
            "cpus-per-node dependency gpu-type gpus-per-node local-nodes max-nodes max-time memory no-time "
            "partition sbatch site-default unused"
        ),
        "rlix": _names(
            "admit-delay async bucket-size cache checkout checkpoint colocation config cpus data "
            "driver engine-awake engine-group engine-pp engine-tp engines gates gpu gpus-per-node "
            "host-memory key level metrics model nodes number offload-nccl overlap owned pipelines "
            "reference resume reward sleep-level steps train-shared value variant verify versions"
        ),
        "secrets": _names("unset"),
        "service": _names(
            "components gpus idle-gpus no-gpus-left no-runtime nodes port upstream visible-devices"
        ),
        "skyrl": _names(
            "algorithm batch chat-template checkout checkpoint-dir checkpoint-home checkpoint-size "
            "colocated context-parallel data entrypoint executor expandable-segments flash-attention float32 "
            "fsdp-megatron fsdp-padding fsdp-parallel fsdp-ulysses gpus host-memory image-ray key kl "
            "legacy-key logger max-model-len model owned pipeline placement precision-aware python "
            "relative-path remote reshard reward router-replay shared-node steps strategy sync-broadcast "
            "sync-metadata sync-reload sync-router-bias value variant vpp"
        ),
        "spec": _names(
            "alias base characters checkpoint checks choice cluster command cycle dependency dump "
            "duplicate-key duplicate-name empty encoding env file format group groups helpers key kind merge "
            "missing model-id model-source module mount no-effect not-text number pipeline pipelines range "
            "recipe reference repo-folder repo-ref repo-source repo-url revision sbatch secret service set "
            "size sweep syntax tab tag top type unknown-key unquoted value variant version"
        ),
        "stage": _names(
            "by-path copy download hub-by-path hub-no-internet hub-unknown hub-unpinned image-cache "
            "image-elsewhere image-kind mirror missing no-hf-home no-image space stalled timeout"
        ),
        "sweep": _names("empty max-array more none resources shared-checkpoint skipped"),
        "train": _names("workers-gpus workers-uneven"),
        "trl": _names(
            "algorithm batch data generations idle-gpus idle-nodes mode model owned-option parallel "
            "peft resume reward steps tracker unknown-option variant workers"
        ),
        "value": _names("unpassable"),
        "verl": _names(
            "batch bridge checkout checkpoint-dir checks cpus data dummy engine gpus image-engine "
            "image-megatron key knob level megatron-lm model override owned replay resume reward role-world "
            "rollout rows rows-not-counted script srun steps submodule text-only tracker value variant"
        ),
    }
)


def known_rules() -> frozenset[str]:
    """Every rule by its full name."""
    return frozenset(f"{family}.{name}" for family, names in RULES.items() for name in names)


def check_allowed(names: Iterable[str]) -> list[Finding]:
    """A finding for each name in `--allow` that is neither a rule nor a family of rules."""
    return [_unknown(name) for name in dict.fromkeys(names) if not _is_known(name)]


def _is_known(name: str) -> bool:
    from jobspec.frameworks import BUILT_IN, names

    family, dot, _ = name.partition(".")
    if family in RULES and not dot:
        return True
    return name in known_rules() or (family not in RULES and family not in BUILT_IN and family in names())


def _unknown(name: str) -> Finding:
    family, _, rest = name.strip().partition(".")
    if family in RULES:
        near = nearest(rest, RULES[family])
        close = near and f"{family}.{near}"
    else:
        close = nearest(name.strip(), [*known_rules(), *RULES], cutoff=0.85)
    inside = ", ".join(f"`{family}.{rule}`" for rule in RULES.get(family, ()))
    families = f"errors about specs, site profiles and plans can be allowed: {', '.join(RULES)}"
    why = f"rules of `{family}`: {inside}" if inside else families
    fix = (
        f"did you mean `{close}`?" if close else "copy the name from the brackets of the error: `error[RULE]`"
    )
    return error("usage.rule", f"there is no rule `{name}`", why, fix, file=f"--allow {name}")
