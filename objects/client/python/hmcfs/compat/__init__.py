"""The Python interfaces of two of hmcfs's seeds: ``hmc`` and ``datasystem``."""
