"""jobspec: one YAML file in; a verified, reproducible RL post-training run on a Slurm cluster out.

The way from a spec to a verdict, one function per arrow (docs/architecture.md):

    load_spec -> load_cluster -> resolve -> render -> Launcher.submit -> (runtime) -> judge -> render_report

This file imports nothing: the command line must start fast, and `runtime.pyz` carries it.
"""

__version__ = "0.1.0"
