"""The limitations of a run: what it did not prove (design section 8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jobspec.evidence.evidence import Evidence, RanCode
from jobspec.frameworks.shared.metric_deliverables import learning_limitation
from jobspec.frameworks.shared.schedule import ONE_SEED
from jobspec.plan import NOT_PINNED, ContainerPlan
from jobspec.verdict import Deliverable

# Key of the plan's options -> the parallelism that its size 1 leaves unproved.
PARALLEL = {
    "tp": "tensor parallelism",
    "pp": "pipeline parallelism",
    "ep": "expert parallelism",
    "etp": "expert tensor parallelism",
    "cp": "context parallelism",
}
# (option that an adapter sets, value that limits the claim) -> the limitation.
STATED = {
    ("dummy_model", True): "the weights were random: no compatibility with real weights is proved",
    ("text_only", True): "the data was text only: nothing is proved about images, audio or video",
    ("reward_model", False): "no reward model took part: its path is not proved",
    ("offload", False): "nothing was offloaded: neither parameter nor optimizer offloading is proved",
    ("peft", True): "only an adapter was trained: full-parameter training is not proved",
}

# As levels say it; a metric that is asked for is judged by itself.
NO_LEARNING = "nothing is proved about learning"
NO_BASELINE = "no known-good baseline was compared: the trend counts from the run's own start"
NO_CONVERGENCE = "a learning signal is no convergence"
OF_AN_EFFECT = frozenset({ONE_SEED, NO_BASELINE, NO_CONVERGENCE})  # they limit a claim that something moved


def limitations(evidence: Evidence) -> tuple[str, ...]:
    """One sentence per thing that the run does not prove, each once."""
    expect = evidence.plan.expect
    sentences = [text for text in expect.limitations if expect.learning is None or text != NO_LEARNING]
    sentences.extend(_of_resources(evidence))
    sentences.extend(_of_sources(evidence))
    sentences.extend(_of_training(evidence))
    sentences.extend(_of_learning(evidence, sentences))
    sentences.extend([NO_BASELINE] if expect.learning is not None else [])
    return tuple(dict.fromkeys(sentences))


def with_limits(sentences: Iterable[str], deliverables: Iterable[Deliverable]) -> tuple[str, ...]:
    """The sentences, and what the evidence of each deliverable leaves open; each once."""
    return tuple(dict.fromkeys((*sentences, *(limit for item in deliverables for limit in item.limits))))


def _of_resources(evidence: Evidence) -> Iterator[str]:
    plan = evidence.plan
    if plan.scheduler == "slurm" and not evidence.scheduler.state and not evidence.foreign:
        yield "how Slurm saw the job end is not recorded: only the run's own files count here"
    unknown = [what for what, count in (("nodes", plan.nodes), ("GPUs", plan.gpus_per_node)) if not count]
    if evidence.foreign and unknown:
        yield f"how many {' and '.join(unknown)} took part is not judged"
    elif plan.gpus_per_node == 0:
        yield "no GPU took part: nothing is proved about CUDA, NCCL or GPU memory"
    elif not any(plan.driver_gpus_of(part.first) for part in plan.parts):
        yield "services had all GPUs: nothing is proved about training on them"
    if plan.nodes == 1:
        one = "a setting asks for one node" if evidence.foreign else "one node took part"
        yield f"{one}: nothing is proved about the network between nodes"
    for key, name in PARALLEL.items():
        if plan.expect.options.get(key) == 1:
            yield f"{key} = 1: no {name} is proved"


def _of_sources(evidence: Evidence) -> Iterator[str]:
    plan = evidence.plan
    if (plan.repos or evidence.foreign) and not plan.proofs:
        yield "no checkout was named: what was imported is compared with none"
    for repo in plan.repos:
        ran = evidence.ran.get(repo.name, RanCode())
        if repo.dirty or ran.uncommitted:
            yield f"repository `{repo.name}` had uncommitted changes: its commit alone is not what ran"
        if ran.unknown:
            yield f"which code of `{repo.name}` ran cannot be told: {ran.unknown}"
        elif ran.commit and ran.differs(repo) and evidence.last and evidence.last.started("driver"):
            yield f"repository `{repo.name}` changed after submission: the lock does not have what ran"
        if len(_states(evidence, repo.name)) > 1:
            yield f"the attempts ran different code of `{repo.name}`: a checkpoint may be of another one"
    for _, container in plan.containers:
        yield from _of_image(container)


def _of_image(container: ContainerPlan) -> Iterator[str]:
    if container.pin == NOT_PINNED:
        yield f"the image `{container.image}` was named by a tag: which image ran is not known"
    if container.by_tag:
        image, digest = container.image, container.digest
        yield f"the image `{image}` was {digest} at submission, and its tag may have moved before the start"


def _states(evidence: Evidence, repo: str) -> set[tuple[str, str]]:
    """Commit and digest of the uncommitted files of each attempt in which they are known."""
    seen = [attempt.results.code.get(repo) for attempt in evidence.attempts if attempt.results is not None]
    return {(state.commit, state.uncommitted_sha256) for state in seen if state is not None and state.commit}


def _of_training(evidence: Evidence) -> Iterator[str]:
    expect = evidence.plan.expect
    for (key, value), text in STATED.items():
        if expect.options.get(key) is value:
            yield text
    if not expect.checkpoint:
        asked = "no checkpoint is asked for at this level: saving and resuming are not judged"
        off = "checkpointing was off: neither saving nor resuming is proved"
        yield asked if evidence.foreign else off
    elif not expect.resume:
        yield "no resume was asked for: resuming from a checkpoint is not proved"
    if len(evidence.attempts) > 1:
        yield f"the run took {len(evidence.attempts)} attempts; only the last one decides"


def _of_learning(evidence: Evidence, said: Sequence[str]) -> Iterator[str]:
    """What the curve leaves possible, and one sentence more where no other limitation speaks of learning."""
    if possible := learning_limitation(evidence):
        yield possible
    if evidence.plan.expect.learning is not None:
        yield from (f"{lost}: what the reward would be without that is not known" for lost in evidence.lost)
    if any("convergence" in item or "learning" in item for item in said):
        return
    expect = evidence.plan.expect
    if expect.learning is not None or any(part.learning is not None for part in expect.parts):
        yield NO_CONVERGENCE
    elif evidence.plan.framework != "command":
        yield "no learning signal was asked for: neither learning nor convergence is proved"
