"""Programs that grow from step to step (`leak_`), that only look like it (`fine_`), and
programs that reserve far more than they allocate (`strand_`, `hold_`) or do not (`compact`):

    growing.py NAME ...

Each runs in a process of its own, as the rank that is its place among the names, so that PyTorch is
imported once.
"""

import collections
import copy
import functools
import os
import random
import sys

import torch
from torch import nn
from torch.nn import functional

WIDTH = 512
STEPS = 20


class Net(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(layers)])

    def forward(self, x):
        for layer in self.layers:
            x = functional.gelu(layer(x))
        return x


def batch(rows=1024):
    return torch.randn(rows, WIDTH, device="cuda")


class Training:
    """A net with an optimizer, and its step."""

    def __init__(self):
        self.net = Net().cuda()
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def step(self, x=None, extra=0):
        x = batch() if x is None else x
        out = self.net(x)
        loss = out.pow(2).mean() + extra
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return out, loss


# --- that grow ------------------------------------------------------------------------------------


def leak_outputs():
    training, outputs = Training(), []
    for _ in range(STEPS):
        out, _ = training.step()
        outputs.append(out)


def leak_in_function():
    """All is given back when the function returns, before the program ends."""

    def run():
        training, outputs = Training(), []
        for _ in range(STEPS):
            outputs.append(training.step()[0].detach())

    run()
    print("done", torch.cuda.memory_allocated())


def leak_metric_graph():
    training, metrics = Training(), []
    for _ in range(STEPS):
        training.step()
        metrics.append(training.net(batch()).abs().mean())


def leak_total_loss():
    """The sum's graph leads to that of every step."""
    training, total = Training(), 0
    for _ in range(STEPS):
        training.step()
        total = total + training.net(batch()).pow(2).mean()


def leak_every_fourth():
    training, kept = Training(), []
    for step in range(STEPS):
        training.step()
        if step % 4 == 0:
            kept.append(batch())


def leak_varying_lengths():
    training, kept = Training(), []
    for _ in range(STEPS):
        out, _ = training.step(batch(random.randint(200, 1500)))
        kept.append(out.detach())


def leak_concatenated():
    training, every = Training(), torch.empty(0, WIDTH, device="cuda")
    for _ in range(STEPS):
        out, _ = training.step()
        every = torch.cat([every, out.detach()[:256]])


def leak_snapshots_of_the_model():
    training, snapshots = Training(), []
    for _ in range(STEPS):
        training.step()
        snapshots.append(copy.deepcopy(training.net.state_dict()))


def leak_attribute():
    training = Training()
    training.net.seen = []
    for _ in range(STEPS):
        x = batch()
        training.net.seen.append(x)
        training.step(x)


def leak_hook():
    training, seen = Training(), []
    training.net.layers[1].register_forward_hook(lambda module, args, out: seen.append(out.detach()))
    for _ in range(STEPS):
        training.step()


def leak_closures():
    training, later = Training(), []
    for _ in range(STEPS):
        out, _ = training.step()
        later.append(lambda out=out.detach(): out.mean())


def leak_cycle():
    """The garbage collector would find these objects if it ran."""
    import gc  # pylint: disable=import-outside-toplevel

    gc.disable()
    training = Training()
    for _ in range(STEPS):
        out, _ = training.step()
        holder = {"out": out.detach()}
        holder["self"] = holder


def leak_gradients():
    training, history = Training(), []
    for _ in range(STEPS):
        training.net(batch()).pow(2).mean().backward()
        history.append([parameter.grad.clone() for parameter in training.net.parameters()])
        training.optimizer.step()
        training.optimizer.zero_grad()


def leak_after_warm_up():
    training, kept = Training(), []
    for step in range(STEPS):
        out, _ = training.step()
        if step >= STEPS // 3:
            kept.append(out.detach())


def leak_beside_a_cache():
    training, cache, kept = Training(), {}, []
    for step in range(STEPS):
        rows = (256, 512, 768)[step % 3]
        mask = cache.setdefault(rows, torch.ones(rows, WIDTH, device="cuda"))
        out, _ = training.step(batch(rows) * mask)
        kept.append(out.detach())


def leak_in_two_places():
    training, kept = Training(), []
    for step in range(STEPS):
        out, _ = training.step()
        kept.append(out.detach().half() if step % 2 else out.detach().double())


def leak_now_and_then():
    training, kept = Training(), []
    for _ in range(2 * STEPS):
        out, _ = training.step()
        if random.random() < 0.5:
            kept.append(out.detach())


def leak_replay_without_end():
    training, replay = Training(), collections.deque()
    for _ in range(STEPS):
        replay.append(batch(512))
        training.step(random.choice(replay))


def leak_inference_outputs():
    net, outputs = Net().cuda(), []
    with torch.no_grad():
        for _ in range(STEPS):
            outputs.append(net(batch()))


def leak_inference_graph():
    """Nobody has said no_grad."""
    net, scores = Net().cuda(), []
    for _ in range(STEPS):
        x = batch()
        scores.append(net(x).mean())


def leak_own_sgd():
    """Steps without an optimizer."""
    weight = torch.randn(WIDTH, WIDTH, device="cuda", requires_grad=True)
    losses = []
    for _ in range(STEPS):
        x = batch()
        loss = (x @ weight).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
        losses.append((x @ weight).pow(2).mean())


# --- that do not grow -----------------------------------------------------------------------------


def fine_plain():
    training = Training()
    for _ in range(STEPS):
        training.step()


def fine_detached_losses():
    training, losses = Training(), []
    for _ in range(STEPS):
        losses.append(training.step()[1].detach())


def fine_last_output():
    training, last = Training(), None
    for _ in range(STEPS):
        last = training.step()[0]
    print(last.shape)


def fine_last_output_of_any_length():
    training, last = Training(), None
    for _ in range(STEPS):
        last = training.step(batch(random.randint(200, 1500)))[0]
    print(last.shape)


def fine_bounded_queue():
    training, recent = Training(), collections.deque(maxlen=6)
    for _ in range(STEPS):
        recent.append(training.step()[0].detach())


def fine_late_settling():
    """A buffer of the device fills for half of the program."""
    training, buffer = Training(), []
    for _ in range(STEPS):
        out, _ = training.step()
        if len(buffer) < STEPS // 2:
            buffer.append(out.detach())


def fine_alternating():
    training, kept = Training(), None
    for step in range(STEPS):
        out, _ = training.step(batch(2048 if step % 2 else 512))
        kept = out.detach() if step % 2 else None
    print(kept is None)


def fine_cache_by_shape():
    training, cache = Training(), {}
    for step in range(STEPS):
        rows = 128 * (1 + step * 5 % 7)
        mask = cache.setdefault(rows, torch.ones(rows, WIDTH, device="cuda"))
        training.step(batch(rows) * mask)


def fine_cache_by_random_shape():
    training, cache = Training(), {}
    for _ in range(2 * STEPS):
        rows = random.choice(range(128, 1664, 128))
        if rows not in cache:
            cache[rows] = torch.ones(rows, WIDTH, device="cuda")
        training.step(batch(rows) * cache[rows])


def fine_lru_cache():
    training = Training()

    @functools.lru_cache(maxsize=5)
    def position(index):
        return torch.full((512, WIDTH), float(index), device="cuda")

    for step in range(STEPS):
        training.step(batch(512) + position(step))


def fine_epochs():
    """Each epoch collects its outputs, and gives them back at its end."""
    training = Training()
    for _ in range(4):
        outputs = []
        for _ in range(STEPS // 4):
            outputs.append(training.step()[0].detach())
        print(len(outputs), torch.stack(outputs).shape)


def fine_evaluation_between():
    training = Training()
    for step in range(STEPS):
        training.step()
        if step % 5 == 4:
            with torch.no_grad():
                outputs = [training.net(batch()) for _ in range(8)]
            print(torch.cat(outputs).shape)
            del outputs


def fine_longer_and_longer():
    """The sequences of a curriculum grow; nothing is left of the last step but one."""
    training, last = Training(), None
    for step in range(STEPS):
        last = training.step(batch(256 + 64 * step))[0]
    print(last.shape)


def fine_layers_thaw():
    """Layers that are trained from some step on get gradients and state then."""
    net = Net(6).cuda()
    for layer in net.layers:
        layer.requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters())
    for step in range(STEPS):
        if step % 3 == 0 and step // 3 < 6:
            net.layers[5 - step // 3].requires_grad_(True)
        net(batch()).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def fine_average_of_weights():
    training = Training()
    average = copy.deepcopy(training.net)
    for _ in range(STEPS):
        training.step()
        with torch.no_grad():
            for mean, now in zip(average.parameters(), training.net.parameters()):
                mean.lerp_(now, 0.1)


def fine_accumulated_gradients():
    training = Training()
    for step in range(3 * STEPS):
        training.net(batch(256)).pow(2).mean().backward()
        if step % 3 == 2:
            training.optimizer.step()
            training.optimizer.zero_grad(set_to_none=False)


def fine_rollouts():
    """Each iteration collects data and takes several steps on them."""
    training = Training()
    for _ in range(STEPS // 4):
        rollout = [batch(256) for _ in range(8)]
        for at in range(4):
            training.step(torch.cat(rollout[2 * at:2 * at + 2]))
        del rollout


def fine_two_models():
    """Two optimizers take turns, as in adversarial training."""
    one, other = Training(), Training()
    for _ in range(STEPS):
        fake = one.net(batch(512)).detach()
        other.step(fake)
        one.step(batch(512))


def train_with_loss(wide):
    """Its two losses are two lines of one file, of which each program uses one."""
    training = Training()
    target = torch.zeros(1024, dtype=torch.long, device="cuda")
    for _ in range(STEPS):
        logits = training.net(batch()).bfloat16()
        if wide:
            loss = functional.cross_entropy(logits.float(), target)
        else:
            loss = functional.cross_entropy(logits, target)
        loss.backward()
        training.optimizer.step()
        training.optimizer.zero_grad()


def fine_wide_loss():
    train_with_loss(True)


def fine_narrow_loss():
    train_with_loss(False)


class Cached(nn.Module):
    """A layer of attention with a cache of keys and values."""

    def __init__(self, concatenates):
        super().__init__()
        self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.concatenates = concatenates

    def forward(self, x, cache):
        cache.append((self.key(x), self.value(x)))
        keys, values = (torch.cat(each) for each in zip(*cache))
        if self.concatenates:
            cache[:] = [(keys, values)]
        return torch.softmax(x @ keys.T, -1) @ values


def generate(layers, tokens):
    caches = [[] for _ in layers]
    x = torch.randn(8, WIDTH, device="cuda")
    for _ in range(tokens):
        for layer, cache in zip(layers, caches):
            x = layer(x, cache)
    return x.sum().item()


def fine_requests():
    """The cache of each request is longer than that of the one before, and is given back."""
    layers = nn.ModuleList([Cached(False) for _ in range(3)]).cuda()
    with torch.no_grad():
        for request in range(9):
            generate(layers, 12 + 2 * request)


def fine_one_request():
    layers = nn.ModuleList([Cached(True) for _ in range(3)]).cuda()
    with torch.no_grad():
        print(generate(layers, 40))


def fine_inference():
    net, last = Net().cuda(), None
    with torch.no_grad():
        for _ in range(STEPS):
            last = net(batch())
    print(last.shape)


def fine_one_forward():
    """The activations of many layers alike, and no step at all."""
    net = Net(24).cuda()
    out = net(batch())
    print(out.shape)


def fine_loading():
    """A program that only loads what it needs later."""
    tensors = [torch.empty(256, WIDTH, device="cuda") for _ in range(32)]
    print(len(tensors))


def fine_building():
    """Each layer makes its table of positions in one loop, before the model runs."""
    net = Net(24).cuda()
    for layer in net.layers:
        positions = torch.arange(256, device="cuda").float()
        layer.positions = torch.outer(positions, torch.ones(WIDTH, device="cuda"))
    print(net(batch()).shape)


def fine_building_alone():
    """The same, in a program that ends before its model runs."""
    net = Net(24).cuda()
    for layer in net.layers:
        weight = layer.weight.detach()
        layer.weight = nn.Parameter((weight / weight.abs().max()).half(), requires_grad=False)
    print(len(net.layers))


# --- that reserve far more than they allocate -----------------------------------------------------


def block(mib):
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


def strand(stage):
    """Stages blocks before the first step, and wants a large one in each."""
    training = Training()
    for step in range(3):
        if step == 0:
            stage()
        training.step()
        block(4000)


def strand_in_a_stream():
    def stage():
        with torch.cuda.stream(torch.cuda.Stream()):
            return [block(256) for _ in range(16)]

    strand(stage)


def strand_in_small_segments():
    strand(lambda: [block(200) for _ in range(20)])


def hold_segments():
    """Small blocks stay among large ones of one segment."""
    kept = []

    def stage():
        block(4096)
        staged = []
        for _ in range(16):
            staged.append(block(252))
            kept.append(block(4))

    strand(stage)


def compact():
    strand(lambda: block(4000))


def main(names):
    for rank, name in enumerate(names):
        if os.fork() == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(len(names)), "LOCAL_RANK": "0"}
            random.seed(7)
            globals()[name]()
            return
        _, status = os.wait()
        if status != 0:
            sys.exit(f"{name} has failed")


main(sys.argv[1:])
