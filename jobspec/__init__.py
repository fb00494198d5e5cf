"""jobspec: one YAML file in; a verified, reproducible RL post-training run on a Slurm cluster out.

A Python program may rely on the names in `__all__` (docs/python.md), and on nothing else:

    Request -> load | check -> make_plan -> render_run | submit -> status -> judge -> report_text

Nothing is imported before it is used: the command line must start fast, and `runtime.pyz` carries this file.
"""

__version__ = "0.1.0"

_MODULES = {
    "Request": "jobspec.pipeline",
    "check": "jobspec.pipeline",
    "judge": "jobspec.pipeline",
    "load": "jobspec.pipeline",
    "make_plan": "jobspec.pipeline",
    "render_run": "jobspec.pipeline",
    "report_text": "jobspec.pipeline",
    "status": "jobspec.pipeline",
    "submit": "jobspec.pipeline",
    "Finding": "jobspec.finding",
    "JobSpec": "jobspec.spec.job",
    "JobspecError": "jobspec.finding",
    "Plan": "jobspec.plan",
    "RunPaths": "jobspec.runs.paths",
    "Verdict": "jobspec.verdict",
}
__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    """A name of `__all__`, imported when it is first asked for (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'jobspec' has no attribute '{name}'")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})
