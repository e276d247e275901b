"""AdamW for weights kept in less than fp32."""

import torch
from torch.optim.adamw import adamw


class AdamWFp32(torch.optim.AdamW):
    """AdamW whose moments and arithmetic are fp32 whatever weights and gradients are kept in (S1): a step widens one
    parameter after another, updates it by torch's fused kernel, which takes one type only, and rounds it once.

    ``state[parameter]`` must be there before the first step, with fp32 moments.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            options = {"lr": group["lr"], "weight_decay": group["weight_decay"], "eps": group["eps"]}
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, wide = self.state[parameter], parameter.float()
                moments = [state["exp_avg"]], [state["exp_avg_sq"]], []
                adamw(
                    [wide], [parameter.grad.float()], *moments, [state["step"]], fused=True, amsgrad=False,
                    beta1=beta1, beta2=beta2, maximize=False, **options,
                )  # fmt: skip
                parameter.copy_(wide)
