"""The configuration tree, and how it is read from a file with overrides."""

from seedbed.config.model import ModelConfig
from seedbed.config.optim import OptimConfig, Schedule
from seedbed.config.train import TrainConfig
from seedbed.config.tree import Config, InitConfig

__all__ = ["Config", "InitConfig", "ModelConfig", "OptimConfig", "Schedule", "TrainConfig"]
