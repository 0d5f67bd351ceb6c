"""Individual accounting in real training loops of Opacus."""

from types import SimpleNamespace

import numpy as np
import pytest

import pld_accountant as pa

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants import PRVAccountant, RDPAccountant  # noqa: E402
from opacus.accountants.utils import get_noise_multiplier  # noqa: E402
from opacus.data_loader import DPDataLoader  # noqa: E402
from opacus.optimizers import optimizer as opacus_optimizer  # noqa: E402
from opacus.schedulers import ExponentialGradClip, ExponentialNoise  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from pld_accountant.training.opacus import (  # noqa: E402
    IndividualAccounting,
    PeopleError,
    PLDAccountant,
    _check_products,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

PEOPLE, CLIP, NOISE = 60, 1.0, 1.0
MODES = ("hooks", "functorch", "ew", "ghost")


class Run:
    """A small training that `make_private` prepared."""

    autocast = False

    def __init__(self, gradients="hooks", batch=12, noise=NOISE, workers=0, people=PEOPLE, accountant="pld", **private):
        torch.manual_seed(0)
        self.inputs = torch.randn(people, 5) * torch.linspace(0.01, 3, people)[:, None]
        self.targets = (self.inputs.sum(1) > 0).long()
        self.data = TensorDataset(self.inputs, self.targets)
        model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
        self.engine = PrivacyEngine(accountant=accountant)
        self.plain_loss = nn.CrossEntropyLoss()
        model, optimizer, *wrapped, loader = self.engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), 0.5),
            data_loader=DataLoader(self.data, batch_size=batch, num_workers=workers),
            criterion=self.plain_loss,
            noise_multiplier=noise,
            max_grad_norm=CLIP,
            grad_sample_mode=gradients,
            **private,
        )
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.loss = wrapped[0] if wrapped else self.plain_loss

    def account(self, **options):
        self.individual = IndividualAccounting(self.model, self.optimizer, self.loader, self.loss, **options)
        self.loader = self.individual.loader
        return self.individual

    def step(self, batch):
        inputs, targets = batch
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.loss(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()

    def train(self, epochs=1, physical=None):
        for _ in range(epochs):
            if physical is None:
                for batch in self.loader:
                    self.step(batch)
            else:
                with BatchMemoryManager(
                    data_loader=self.loader, max_physical_batch_size=physical, optimizer=self.optimizer
                ) as loader:
                    for batch in loader:
                        self.step(batch)

    def gradients(self):
        """Each person's gradient at the present model, by plain autograd: (people, parameters)."""
        module, found = self.model._module, []
        weights = [p.detach().double().requires_grad_() for p in module.parameters()]
        for x, y in zip(self.inputs.double(), self.targets, strict=True):
            hidden = torch.tanh(weights[0] @ x + weights[1])
            loss = self.plain_loss((weights[2] @ hidden + weights[3])[None], y[None])
            found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)]).numpy())
        return np.array(found)


def spied(monkeypatch, run):
    """What was drawn, and the sum of each step before its noise."""
    drawn, sums = [], []
    hand_out = run.individual._batches.hand_out
    monkeypatch.setattr(
        run.individual._batches, "hand_out", lambda people: (drawn.append(people.copy()), hand_out(people))
    )
    add_noise = run.optimizer.add_noise

    def spy():
        sums.append(torch.cat([p.summed_grad.flatten() for p in run.optimizer.params]).double().numpy())
        add_noise()

    run.optimizer.add_noise = spy
    return drawn, sums


@pytest.mark.parametrize("gradients", MODES)
def test_norms_of_a_refresh_equal_those_of_autograd(gradients):
    run = Run(gradients)
    run.account()
    run.train()
    np.testing.assert_allclose(run.individual.norms(), np.linalg.norm(run.gradients(), axis=1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("gradients", MODES)
def test_a_refresh_leaves_the_training_untouched(gradients):
    weights = []
    for refreshes in (0, 3):
        run = Run(gradients)
        run.account(refresh=[0], slack=1e6)
        for number, batch in enumerate(run.loader):
            torch.manual_seed(number)  # the noise
            run.step(batch)
            for _ in range(refreshes):
                run.individual.norms()
        weights.append(torch.cat([p.detach().flatten() for p in run.model.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("gradients", MODES)
def test_everybody_is_clipped_at_their_own_cap(gradients, monkeypatch):
    """The sum before the noise is that of autograd's gradients, clipped at the caps of the batch's people."""
    run = Run(gradients, noise=0.2)
    run.account(refresh=2, slack=0.6 + 0.4)
    drawn, sums = spied(monkeypatch, run)
    for batch in run.loader:
        gradients_now = run.gradients()
        run.step(batch)
        caps = run.individual._caps[drawn[-1]]
        rows = gradients_now[drawn[-1]]
        lengths = np.linalg.norm(rows, axis=1)
        expected = (rows * np.minimum(1, caps / lengths)[:, None]).sum(axis=0)
        np.testing.assert_allclose(sums[-1], expected, rtol=1e-4, atol=1e-5)
    assert len(sums) == 5 and np.any(caps < lengths)


@pytest.mark.parametrize(("gradients", "autocast"), [("hooks", False), ("ghost", False), ("hooks", True)])
def test_no_contribution_is_longer_than_its_cap(gradients, autocast, monkeypatch):
    """One person at a time, so that the sum is their contribution: rounding must not lift it over the cap."""
    for person in range(0, PEOPLE, 7):
        run = Run(gradients, noise=0.1)
        run.autocast = autocast
        run.account(refresh=[0], loss=None, slack=1.0)
        _, sums = spied(monkeypatch, run)
        sampler = run.loader.batch_sampler
        monkeypatch.setattr(type(sampler), "__iter__", lambda self, person=person: iter([[person]] * 3))
        run.train()
        cap = run.individual.caps[person]
        assert 0 < cap <= CLIP
        assert max(np.linalg.norm(total) for total in sums) <= cap
        monkeypatch.undo()


def test_ghost_clipping_in_half_precision_is_refused():
    run = Run("ghost")
    run.account()
    run.autocast = True
    with pytest.raises(ValueError, match="half precision does not keep the caps"):
        run.train()
    assert run.individual.steps == 0


def test_parameters_of_half_precision_are_refused():
    run = Run()
    run.model.to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"single precision, got torch\.bfloat16"):
        run.account()


@pytest.mark.parametrize("gradients", ["hooks", "ghost"])
def test_products_with_fewer_digits_are_refused(gradients):
    run = Run(gradients)
    run.account()
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(ValueError, match="matrix products"):
            run.train()
    finally:
        torch.set_float32_matmul_precision("highest")
    assert run.individual.steps == 0


class ConvolutionOnGpu(nn.Conv2d):
    """What is looked at of it."""

    weight = SimpleNamespace(is_cuda=True)

    def __init__(self):
        nn.Module.__init__(self)


@pytest.mark.parametrize("allowed", [True, False])
def test_convolutions_with_fewer_digits_are_refused_for_ghost_clipping(allowed, monkeypatch):
    run = Run("ghost")
    run.account()
    run.model._module.append(ConvolutionOnGpu())
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    if not allowed:
        _check_products(run.model, run.optimizer)
        return
    with pytest.raises(ValueError, match="convolutions"):
        _check_products(run.model, run.optimizer)
    _check_products(run.model, Run().optimizer)


def test_a_cap_of_zero_contributes_nothing(monkeypatch):
    run = Run(noise=0.5)
    keep = pa.RenyiFilter.for_epsilon(
        1e-6, 1e-5, num_examples=PEOPLE, noise_multiplier=0.5, sample_rate=run.loader.sample_rate, max_grad_norm=CLIP
    )
    run.account(keep=keep)
    _, sums = spied(monkeypatch, run)
    run.train()
    assert not np.any(sums) and not np.any(run.individual.epsilon(1e-5).upper)


@pytest.mark.parametrize("gradients", ["hooks", "functorch", "ew"])
@pytest.mark.parametrize("physical", [None, 5])
def test_a_gradient_that_is_not_finite_contributes_nothing(gradients, physical):
    run = Run(gradients=gradients)
    run.account(refresh=[0])
    run.train(physical=physical)
    run.inputs[[7, 8]] = torch.tensor([[torch.nan], [torch.inf]])
    run.train(epochs=2, physical=physical)
    assert run.individual.caps[[7, 8]].min() > 0.0
    assert all(torch.isfinite(p).all() for p in run.model.parameters())


EPSILONS = np.where(np.arange(PEOPLE) < PEOPLE // 2, 1.0, 2.5)  # of one's own
STEPPED = {"noise_multiplier": 2.0, "sample_rate": 0.2, "max_grad_norm": CLIP}
FILTERS = {
    "Renyi": lambda: pa.RenyiFilter.for_epsilon(EPSILONS, 1e-5, num_examples=PEOPLE, orders=[14.0], **STEPPED),
    "potential": lambda: pa.PotentialFilter(EPSILONS, 1e-5, num_examples=PEOPLE, alpha=8.0, **STEPPED),
}


@pytest.mark.parametrize("gradients", ["hooks", "ghost"])
@pytest.mark.parametrize("kind", FILTERS)
def test_people_with_spent_budgets_contribute_nothing(kind, gradients, monkeypatch):
    """Past the steps of the worst case: whoever is refused adds exactly 0, the others their capped gradients."""
    run, keep, twin = Run(gradients, noise=2.0), FILTERS[kind](), FILTERS[kind]()
    run.account(keep=keep, refresh=4)
    drawn, sums = spied(monkeypatch, run)
    begin, before, booked = run.individual._begin, [], []

    def spy():
        before.append(run.gradients())
        begin()
        booked.append(run.individual._caps.copy())

    monkeypatch.setattr(run.individual, "_begin", spy)
    run.train(epochs=3)
    assert run.individual.steps == len(sums) == len(booked) == 15
    refused = np.zeros(PEOPLE, dtype=bool)
    for people, total, rows, caps in zip(drawn, sums, before, booked, strict=True):
        kept = rows[people] * np.minimum(1, caps[people] / np.linalg.norm(rows[people], axis=1))[:, None]
        np.testing.assert_allclose(total, kept.sum(axis=0), rtol=1e-4, atol=1e-5)
        assert np.all(twin.admit(caps)[caps > 0])
        refused |= caps == 0
    assert refused.any() and not refused.all()
    np.testing.assert_array_equal(run.individual.taking_part, booked[-1] > 0)
    found = run.individual.epsilon(1e-5).upper
    assert np.all(found <= EPSILONS) and np.any(found > 1.0)
    np.testing.assert_array_equal(keep.units_left, twin.units_left)
    assert run.individual.guarantee.proven_adaptive


@pytest.mark.parametrize("gradients", ["hooks", "ghost"])
def test_the_noise_has_the_size_of_the_clipping_norm_whatever_the_caps(gradients, monkeypatch):
    deviations = []
    original = opacus_optimizer._generate_noise
    for module in ("opacus.optimizers.optimizer", "opacus.optimizers.optimizer_fast_gradient_clipping"):
        monkeypatch.setattr(
            f"{module}._generate_noise", lambda std, **given: (deviations.append(std), original(std, **given))[1]
        )
    run = Run(gradients, noise=0.7)
    run.account()
    run.train()
    assert deviations == [0.7 * CLIP] * (4 * run.individual.steps)


@pytest.mark.parametrize("physical", [None, 4])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("gradients", ["hooks", "ghost"])
def test_steps_people_and_caps_with_workers_and_virtual_steps(gradients, workers, physical, monkeypatch):
    run = Run(gradients, workers=workers, noise=0.3)
    run.account(refresh=2, slack=1.0)
    drawn, sums = spied(monkeypatch, run)
    sampled = []
    sampler = type(run.loader.batch_sampler)
    draw = sampler.__iter__
    monkeypatch.setattr(sampler, "__iter__", lambda self: (sampled.append(b) or b for b in draw(self)))
    run.train(2, physical)
    assert run.individual.steps == len(run.engine.accountant) == len(sums) == len(sampled) == 10
    assert np.concatenate(drawn).tolist() == [person for batch in sampled for person in batch]
    ledger = run.individual.ledger
    assert ledger.steps == 10 and ledger.sample_rate == run.loader.sample_rate
    assert np.all(run.individual.epsilon(1e-5).upper <= run.engine.get_epsilon(1e-5))


@pytest.mark.parametrize("invented", [False, True])
@pytest.mark.parametrize("gradients", ["hooks", "ghost"])
def test_empty_batches(gradients, invented, monkeypatch):
    run = Run(gradients, rand_on_empty=invented)
    run.account()
    _, sums = spied(monkeypatch, run)
    sampler = type(run.loader.batch_sampler)
    monkeypatch.setattr(sampler, "__iter__", lambda self: iter([[1, 2], [], [3], []]))
    if gradients == "ghost" and not invented:
        pytest.skip("Opacus itself has no ghost clipping of an empty batch without rand_on_empty")
    run.train()
    assert run.individual.steps == 4
    assert not np.any(sums[1]) and not np.any(sums[3]) and np.any(sums[0])


def test_exact_and_watched_agree_with_norms_of_autograd():
    for mode, options in (("exact", {}), ("watched", {"watched": [3, 50, 20]})):
        run = Run()
        run.account(mode=mode, **options)
        by_hand = pa.Ledger(len(run.individual.people), noise_multiplier=NOISE, sample_rate=0.2, max_grad_norm=CLIP)
        for batch in run.loader:
            by_hand.record(np.linalg.norm(run.gradients(), axis=1)[run.individual.people])
            run.step(batch)
        found, expected = run.individual.epsilon(1e-5), by_hand.epsilon(1e-5)
        np.testing.assert_allclose(found.upper, expected.upper, rtol=1e-3)


def test_watching_and_observing_do_not_change_the_training():
    weights = []
    for mode in ("plain", "watched", "observed"):
        run = Run()
        if mode != "plain":
            run.account(mode=mode)
        run.train()
        weights.append(torch.cat([p.detach().flatten() for p in run.model.parameters()]))
    assert torch.equal(weights[0], weights[2])
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-4)


def test_observed_norms_are_those_of_the_sampled_people(monkeypatch):
    for gradients in ("hooks", "ghost"):
        run = Run(gradients)
        run.account(mode="observed")
        drawn, _ = spied(monkeypatch, run)
        expected = np.full(PEOPLE, CLIP)
        for batch in run.loader:
            now = np.minimum(np.linalg.norm(run.gradients(), axis=1), CLIP)
            run.step(batch)
            expected[drawn[-1]] = now[drawn[-1]]
        np.testing.assert_allclose(run.individual.caps, expected, rtol=1e-5, atol=1e-7)
        assert run.individual.estimate(1e-5).shape == (PEOPLE,)
        with pytest.raises(RuntimeError, match="estimates only"):
            run.individual.ledger  # noqa: B018


def test_changing_noise_and_clipping_norm():
    run = Run()
    run.account()
    noise, clip = ExponentialNoise(run.optimizer, gamma=0.9), ExponentialGradClip(run.optimizer, gamma=0.9)
    used = []
    for batch in run.loader:
        used.append((run.optimizer.noise_multiplier, run.optimizer.max_grad_norm))
        run.step(batch)
        assert run.individual._caps.max() <= used[-1][1]
        noise.step()
        clip.step()
    assert [sigma for sigma, _, _ in run.individual.ledger.schedule] == [sigma for sigma, _ in used]
    assert len(set(used)) == 5


def test_noise_that_changes_inside_of_a_step_is_refused():
    run = Run()
    run.account()
    with BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=3, optimizer=run.optimizer) as loader:
        batches = iter(loader)
        run.step(next(batches))
        run.optimizer.noise_multiplier /= 2
        with pytest.raises(RuntimeError, match="changed between"):
            for batch in batches:
                run.step(batch)


class TestUnknownPeople:
    """A batch whose people cannot be told is an error, before anything is released."""

    @pytest.fixture(params=["hooks", "ghost"])
    def run(self, request):
        run = Run(request.param)
        run.original = run.loader
        run.account()
        run.before = [p.detach().clone() for p in run.model.parameters()]
        yield run
        assert all(torch.equal(a, b) for a, b in zip(run.before, run.model.parameters(), strict=True))
        assert run.individual.steps == len(run.engine.accountant) == 0

    def refused(self, run, batch, words):
        with pytest.raises(PeopleError, match=words):
            run.step(batch)

    def test_a_batch_of_another_loader(self, run):
        self.refused(run, next(iter(run.original)), "0 batches")

    def test_batches_in_a_list(self, run):
        self.refused(run, next(iter(list(run.loader))), "5 batches")

    def test_a_skipped_batch(self, run):
        batches = iter(run.loader)
        next(batches)
        self.refused(run, next(batches), "2 batches")

    def test_two_loops_at_once(self, run):
        first, second = iter(run.loader), iter(run.loader)
        batch = next(first)
        next(second)
        self.refused(run, batch, "2 batches")

    def test_a_part_of_a_batch(self, run):
        x, y = next(iter(run.loader))
        self.refused(run, (x[1:], y[1:]), "gradients")

    def test_a_loader_made_from_the_loader(self, run):
        copied = DataLoader(run.loader.dataset, batch_size=3, collate_fn=run.loader.collate_fn)
        with pytest.raises(PeopleError, match="lost track"):
            for x, y in copied:
                run.step((x, y))

    def test_discard_after_an_interrupted_loop(self, run):
        next(iter(run.loader))
        run.individual.discard()
        self.refused(run, (run.inputs[:2], run.targets[:2]), "0 batches")


def test_a_whole_pass_of_evaluation_is_no_training():
    run = Run()
    run.account()
    with torch.no_grad():
        for inputs, _ in run.loader:
            run.model(inputs)
    run.train()
    assert run.individual.steps == 5


def test_ghost_clipping_needs_its_own_loss():
    run = Run("ghost")
    run.account()
    inputs, targets = next(iter(run.loader))
    run.plain_loss(run.model(inputs), targets).backward()
    with pytest.raises(PeopleError, match="was not clipped"):
        run.optimizer.step()


def test_what_the_proof_does_not_cover_is_refused():
    for private, words in [
        ({"poisson_sampling": False}, "Poisson"),
        ({"clipping": "per_layer"}, "flat"),
    ]:
        if "clipping" in private:
            run = Run()
            run.optimizer.__class__ = type("DPPerLayerOptimizer", (type(run.optimizer),), {})
        else:
            run = Run(**private)
        with pytest.raises(ValueError, match=words):
            run.account()
    run = Run()
    run.account()
    with pytest.raises(ValueError, match="another individual accounting"):
        run.account()
    run = Run()
    with pytest.raises(ValueError, match="either criterion or loss"):
        IndividualAccounting(run.model, run.optimizer, run.loader)


@pytest.mark.parametrize("gradients", ["hooks", "ghost"])
def test_checkpoint_and_resume(gradients, tmp_path):
    """A run that is stopped and resumed has the ledger of the run that was not."""

    def make():
        run = Run(gradients)
        keep = pa.RenyiFilter.for_epsilon(
            2.0, 1e-5, num_examples=PEOPLE, noise_multiplier=NOISE, sample_rate=0.2, max_grad_norm=CLIP
        )
        run.account(keep=keep)
        return run

    def go(run, seed):
        torch.manual_seed(seed)
        run.train()

    whole, first, second = make(), make(), make()
    go(whole, 1)
    go(whole, 2)
    go(first, 1)
    first.engine.save_checkpoint(path=tmp_path / "model", module=first.model, optimizer=first.optimizer)
    first.individual.save(tmp_path / "individual")
    second.engine.load_checkpoint(path=tmp_path / "model", module=second.model, optimizer=second.optimizer)
    second.individual.load(tmp_path / "individual")
    go(second, 2)
    assert second.individual.steps == len(second.engine.accountant) == 10
    assert second.individual.epsilon(1e-5) == whole.individual.epsilon(1e-5)
    np.testing.assert_array_equal(second.individual._steps.keep.spent(), whole.individual._steps.keep.spent())


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize("stop", [1, 3, 6])
def test_resume_in_the_middle_of_an_epoch_with_a_filter(kind, stop, tmp_path):
    """Stopped after any step, with workers whose batches are thrown away: ledger and filter hold the steps taken."""

    def make():
        run = Run(workers=2, noise=2.0)
        run.account(keep=FILTERS[kind](), refresh=4)
        return run

    first, second, twin, booked = make(), make(), FILTERS[kind](), []

    def go(run, steps):
        while steps:
            for batch in run.loader:
                run.step(batch)
                booked.append(run.individual._caps.copy())
                steps -= 1
                if not steps:
                    break
        run.individual.discard()

    go(first, stop)
    first.engine.save_checkpoint(path=tmp_path / "model", module=first.model, optimizer=first.optimizer)
    first.individual.save(tmp_path / "individual")
    second.engine.load_checkpoint(path=tmp_path / "model", module=second.model, optimizer=second.optimizer)
    second.individual.load(tmp_path / "individual")
    go(second, 9 - stop)
    assert second.individual.steps == second.individual.ledger.steps == len(booked) == 9
    by_hand = pa.Ledger(PEOPLE, **STEPPED)
    for caps in booked:
        by_hand.record(caps)
        twin.admit(caps)
    np.testing.assert_array_equal(second.individual.ledger.counts, by_hand.counts)
    np.testing.assert_array_equal(second.individual._steps.keep.units_left, twin.units_left)


def test_other_shapes_of_batches_and_losses():
    """Dictionaries, a loss of the user's own, and a loss with several outputs for each person."""

    class Records(torch.utils.data.Dataset):
        def __len__(self):
            return 30

        def __getitem__(self, number):
            return {"x": torch.full((3,), number / 30), "y": torch.tensor([1.0, number / 30])}

    model = nn.Linear(3, 2)
    engine = PrivacyEngine(accountant="pld")

    class Loader(DPDataLoader):
        pass

    data = Records()
    # Opacus's own loader takes the shapes of an empty batch from records that are tuples
    model, optimizer, _ = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.1),
        data_loader=DataLoader(TensorDataset(torch.zeros(30, 1)), batch_size=6),
        noise_multiplier=1.0,
        max_grad_norm=CLIP,
    )
    loader = Loader(data, sample_rate=0.2)
    individual = IndividualAccounting(
        model, optimizer, loader, loss=lambda model, batch: ((model(batch["x"]) - batch["y"]) ** 2).mean(1)
    )
    for batch in individual.loader:
        optimizer.zero_grad()
        ((model(batch["x"]) - batch["y"]) ** 2).mean(1).mean().backward()
        optimizer.step()
    assert individual.steps == 5 and len(individual.epsilon(1e-5)) == 30


class TestAccountant:
    def test_it_is_certified_and_close_to_the_truth(self):
        ours, prv = PLDAccountant(), PRVAccountant()
        for sigma, rate, number in [(1.0, 0.01, 300), (0.8, 0.02, 40), (2.0, 0.01, 500)]:
            for _ in range(number):
                ours.step(noise_multiplier=sigma, sample_rate=rate)
                prv.step(noise_multiplier=sigma, sample_rate=rate)
        composed = pa.compose([(pa.SampledGaussian(s, q), n) for s, q, n in ours.history]).epsilon(1e-5)
        assert composed.lower <= ours.get_epsilon(1e-5) == composed.upper <= prv.get_epsilon(1e-5)
        assert len(ours) == 840 and ours.history == prv.history
        assert ours.get_epsilon(1e-5) == pytest.approx(prv.get_epsilon(1e-5), abs=0.02)

    def test_states_of_other_accountants_are_accepted(self):
        other = RDPAccountant()
        for _ in range(9):
            other.step(noise_multiplier=1.0, sample_rate=0.1)
        ours = PLDAccountant()
        ours.load_state_dict(other.state_dict())
        assert ours.history == [(1.0, 0.1, 9)] and ours.get_epsilon(1e-5) < other.get_epsilon(1e-5)
        again = PLDAccountant()
        again.load_state_dict(ours.state_dict())
        assert again.get_epsilon(1e-5) == ours.get_epsilon(1e-5)
        for bad in (None, {}, {"history": [], "mechanism": "unheard of"}, {"mechanism": "rdp"}):
            with pytest.raises(ValueError, match=r"state.dict"):
                PLDAccountant().load_state_dict(bad)

    def test_the_engine_uses_and_calibrates_with_it(self):
        run = Run(accountant="pld")
        run.train()
        assert run.engine.get_epsilon(1e-5) == pa.compose([(pa.SampledGaussian(NOISE, 0.2), 5)]).epsilon(1e-5).upper
        found = get_noise_multiplier(
            target_epsilon=2.0, target_delta=1e-5, sample_rate=0.01, steps=500, accountant="pld"
        )
        epsilon = pa.compose([(pa.SampledGaussian(found, 0.01), 500)]).epsilon(1e-5).upper
        assert 1.99 <= epsilon <= 2.0

    def test_ends(self):
        ours = PLDAccountant()
        assert ours.get_epsilon(1e-5) == 0.0 and len(ours) == 0
        ours.step(noise_multiplier=0.0, sample_rate=0.1)
        # at a delta above the sample rate the truth is 0
        assert ours.get_epsilon(0.5) == np.inf and ours.bounds(0.5).lower == 0.0
        ours.step(noise_multiplier=0.0, sample_rate=1.0)
        assert ours.bounds(0.5).lower == np.inf
