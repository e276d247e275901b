"""The configuration tree, and how it is read from a file with overrides."""

from seedbed.config.tree import Config, InitConfig, ModelConfig, OptimConfig, Schedule, TrainConfig

__all__ = ["Config", "InitConfig", "ModelConfig", "OptimConfig", "Schedule", "TrainConfig"]
