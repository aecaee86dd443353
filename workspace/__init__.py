"""The folder that all stages share: paths, atomic publish, manifests, shards, config, errors."""

from workspace import environment

environment.apply()
