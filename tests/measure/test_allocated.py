"""Bytes that come and go, counted as they are."""

import torch

from seedbed.measure.memory import allocated, tensor_bytes

CPU = torch.device("cpu")
MEGA = 4 * 2**20


def test_what_is_there_and_the_most_there_was():
    with allocated(CPU) as counter:
        kept = torch.zeros(2**20)
        view = kept.view(2**10, 2**10)[0]
        assert counter.now == counter.peak == MEGA
        more = kept + 1
        more.add_(1)
        assert counter.now == counter.peak == 2 * MEGA
        del more
        assert (counter.now, counter.peak) == (MEGA, 2 * MEGA)
        counter.forget()
        assert counter.peak == MEGA
        del kept
        assert counter.now == MEGA  # a view holds all of it
        del view
        assert counter.now == 0


def test_what_backward_needs_is_there_until_it_has_run():
    weight = torch.ones(2**20, requires_grad=True)
    with allocated(CPU) as counter:
        loss = (weight.exp() * 3).sum()
        assert counter.now == MEGA + 4  # the exponentials
        loss.backward()
        del loss
        assert counter.now == MEGA  # the gradient
        # exponentials, their gradient before and after the factor; the loss and its own gradient
        assert counter.peak == 3 * MEGA + 8


def test_bytes_of_tensors():
    assert tensor_bytes([torch.zeros(3), None, torch.zeros(2, dtype=torch.float64)]) == 28
