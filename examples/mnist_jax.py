"""DP-SGD with caps in JAX: ``python examples/mnist_jax.py --data FOLDER --out FOLDER``.

FOLDER holds the four ``.gz`` files of MNIST.  Needs the extra ``jax``.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from reading import mnist

import pld_accountant as pa
from pld_accountant.training.dp_event import PLDAccountant, event_of
from pld_accountant.training.individual import IndividualSteps
from pld_accountant.training.jax import clip_each_and_add_noise, gradient_norms

NOISE, RATE, CLIP, DELTA = 2.0, 0.005, 5.0, 1e-5
ROOM = 512  # a batch is padded to this length, so that the step is compiled once; 300 people are expected

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--out", type=Path, default=Path("mnist-jax"))
parser.add_argument("--steps", type=int, default=400)
options = parser.parse_args()
options.out.mkdir(exist_ok=True)
x, y, x_test, y_test = mnist(options.data)


def logits(parameters, inputs):
    """The network 784-64-10."""
    return jax.nn.relu(inputs @ parameters["a"] + parameters["b"]) @ parameters["c"] + parameters["d"]


def loss(parameters, one, label):
    """The loss of one example."""
    return optax.softmax_cross_entropy_with_integer_labels(logits(parameters, one), label)


first, second, noise = jax.random.split(jax.random.key(np.random.SeedSequence().generate_state(1)[0]), 3)
parameters = {
    "a": jax.random.normal(first, (784, 64)) / 28,
    "b": jnp.zeros(64),
    "c": jax.random.normal(second, (64, 10)) / 8,
    "d": jnp.zeros(10),
}
optimizer = optax.chain(clip_each_and_add_noise(NOISE, CLIP, RATE * len(x), noise), optax.sgd(0.05))
state = optimizer.init(parameters)
run = IndividualSteps(len(x), noise_multiplier=NOISE, sample_rate=RATE, max_grad_norm=CLIP, refresh=100)
coins = np.random.default_rng()


@jax.jit
def update(parameters, state, inputs, labels, caps):
    """One step."""
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(parameters, inputs, labels)
    updates, state = optimizer.update(gradients, state, parameters, caps=caps)
    return optax.apply_updates(parameters, updates), state


for _ in range(options.steps):
    if run.due:
        run.refresh(gradient_norms(loss, parameters, x, y))  # of everybody, at a released model
    caps = run.begin()  # books the step before anything is released
    batch = np.flatnonzero(coins.random(len(x)) < RATE)
    room = max(ROOM, len(batch))
    padded = np.pad(batch, (0, room - len(batch)))
    capped = np.pad(caps[batch], (0, room - len(batch)))  # a cap of 0 leaves the padding out
    parameters, state = update(parameters, state, x[padded], y[padded], capped)

print(f"accuracy {np.mean(logits(parameters, x_test).argmax(1) == y_test):.4f}")
print(f"worst case epsilon <= {PLDAccountant().compose(event_of(run.ledger.schedule)).get_epsilon(DELTA):.4f}")
print(run.epsilon(DELTA))
print(run.guarantee)
print(pa.write_report(run.ledger, options.out / "report.html", DELTA, labels=y, guarantee=run.guarantee))
