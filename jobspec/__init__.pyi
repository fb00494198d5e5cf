from jobspec.finding import Finding as Finding
from jobspec.finding import JobspecError as JobspecError
from jobspec.pipeline import Request as Request
from jobspec.pipeline import check as check
from jobspec.pipeline import judge as judge
from jobspec.pipeline import load as load
from jobspec.pipeline import make_plan as make_plan
from jobspec.pipeline import render_run as render_run
from jobspec.pipeline import report_text as report_text
from jobspec.pipeline import status as status
from jobspec.pipeline import submit as submit
from jobspec.plan import Plan as Plan
from jobspec.runs.paths import RunPaths as RunPaths
from jobspec.spec.job import JobSpec as JobSpec
from jobspec.verdict import Verdict as Verdict

__version__: str
__all__: list[str]
