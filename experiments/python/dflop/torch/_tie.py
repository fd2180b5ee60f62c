"""Ties prevent torch's split backward from losing gradients."""

import torch


class Tie(torch.autograd.Function):
    """Returns its first input, whose gradient also flows past the anchor, which gets none.

    torch's split backward finds parameters only on paths from outputs to inputs. Without an error, it loses the
    parameters of a stage whose input is not used (microbatches with only text) or needs no gradient (after a frozen
    encoder). The anchor is an input to which there is always a path. With `copy` the output is contiguous and not a
    view.
    """

    @staticmethod
    def forward(ctx, tensor, anchor, copy):
        return tensor.clone(memory_format=torch.contiguous_format) if copy else tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None, None
