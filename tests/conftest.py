"""What holds for all tests: generated cases have no deadline, for how fast a machine is decides nothing here."""

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
