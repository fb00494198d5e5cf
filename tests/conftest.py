"""For every folder of tests."""

import signal

from hypothesis import HealthCheck, settings

# A loaded machine is no failure. The rest is as Hypothesis chooses: on CI the same examples each time.
settings.register_profile("jobspec", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jobspec")

# Below nohup(1) the runtime leaves SIGHUP ignored, by design; tests begin as from a terminal. A handler, not
# the default: what is run below nohup wants to outlive the terminal.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
