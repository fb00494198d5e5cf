"""For every folder of tests."""

from hypothesis import HealthCheck, settings

# A loaded machine is no failure. The rest is as Hypothesis chooses: on CI the same examples each time.
settings.register_profile("jobspec", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jobspec")
