"""On a cluster of processes: nothing is lost and nothing counted twice, whatever is killed, cut, full or repeated."""

import json
import os
import signal
import uuid

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import pld_accountant as pa
from pld_accountant.files.formats import ReadError

distributed = pytest.importorskip("distributed")
frames = pytest.importorskip("dask.dataframe")

from pld_accountant.dask import PartitionError, write_epsilons  # noqa: E402

SCHEDULE = [(2.0, 0.01, 20_000)]
JOB = pa.PartitionJob(1e-5, 1.0, SCHEDULE, buckets=32)


@pytest.fixture(scope="module")
def client():
    """Two workers, processes of their own with a nanny each."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


@pytest.fixture
def make(tmp_path):
    def folder(files=3, people=200, each=6, mixed=False, text=False):
        rng = np.random.default_rng(0)
        where = tmp_path / "events"
        where.mkdir()
        everybody = np.repeat(np.arange(files * people), each)
        if mixed:
            everybody = rng.permutation(everybody)
        for number, person in enumerate(np.split(everybody, files)):
            norm, count = rng.gamma(1.0, 0.4, person.size), rng.integers(1, 400, person.size)
            names = [f"p{i}" for i in person] if text else person
            table = pyarrow.table({"person": names, "norm": norm, "count": count})
            parquet.write_table(table, where / f"events{number}.parquet", row_group_size=300)
        return where

    return folder


def agrees(out, events):
    """Whether the results are those of one ledger of all events, in the order of the ledger."""
    sigma, rate, _ = SCHEDULE[0]
    ledger = pa.Ledger.from_events(
        events, max_grad_norm=1.0, noise_multiplier=sigma, sample_rate=rate, schedule=SCHEDULE, buckets=32
    )
    expected, found = ledger.epsilon(1e-5), pa.read_results(out).individuals
    order = np.argsort(found.people)
    assert found.people[order].tolist() == ledger.people.tolist()
    bounds = found.epsilon[order]
    assert np.all((bounds.lower <= expected.upper) & (expected.lower <= bounds.upper))
    # the loss of one event changes it by more
    assert np.allclose(found.rdp_epsilon[order], ledger.rdp_epsilon(1e-5), rtol=1e-3)
    return True


def parts(out):
    """The parts on disk, with the moment when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in out.glob("part-*.parquet")}


# ------------------------------------------------------------------------------------------------------ arrays of norms


@pytest.mark.parametrize("kind", ["array", "zarr"])
def test_norms_in_an_array_give_the_numbers_of_one_ledger(client, tmp_path, kind):
    arrays = pytest.importorskip("dask.array")
    norms = np.random.default_rng(1).gamma(1.0, 0.4, (50, 90))
    norms[:, 7] = 0.0  # takes no part in any step, and is in the results
    given = arrays.from_array(norms, chunks=(20, 25))
    if kind == "zarr":
        pytest.importorskip("zarr")
        given.to_zarr(str(tmp_path / "norms.zarr"))
        given = tmp_path / "norms.zarr"
    job = pa.PartitionJob(1e-5, 1.0, [(2.0, 0.1, 50)], buckets=32)
    out = write_epsilons(job, given, tmp_path / "out", client=client)
    found = pa.read_results(out).individuals
    ledger = pa.Ledger.from_norms(norms, noise_multiplier=2.0, sample_rate=0.1, max_grad_norm=1.0, buckets=32)
    expected = ledger.epsilon(1e-5)
    order = np.argsort(found.people)
    assert found.people[order].tolist() == list(range(90))
    bounds = found.epsilon[order]
    assert np.all((bounds.lower <= expected.upper) & (expected.lower <= bounds.upper))
    assert bounds.upper[7] == 0.0
    before = parts(out)
    assert parts(write_epsilons(job, given, tmp_path / "out", client=client)) == before


def test_norms_that_do_not_fit_the_schedule(client, tmp_path):
    arrays = pytest.importorskip("dask.array")
    norms = arrays.ones((90, 50))
    for schedule in ([(2.0, 0.1, 50)], [(2.0, 0.1, 40), (3.0, 0.1, 50)]):
        with pytest.raises(ValueError, match="norms"):
            write_epsilons(pa.PartitionJob(1e-5, 1.0, schedule), norms, tmp_path / "out", client=client)
    with pytest.raises(FileNotFoundError):
        write_epsilons(JOB, tmp_path / "none.zarr", tmp_path / "out", client=client)


# ------------------------------------------------------------------------------------------------------ what is written


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_folder_of_events_gives_the_numbers_of_one_ledger(client, make, tmp_path, mixed, text):
    events, out = make(mixed=mixed, text=text), tmp_path / "out"
    seen = []
    write_epsilons(JOB, events, out, partitioned=not mixed, partitions=4, progress=lambda *done: seen.append(done))
    assert agrees(out, events)
    total = 4 if mixed else 3
    assert seen == [(i + 1, total) for i in range(total)]
    assert pa.read_results(out).individuals.provenance["source"]["name"] == "events"
    assert out.stat().st_mode & 0o777 == 0o700
    assert not (out / "_events").exists()


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_data_frame_and_other_names_of_columns(client, make, tmp_path, partitioned):
    frame = frames.read_parquet(make()).rename(columns={"person": "user"}).assign(more=1)
    job = pa.PartitionJob(1e-5, 1.0, SCHEDULE, buckets=32, columns={"person": "user"})
    write_epsilons(job, frame, tmp_path / "out", partitioned=partitioned)
    assert agrees(tmp_path / "out", tmp_path / "events")


def test_each_part_is_a_result_file_and_so_is_one_file_of_events(client, make, tmp_path):
    events, out = make(), tmp_path / "out"
    write_epsilons(JOB, events / "events1.parquet", out, partitioned=True)
    (part,) = parts(out)
    assert pa.read_results(out / part).individuals.epsilon == pa.read_results(out).individuals.epsilon
    assert agrees(out, events / "events1.parquet")


def test_partitions_without_people_have_no_part(client, make, tmp_path):
    events = make(files=1, people=2)
    write_epsilons(JOB, events, tmp_path / "out", partitions=6)
    assert 1 <= len(parts(tmp_path / "out")) <= 2
    assert agrees(tmp_path / "out", events)


# ----------------------------------------------------------------------------------------------------- what is cut off


def test_a_killed_worker_costs_its_partition_only(client, make, tmp_path):
    events, out = make(files=10, people=400), tmp_path / "out"
    before = {}

    def kill(done, total):
        if done == 3:
            before.update(parts(out))
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    write_epsilons(JOB, events, out, partitioned=True, progress=kill)
    assert len(before) >= 3
    after = parts(out)
    assert len(after) == 10
    records = {json.loads(path.read_text())["part"] for path in (out / "_done").iterdir()}
    assert records == set(after)
    finished = before.items() & after.items()
    assert len(finished) >= len(before) - 1  # the part whose record the worker had not written yet
    assert agrees(out, events)
    client.wait_for_workers(2)


def test_a_worker_killed_during_the_shuffle_loses_nothing(client, make, tmp_path):
    events, out = make(mixed=True), tmp_path / "out"
    pid = next(iter(client.run(os.getpid).values()))

    def shoot(dask_worker=None):
        os.kill(pid, signal.SIGKILL)

    victim = client.submit(shoot, pure=False)
    write_epsilons(JOB, events, out, partitions=4)
    victim.cancel()
    assert agrees(out, events)
    client.wait_for_workers(2)


def test_a_run_that_is_cut_off_is_continued(client, make, tmp_path):
    events, out = make(files=6), tmp_path / "out"

    def stop(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_epsilons(JOB, events, out, partitioned=True, progress=stop)
    with pytest.raises(ReadError, match="not complete"):
        pa.read_results(out)
    kept = {json.loads(path.read_text())["part"] for path in (out / "_done").iterdir()}
    before = {name: time for name, time in parts(out).items() if name in kept}
    assert len(before) >= 3
    (out / ".part-00001-aa.parquet.x.part").touch()  # of a worker that was killed
    write_epsilons(JOB, events, out, partitioned=True)
    assert before.items() <= parts(out).items()
    assert not list(out.glob(".part-*"))
    assert agrees(out, events)
    done = parts(out)
    write_epsilons(JOB, events, out, partitioned=True)
    assert parts(out) == done


def test_a_cut_off_shuffle_begins_again_and_a_finished_one_does_not(client, make, tmp_path):
    events, out = make(mixed=True), tmp_path / "out"

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_epsilons(JOB, events, out, partitions=4, progress=stop)
    shuffled = {path: path.stat().st_mtime_ns for path in (out / "_events").iterdir()}
    with pytest.raises(KeyboardInterrupt):
        write_epsilons(JOB, events, out, partitions=4, progress=stop)
    assert shuffled == {path: path.stat().st_mtime_ns for path in (out / "_events").iterdir()}
    manifest = json.loads((out / "_manifest.json").read_text())
    del manifest["partitions"]  # as if the shuffle had been cut off
    (out / "_manifest.json").write_text(json.dumps(manifest))
    (out / "_events" / "half.parquet").write_bytes(b"PAR1")
    write_epsilons(JOB, events, out, partitions=4)
    assert agrees(out, events)


def test_a_full_disk_keeps_what_is_done(client, make, tmp_path):
    """A limit on the size of a file stands for the full disk: the write of a part fails in the middle."""
    import resource

    events, out = make(files=4, people=1500), tmp_path / "out"
    small = pyarrow.parquet.read_table(events / "events0.parquet").slice(0, 6)
    parquet.write_table(small, events / "events0.parquet")
    whole = client.run(resource.getrlimit, resource.RLIMIT_FSIZE)
    most = next(iter(whole.values()))[1]
    client.run(resource.setrlimit, resource.RLIMIT_FSIZE, (40_000, most))
    try:
        with pytest.raises(PartitionError, match="3 of 4 partitions failed") as caught:
            write_epsilons(JOB, events, out, partitioned=True)
    finally:
        client.run(resource.setrlimit, resource.RLIMIT_FSIZE, (most, most))
    assert sorted(caught.value.failed) == [f"events{i}.parquet" for i in (1, 2, 3)]
    assert all("OSError" in reason for reason in caught.value.failed.values())
    before = parts(out)
    assert len(before) == 1
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    write_epsilons(JOB, events, out, partitioned=True)
    assert before.items() <= parts(out).items()
    assert agrees(out, events)


# ------------------------------------------------------------------------------------------------------- bad inputs


def test_a_cut_file_is_found_before_the_work(client, make, tmp_path):
    events, out = make(), tmp_path / "out"
    file = events / "events1.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ReadError, match=r"events1.parquet cannot be read as Parquet"):
        write_epsilons(JOB, events, out, partitioned=True)
    file.write_bytes(whole)
    write_epsilons(JOB, events, out, partitioned=True)
    assert agrees(out, events)


def test_a_file_damaged_inside_fails_alone_and_may_be_replaced(client, make, tmp_path):
    events, out = make(), tmp_path / "out"
    file = events / "events1.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:50] + b"\xff" * 400 + whole[450:])
    with pytest.raises(PartitionError, match=r"1 of 3 partitions failed.*events1\.parquet"):
        write_epsilons(JOB, events, out, partitioned=True)
    before = parts(out)
    assert len(before) == 2
    file.write_bytes(whole)
    write_epsilons(JOB, events, out, partitioned=True)
    assert before.items() <= parts(out).items()
    assert agrees(out, events)


def test_a_missing_column_is_found_before_the_work(client, make, tmp_path):
    events = make()
    with pytest.raises(ReadError, match="no column 'user'"):
        write_epsilons(pa.PartitionJob(1e-5, 1.0, SCHEDULE, columns={"person": "user"}), events, tmp_path / "out")


@pytest.mark.parametrize("partitioned", [False, True])
def test_the_same_file_twice_is_refused(client, make, tmp_path, partitioned):
    events = make()
    (events / "copy.parquet").write_bytes((events / "events2.parquet").read_bytes())
    with pytest.raises(ValueError, match=r"events2\.parquet and copy\.parquet are equal"):
        write_epsilons(JOB, events, tmp_path / "out", partitioned=partitioned)


def test_somebody_in_two_partitions_is_refused(client, make, tmp_path):
    events, out = make(), tmp_path / "out"
    parquet.write_table(pyarrow.table({"person": [77], "norm": [0.5], "count": [3]}), events / "late.parquet")
    with pytest.raises(ValueError, match="77 is in two partitions"):
        write_epsilons(JOB, events, out, partitioned=True)
    with pytest.raises(ReadError, match="not complete"):
        pa.read_results(out)
    write_epsilons(JOB, events, tmp_path / "other", partitions=2)
    assert agrees(tmp_path / "other", events)


@pytest.mark.parametrize("mixed", [False, True])
def test_other_parameters_and_other_events_are_refused(client, make, tmp_path, mixed):
    events, out = make(mixed=mixed), tmp_path / "out"
    write_epsilons(JOB, events, out, partitioned=not mixed)
    with pytest.raises(ValueError, match="another delta"):
        write_epsilons(pa.PartitionJob(1e-6, 1.0, SCHEDULE, buckets=32), events, out, partitioned=not mixed)
    with pytest.raises(ValueError, match="another partitioned"):
        write_epsilons(JOB, events, out, partitioned=mixed)
    parquet.write_table(pyarrow.table({"person": [1], "norm": [0.5], "count": [3]}), events / "events0.parquet")
    with pytest.raises(ValueError, match="other events" if mixed else r"events0\.parquet has changed"):
        write_epsilons(JOB, events, out, partitioned=not mixed)
    (events / "events0.parquet").unlink()
    with pytest.raises(ValueError, match="other events"):
        write_epsilons(JOB, events, out, partitioned=not mixed)


def test_an_altered_part_is_refused_by_readers_and_made_again(client, make, tmp_path):
    events, out = make(), tmp_path / "out"
    write_epsilons(JOB, events, out, partitioned=True)
    name = sorted(parts(out))[1]
    data = bytearray((out / name).read_bytes())
    data[60] ^= 1
    (out / name).write_bytes(data)
    with pytest.raises(ReadError, match="altered or damaged"):
        pa.read_results(out)
    write_epsilons(JOB, events, out, partitioned=True)
    assert len(parts(out)) == 3
    assert agrees(out, events)
    (out / sorted(parts(out))[0]).unlink()
    with pytest.raises(ReadError, match="is missing"):
        pa.read_results(out)


@pytest.mark.parametrize("partitioned", [False, True])
def test_ids_of_arrow_and_columns_of_other_widths(client, tmp_path, partitioned):
    """UUIDs, labels as dictionaries, and whole numbers that are narrower in one file."""
    events, out = tmp_path / "events", tmp_path / "out"
    events.mkdir()
    for number in range(2):
        people = [(100 * number + i).to_bytes(16, "big") for i in range(20)]
        columns = {
            "person": pyarrow.array(people, pyarrow.uuid()),
            "norm": pyarrow.array(np.linspace(0.1, 2.0, 20), pyarrow.float32() if number else pyarrow.float64()),
            "count": pyarrow.array([7] * 20, pyarrow.int32() if number else pyarrow.int64()),
            "group": pyarrow.array([f"g{number}"] * 20).dictionary_encode(),
        }
        parquet.write_table(pyarrow.table(columns), events / f"{number}.parquet")
    write_epsilons(JOB, events, out, partitioned=partitioned, partitions=2)
    assert agrees(out, events)
    found = pa.read_results(out).individuals
    numbers = [uuid.UUID(one).int for one in found.people]
    assert sorted(numbers) == [*range(20), *range(100, 120)]
    assert found.labels.tolist() == [f"g{number // 100}" for number in numbers]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"person": ["a"], "norm": [1.0]}, "ids of another kind"),
        ({"person": [7], "sensitivity": [1.0]}, "other columns"),
    ],
)
def test_files_that_do_not_fit_together_are_found_before_the_shuffle(client, make, tmp_path, other, message):
    events = make(files=1)
    table = pyarrow.table(other | {"count": [1]})
    parquet.write_table(table, events / "other.parquet")
    with pytest.raises(ReadError, match=message):
        write_epsilons(JOB, events, tmp_path / "out")


def test_a_missing_id_is_told(client, make, tmp_path):
    events = make(files=1)
    table = pyarrow.table({"person": pyarrow.array([1, None]), "norm": [1.0, 1.0], "count": [1, 1]})
    parquet.write_table(table, events / "other.parquet")
    with pytest.raises(Exception, match="1 missing ids"):
        write_epsilons(JOB, events, tmp_path / "out")


def test_a_folder_that_is_partitioned_by_something_else(client, make, tmp_path):
    events = make()
    for number, path in enumerate(sorted(events.glob("*.parquet"))):
        (events / f"day={number}").mkdir()
        path.rename(events / f"day={number}" / path.name)
    write_epsilons(JOB, events, tmp_path / "out")
    assert agrees(tmp_path / "out", events)


def test_columns_in_names_of_folders_other_folders_and_no_client(client, make, tmp_path):
    events = make()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(ValueError, match="is not empty"):
        write_epsilons(JOB, events, tmp_path / "full", partitioned=True)
    (events / "sample_rate=0.01").mkdir()
    (events / "events0.parquet").rename(events / "sample_rate=0.01" / "events0.parquet")
    with pytest.raises(ReadError, match="'sample_rate' in the name of its folder"):
        write_epsilons(JOB, events, tmp_path / "out")
    with pytest.raises(ReadError, match="holds no Parquet"):
        write_epsilons(JOB, tmp_path / "full", tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        write_epsilons(JOB, tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(ValueError, match="a path, a Dask data frame"):
        write_epsilons(JOB, {"person": [1]}, tmp_path / "out")
