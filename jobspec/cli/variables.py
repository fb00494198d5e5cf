"""The environment variables that commands read: what they mean, and names that are nearly one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobspec.finding import Finding, warning

# As `docs/cli.md` has them. Those of a job, which jobspec sets itself, are in docs/runtime.md.
VARIABLES: Mapping[str, str] = {
    "JOBSPEC_CLUSTER": "site profile where `--cluster` is not given; wins over the spec's `cluster`",
    "JOBSPEC_CLUSTERS": "folders and files with site profiles, separated by `:`; a part without one is told",
    "JOBSPEC_RUNS": "the folder that new runs go to, instead of the profile's, and that RUN refers to",
    "NO_COLOR": "no colour and no live screen; so has `TERM=dumb`",
    "HF_HOME": "the Hugging Face cache where neither `hf_cache.home` nor the profile names one",
    "HOME": "`~`, and the default of the next two",
    "XDG_CONFIG_HOME": "`jobspec/clusters` below it has the user's site profiles (default `~/.config`)",
    "XDG_STATE_HOME": "`jobspec` below it remembers the folders of runs (default `~/.local/state`)",
    "USER": "`${user}` of a site profile; else LOGNAME, or the password database",
    "SLURM_CONF": "passed on to sbatch; of all other SLURM_ and SBATCH_ variables none is",
    "SCRATCH": "the folder of runs that `cluster detect` proposes",
    "ENROOT_CONFIG_PATH": "where `triage` looks for the registries that Enroot has credentials of",
    "TMPDIR": "temporary files, and the traceback of a bug",
}
_OWN = tuple(name for name in VARIABLES if name.startswith("JOBSPEC_"))


def mistyped(env: Mapping[str, str]) -> Iterator[Finding]:
    """A warning for each variable whose name is nearly one of jobspec's own; nothing inside a job."""
    if "JOBSPEC_RUN_DIR" in env:  # a job has variables of its own, and some of their names are near
        return
    for name in sorted(env):
        if name.startswith("JOBSPEC") and name not in _OWN:
            from difflib import get_close_matches

            close = get_close_matches(name, _OWN, n=1, cutoff=0.85)
            if close:
                what = f"jobspec reads no variable `{name}`"
                yield warning("usage.variable", what, fix=f"did you mean `{close[0]}`?", file=f"${name}")
