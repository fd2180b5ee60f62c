"""Ties keep torch's split backward from losing gradients."""

import torch


class Tie(torch.autograd.Function):
    """Returns its first input, whose gradient also passes by the anchor, which gets none.

    torch's split backward finds parameters only on ways from outputs to inputs: it loses those of a stage whose input
    is not used (microbatches of text alone) or needs no gradient (behind a frozen encoder), without a word. The anchor
    is an input to which there is always a way. With `copy` the output is contiguous and no view.
    """

    @staticmethod
    def forward(ctx, tensor, anchor, copy):
        return tensor.clone(memory_format=torch.contiguous_format) if copy else tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None, None
