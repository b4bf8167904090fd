"""Liger's losses over a vocabulary, forward and backward."""

import torch
from tilegym.suites.liger import ops

from tilewatch import case, watch

F = torch.nn.functional


def loss_and_gradient(function, *inputs):
    leaves = [each.detach().clone().requires_grad_() for each in inputs]
    loss = function(*leaves)
    loss.sum().backward()
    return loss.detach(), *(each.grad for each in leaves)


@watch(problems="1024x32000:bf16", names="tokens x vocabulary")
def lg_cross_entropy(p):
    x, target = p.randn(p.tokens, p.vocabulary), p.randint(0, p.vocabulary, (p.tokens,), dtype=torch.int64)
    return case(run=lambda: ops.cross_entropy(x.clone(), target), reference=lambda: F.cross_entropy(x.float(), target))


@watch(problems="1024x4096x32000:bf16", names="tokens x hidden x vocabulary")
def lg_fused_linear_cross_entropy(p):
    x, w = p.randn(p.tokens, p.hidden), p.randn(p.vocabulary, p.hidden)
    target = p.randint(0, p.vocabulary, (p.tokens,), dtype=torch.int64)
    return case(
        run=lambda: ops.fused_linear_cross_entropy(x, w, target),
        reference=lambda: F.cross_entropy(x.float() @ w.float().T, target),
    )


@watch(problems="1024x32000:f32", names="tokens x vocabulary")
def lg_jsd(p):
    x, y = (p.randn(p.tokens, p.vocabulary).log_softmax(-1) for _ in range(2))

    def reference():
        middle = torch.log((x.exp() + y.exp()) / 2)
        return sum(F.kl_div(middle, each, log_target=True, reduction="batchmean") for each in (x, y)) / 2

    return case(run=lambda: ops.jsd(x, y), reference=reference)


@watch(problems="1024x1024x32000:bf16", names="tokens x hidden x vocabulary")
def lg_fused_linear_jsd(p):
    x, y, w, v = (p.randn(rows, p.hidden) for rows in (p.tokens, p.tokens, p.vocabulary, p.vocabulary))
    return case(run=lambda: ops.fused_linear_jsd(x, w, y, v), reference=lambda: None)


@watch(problems="1024x32000:f32", names="tokens x vocabulary")
def lg_kl_div(p):
    x, y = p.randn(p.tokens, p.vocabulary).log_softmax(-1), p.rand(p.tokens, p.vocabulary)
    return case(run=lambda: ops.kl_div(x, y), reference=lambda: F.kl_div(x, y, reduction="batchmean"))


@watch(problems="1024x32000:f32", names="tokens x vocabulary")
def lg_kl_div_of_each_element(p):
    x, y = p.randn(p.tokens, p.vocabulary).log_softmax(-1), p.rand(p.tokens, p.vocabulary)
    return case(
        run=lambda: loss_and_gradient(lambda x: ops.kl_div(x, y, reduction="none"), x),
        reference=lambda: loss_and_gradient(lambda x: F.kl_div(x, y, reduction="none"), x),
    )


@watch(problems="1024x{32000,32768,32001}:bf16", names="tokens x vocabulary")
def lg_tvd(p):
    x, y = (p.randn(p.tokens, p.vocabulary).softmax(-1) for _ in range(2))
    labels = p.randint(0, p.vocabulary, (p.tokens,), dtype=torch.int64)
    return case(
        run=lambda: ops.tvd(x, y, shift_labels=labels),
        reference=lambda: (x.float() - y.float()).abs().sum() / 2 / p.tokens,
    )


@watch(problems="4x512x32000:bf16:{token,sequence}", names="batch x length x vocabulary : dtype : level")
def lg_grpo_loss(p):
    logits, ids = p.randn(p.batch, p.length + 1, p.vocabulary), p.randint(0, p.vocabulary, (p.batch, p.length))
    old, advantages = p.randn(p.batch, p.length, dtype="f32"), p.randn(p.batch, dtype="f32")
    mask = p.ones(p.batch, p.length, dtype=torch.int32)

    def run():
        x = logits.detach().requires_grad_()
        loss, _, clipped = ops.grpo_loss(
            x, old, old, ids.long(), advantages, mask, beta=0.04, inplace=False, importance_sampling_level=p.level
        )
        loss.sum().backward()
        return loss.detach(), clipped, x.grad

    return case(run=run, reference=lambda: None)
