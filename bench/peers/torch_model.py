"""Builds a net of this library in PyTorch from its description, with its loss and its optimizer.

A description is the dictionary in the JSON of nets/spec/net_json.hpp. The comparison of numbers (tests/parity) and the
timing (torch_net.py) both build the net here, so the nets that are timed are the nets that are compared.
"""
import math

import torch
import torch.nn.functional as F


def activation(x, node, fresh=False):
    """Returns the activation of x. It works in place if x is `fresh`, which means that nobody else reads it."""
    kind = node["activation"]
    if kind == "none":
        return x
    if kind == "leaky_relu":
        return F.leaky_relu(x, node["slope"], inplace=fresh)
    if kind == "softsign":  # it has no form in place
        return F.softsign(x)
    name = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh"}[kind] + ("_" if fresh else "")
    return getattr(torch, name)(x)


def part(x, first, extent):
    for axis in range(3):
        if x.shape[2 + axis] != extent[axis]:
            x = x.narrow(2 + axis, first[axis], extent[axis])
    return x


def centre(x, extent):
    """Returns the centre of x."""
    spare = [x.shape[2 + axis] - extent[axis] for axis in range(3)]
    if any(n < 0 or n % 2 for n in spare):
        raise ValueError(f"{tuple(x.shape[2:])} has no middle of {tuple(extent)} voxels")
    return part(x, [n // 2 for n in spare], extent)


def initial_parameters(description):
    """Returns random weights by name, scaled so that the values keep their size; biases are 0, factors 1."""
    values = {}
    for node in description["node"]:
        name = node["name"]
        if "weight_shape" in node:
            shape = node["weight_shape"]
            fan_in = math.prod(shape[1:])
            if node["type"] == "transposed_conv":
                fan_in = shape[0] * math.prod(shape[2:]) / math.prod(node["stride"])
            values[name + ".weight"] = torch.randn(shape) * math.sqrt(2 / fan_in)
            if node["bias"]:
                values[name + ".bias"] = torch.zeros(node["out_channels"])
        elif "channels" in node:
            values[name + ".gamma"] = torch.ones(node["channels"])
            values[name + ".beta"] = torch.zeros(node["channels"])
    return values


class Net:
    """A net. `initial` maps the names of parameters to tensors, which are copied. The parameters of convolutions and
    their results are stored in `memory_format`."""

    def __init__(self, description, initial, training=True, memory_format=torch.contiguous_format):
        self.nodes = description["node"]
        self.training = training
        self.parameters = {}
        for name, value in initial.items():
            if name.endswith(".weight"):
                parameter = value.detach().clone(memory_format=memory_format)
            else:
                parameter = value.detach().reshape(-1).clone()
            self.parameters[name] = parameter.requires_grad_(training)

    def convolve(self, node, x):
        weight = self.parameters[node["name"] + ".weight"]
        bias = self.parameters.get(node["name"] + ".bias")
        if list(weight.shape) != node["weight_shape"] or (bias is not None) != node["bias"]:
            raise ValueError(f"the parameters of {node['name']} are not those of its description")
        stride, dilation, groups, padding = (node[key] for key in ("stride", "dilation", "groups", "padding"))
        if node["type"] == "transposed_conv":
            return F.conv_transpose3d(x, weight, bias, stride, padding, node["output_padding"], groups, dilation)
        if padding == "same":
            margins = [(k - 1) * d for k, d in zip(node["kernel"], dilation)]
            padding = [margin // 2 for margin in margins]
            if any(margin % 2 for margin in margins):  # the odd voxel goes behind
                x, padding = F.pad(x, [n for m in reversed(margins) for n in (m // 2, m - m // 2)]), 0
        return F.conv3d(x, weight, bias, stride, padding, dilation, groups)

    def join(self, node, inputs):
        extent = [min(x.shape[2 + axis] for x in inputs) for axis in range(3)]
        parts = [part(x, first, extent) for x, first in zip(inputs, node["crop"])]
        return torch.cat(parts, 1) if node["type"] == "concat" else sum(parts[1:], parts[0])

    def apply(self, node, inputs):
        x, kind = inputs[0], node["type"]
        if kind in ("conv", "transposed_conv"):
            return activation(self.convolve(node, x), node, fresh=True)
        if kind == "activation":
            return activation(x, node)
        if kind == "max_pool":
            return F.max_pool3d(x, node["window"], node["stride"], 0, node["dilation"])
        if kind == "upsample":
            return F.interpolate(x, scale_factor=[float(f) for f in node["factor"]], mode="nearest")
        if kind in ("concat", "add"):
            return self.join(node, inputs)
        if kind == "crop":
            return part(x, node["before"], node["extent"])
        if kind == "dropout":
            return F.dropout(x, node["rate"], self.training)
        if kind == "group_norm":
            gamma, beta = (self.parameters[node["name"] + key] for key in (".gamma", ".beta"))
            return F.group_norm(x, node["groups"], gamma, beta, node["epsilon"])
        raise ValueError(f"layer {node['name']}: the type {kind} is not known here")

    def forward(self, x):
        values = {"input": x}
        # Drop values that no later layer reads, as a hand-written forward() does.
        last_reader = {name: i for i, node in enumerate(self.nodes) for name in node["from"]}
        for i, node in enumerate(self.nodes):
            inputs = [values[name] for name in node["from"]]
            for name in set(node["from"]):
                if last_reader[name] == i:
                    del values[name]
            values[node["name"]] = self.apply(node, inputs)
        return values[self.nodes[-1]["name"]]


def loss_of(description, logits, target):
    options = description["loss"]
    kind = options["kind"]
    if kind == "square":
        return F.mse_loss(logits, target)
    if kind == "dice":
        probability, smooth = torch.sigmoid(logits), options["smooth"]
        axes = (0, 2, 3, 4)
        overlap = (probability * target).sum(axes)
        score = (2 * overlap + smooth) / (probability.sum(axes) + target.sum(axes) + smooth)
        return (1 - score).mean()
    softmax, rebalance = kind == "softmax_cross_entropy", options["rebalance"]
    positive = options["positive_weight"]
    if not rebalance and softmax:
        return F.cross_entropy(logits, target[:, 0].long())
    if not rebalance and positive == 1:
        return F.binary_cross_entropy_with_logits(logits, target)
    classes = logits.shape[1] if softmax else 2
    weight = torch.ones(classes, dtype=torch.float64)
    if rebalance:
        counts = torch.bincount(target.reshape(-1).long(), minlength=classes).double()
        weight = torch.where(counts > 0, target.numel() / (classes * counts), torch.zeros_like(counts))
    if softmax:
        return F.cross_entropy(logits, target[:, 0].long(), weight=weight.float())
    weight[1] *= positive
    per_voxel = torch.where(target >= 0.5, weight[1], weight[0]).float()
    return F.binary_cross_entropy_with_logits(logits, target, per_voxel, reduction="sum") / per_voxel.sum()


def optimizer_of(description, parameters):
    o = description["optimizer"]
    if o["kind"] == "sgd":
        return torch.optim.SGD(parameters, lr=0.0, momentum=o["momentum"], weight_decay=o["weight_decay"],
                               nesterov=o["nesterov"])
    kind = torch.optim.AdamW if o["decoupled"] else torch.optim.Adam
    return kind(parameters, lr=0.0, betas=(o["beta1"], o["beta2"]), eps=o["epsilon"], weight_decay=o["weight_decay"])


def learning_rate(description, step):
    o = description["optimizer"]
    rate = o["learning_rate"]
    if step < o["warmup"]:
        rate *= step / o["warmup"]
    if o["decay_every"] > 0:
        rate *= o["decay_factor"] ** ((step - 1) // o["decay_every"])
    return rate


class Training:
    """Training iterations of the description: clear gradients, forward, loss, backward, clip, step."""

    def __init__(self, description, net):
        self.description, self.net = description, net
        self.parameters = list(net.parameters.values())
        self.optimizer = optimizer_of(description, self.parameters)
        self.most = description["optimizer"]["clip_norm"]
        self.iterations = 0
        self.clipped = False  # whether any gradient was clipped

    def gradients(self, x, target):
        """Returns logits and loss, and leaves the gradients in the parameters."""
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.net.forward(x)
        loss = loss_of(self.description, logits, target)
        loss.backward()
        return logits, loss

    def update(self):
        self.iterations += 1
        if self.most > 0:
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.most)
            self.clipped = self.clipped or bool(norm > self.most)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.description, self.iterations)
        self.optimizer.step()

    def iterate(self, x, target):
        loss = self.gradients(x, target)[1]
        self.update()
        return loss.item()
