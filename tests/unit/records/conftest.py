"""kafka-python is an oracle here; its import warns about its own use of importlib."""

from __future__ import annotations

import warnings

from hypothesis import HealthCheck, settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401

# A slow machine is no failure.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
