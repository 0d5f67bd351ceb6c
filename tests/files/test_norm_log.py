"""Norm logs on disk: every format reads as the array it was written from, in any blocks, in both
orientations."""

import gc
import sys
import tracemalloc

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from pld_accountant.files import formats, norm_log
from pld_accountant.files.norm_log import ReadError, open_norms

STEPS, PEOPLE = 23, 7
NORMS = np.random.default_rng(0).random((STEPS, PEOPLE))


def write_npy(path, array):
    np.save(path, array)


def write_npz(path, array):
    np.savez(path, norms=array, other=np.zeros(3))


def write_zarr(path, array):
    zarr.save_array(str(path), array)


def write_hdf5(path, array):
    with h5py.File(path, "w") as file:
        file.create_dataset("run/norms", data=array, chunks=(5, array.shape[1]))


def write_wide(path, array):
    pq.write_table(pa.table({f"p{i}": array[:, i] for i in range(array.shape[1])}), path, row_group_size=4)


def write_lists(path, array):
    rows = pa.array(array.tolist(), type=pa.list_(pa.from_numpy_dtype(array.dtype)))
    table = pa.table({"step": np.arange(len(array)), "norms": rows})
    pq.write_table(table, path, row_group_size=4)


WRITERS = {
    "npy": (".npy", write_npy),
    "npz": (".npz", write_npz),
    "zarr": (".zarr", write_zarr),
    "hdf5": (".h5", write_hdf5),
    "parquet wide": (".parquet", write_wide),
    "parquet lists": (".parquet", write_lists),
}


@pytest.fixture(params=WRITERS)
def log_file(request, tmp_path):
    """A function that writes an array in one of the formats and gives the path."""
    ending, write = WRITERS[request.param]

    def make(array):
        path = tmp_path / f"log{ending}"
        write(path, array)
        return path

    return make


def blocks(log, size):
    return [log[a : a + size] for a in range(0, log.shape[0], size)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 5, STEPS, 100])
def test_blocks_of_steps_make_up_the_array(log_file, size, dtype):
    array = NORMS.astype(dtype)
    with open_norms(log_file(array), orientation="steps") as log:
        assert log.shape == (STEPS, PEOPLE)
        assert log.dtype == dtype
        assert log.orientation == "steps"
        assert np.array_equal(np.concatenate(blocks(log, size)), array)


@pytest.mark.parametrize("size", [1, 5, 100])
def test_a_row_per_example_is_transposed(log_file, size):
    with open_norms(log_file(np.ascontiguousarray(NORMS.T)), orientation="people") as log:
        assert log.shape == (STEPS, PEOPLE)
        assert np.array_equal(np.concatenate(blocks(log, size)), NORMS)


@pytest.mark.parametrize("orientation", norm_log.ORIENTATIONS)
def test_slabs_smaller_than_the_log_and_reading_backwards(log_file, orientation, monkeypatch):
    monkeypatch.setattr(norm_log, "_SLAB_BYTES", 6 * PEOPLE * 8)
    monkeypatch.setattr(formats, "_BATCH_BYTES", 3 * PEOPLE * 8)
    array = NORMS if orientation == "steps" else np.ascontiguousarray(NORMS.T)
    with open_norms(log_file(array), orientation=orientation) as log:
        for size in (1, 4, 6, 7, 11):
            assert np.array_equal(np.concatenate(blocks(log, size)), NORMS)
        for start, stop in ((20, 23), (3, 9), (8, 10), (0, 1), (5, 5), (-2, None)):
            assert np.array_equal(log[start:stop], NORMS[start:stop])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("orientation", norm_log.ORIENTATIONS)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_is_read_in_blocks_and_not_whole(tmp_path, monkeypatch, save, orientation, order):
    monkeypatch.setattr(norm_log, "_SLAB_BYTES", 2**16)
    monkeypatch.setattr(formats, "_BATCH_BYTES", 2**16)
    array = np.asarray(np.random.default_rng(0).integers(0, 9, (256, 4096)).astype(np.float64), order=order)
    save(tmp_path / "log.npz", norms=array)
    expected = array if orientation == "steps" else array.T
    tracemalloc.start()
    with open_norms(tmp_path / "log.npz", orientation=orientation) as log:
        assert log.shape == expected.shape
        equal = [np.array_equal(log[a : a + 1], expected[a : a + 1]) for a in (0, 1, 2, 100, 255)]
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert all(equal)
    assert peak < array.nbytes / 8


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_numbers_of_an_npz_are_found_when_they_are_read(tmp_path, save):
    path = tmp_path / "log.npz"
    save(path, norms=NORMS)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ReadError, match="cannot be read"), open_norms(path) as log:
        log[:]


def test_a_file_with_more_than_its_header_says_is_refused(tmp_path):
    """Two arrays that were appended to one file would be read as the first."""
    with (tmp_path / "log.npy").open("wb") as file:
        np.save(file, NORMS)
        np.save(file, NORMS)
    with pytest.raises(ReadError, match="does not fill"):
        open_norms(tmp_path / "log.npy")


def test_reading_forward_reads_nothing_twice(monkeypatch):
    reads = []

    def rows(start, stop):
        reads.append((start, stop))
        return NORMS[start:stop]

    table = formats.Table((STEPS, PEOPLE), NORMS.dtype, rows, rows)
    monkeypatch.setattr(norm_log, "_SLAB_BYTES", 6 * PEOPLE * 8)
    log = norm_log.NormLog(norm_log.Path("x.zarr"), table, "steps")
    assert np.array_equal(np.concatenate(blocks(log, 4)), NORMS)
    assert [b for a, b in reads[:-1]] == [a for a, b in reads[1:]]


def test_a_memory_mapped_log_is_not_copied(tmp_path):
    np.save(tmp_path / "log.npy", NORMS)
    with open_norms(tmp_path / "log.npy") as log:
        assert isinstance(log._table.rows(0, 2).base, np.memmap)


@pytest.mark.parametrize("stated", [*norm_log.ORIENTATIONS, "people-first"])
@pytest.mark.parametrize("given", [None, *norm_log.ORIENTATIONS])
@pytest.mark.parametrize("ending", [".npz", ".zarr", ".h5", ".parquet"])
def test_a_file_may_state_its_orientation_but_not_contradict(tmp_path, ending, given, stated):
    path = tmp_path / f"log{ending}"
    if ending == ".npz":
        np.savez(path, norms=NORMS, orientation=stated)
    elif ending == ".zarr":
        zarr.save_array(str(path), NORMS)
        zarr.open(str(path), mode="r+").attrs["orientation"] = stated
    elif ending == ".h5":
        with h5py.File(path, "w") as file:
            file["norms"] = NORMS
            file.attrs["orientation"] = stated
    else:
        table = pa.table({f"p{i}": NORMS[:, i] for i in range(PEOPLE)})
        pq.write_table(table.replace_schema_metadata({"orientation": stated}), path)
    if stated == "people-first" or given not in (None, stated):
        with pytest.raises(ReadError, match="states the orientation"):
            open_norms(path, orientation=given)
    else:
        with open_norms(path, orientation=given) as log:
            assert log.orientation == stated
            assert log.shape == ((STEPS, PEOPLE) if stated == "steps" else (PEOPLE, STEPS))


def test_the_longer_side_is_never_taken_for_the_steps(tmp_path):
    for shape in ((3, 100), (100, 3)):
        np.save(tmp_path / "log.npy", np.ones(shape))
        with open_norms(tmp_path / "log.npy") as log:
            assert log.shape == shape


def test_one_of_several_arrays_must_be_named(tmp_path):
    np.savez(tmp_path / "log.npz", first=NORMS, second=2 * NORMS)
    with pytest.raises(ReadError, match=r"2 arrays; name the one to read .*first, second"):
        open_norms(tmp_path / "log.npz")
    with pytest.raises(ReadError, match="no array 'third'"):
        open_norms(tmp_path / "log.npz", dataset="third")
    with open_norms(tmp_path / "log.npz", dataset="second") as log:
        assert np.array_equal(log[:], 2 * NORMS)


def test_a_column_of_step_numbers_is_not_a_person(tmp_path):
    pq.write_table(pa.table({"step": np.arange(3), "alice": np.ones(3)}), tmp_path / "log.parquet")
    with pytest.raises(ReadError, match=r"step \(int64\)"):
        open_norms(tmp_path / "log.parquet")


@pytest.mark.parametrize("rows", [[[1.0, 2.0], [3.0]], [[1.0, 2.0], None]])
def test_lists_of_unequal_length_are_refused(tmp_path, rows):
    pq.write_table(pa.table({"norms": rows}), tmp_path / "log.parquet")
    with open_norms(tmp_path / "log.parquet", orientation="steps") as log, pytest.raises(ReadError, match="one length"):
        log[0:2]


def test_two_columns_of_one_name_are_refused(tmp_path):
    """Columns are read by their names."""
    file = tmp_path / "log.parquet"
    pq.write_table(pa.table([pa.array([1.0, 2.0]), pa.array([3.0, 4.0])], names=["a", "a"]), file)
    with pytest.raises(ReadError, match="columns of the same name"):
        open_norms(file)


def test_an_empty_container_says_so(tmp_path):
    np.savez(tmp_path / "log.npz")
    with pytest.raises(ReadError, match=r"log\.npz has no array"):
        open_norms(tmp_path / "log.npz")


def test_a_file_that_is_cut_is_refused_and_closed(tmp_path):
    """numpy leaves a file open that it cannot unpack; the warning about it would come at any time later."""
    np.savez(tmp_path / "log.npz", norms=np.ones((3, 2)))
    (tmp_path / "log.npz").write_bytes((tmp_path / "log.npz").read_bytes()[:-100])
    with pytest.raises(ReadError, match=r"cannot be read as a \.npz file"):
        open_norms(tmp_path / "log.npz")
    gc.collect()


def test_lists_of_whole_numbers_are_norms_and_lists_of_words_are_not(tmp_path):
    pq.write_table(pa.table({"norms": [[1, 2], [3, 4]]}), tmp_path / "log.parquet")
    with open_norms(tmp_path / "log.parquet", orientation="steps") as log:
        assert log.dtype == np.int64
        assert log[:].tolist() == [[1, 2], [3, 4]]
    pq.write_table(pa.table({"norms": [["a"], ["b"]]}), tmp_path / "log.parquet")
    with pytest.raises(ReadError, match="real numbers, got string"):
        open_norms(tmp_path / "log.parquet", orientation="steps")


def test_missing_values_become_nan_that_the_ledger_refuses(tmp_path):
    pq.write_table(pa.table({"a": [1.0, None], "b": [1.0, 2.0]}), tmp_path / "wide.parquet")
    pq.write_table(pa.table({"norms": [[1.0, 1.0], [None, 2.0]]}), tmp_path / "lists.parquet")
    for name in ("wide.parquet", "lists.parquet"):
        with open_norms(tmp_path / name, orientation="steps") as log:
            assert np.array_equal(np.isnan(log[:]), [[False, False], [True, False]])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(5), "two-dimensional"),
        (np.ones((2, 3, 4)), "two-dimensional"),
        (np.ones((0, 5)), "no norms"),
        (np.ones((5, 0)), "no norms"),
        (np.ones((2, 2), dtype=complex), "real numbers"),
        (np.array([["a"]]), "real numbers"),
        (np.array([[None]]), "cannot be read"),
    ],
)
def test_what_is_no_table_of_real_numbers_is_refused(tmp_path, array, message):
    np.save(tmp_path / "log.npy", array, allow_pickle=True)
    with pytest.raises(ReadError, match=message):
        open_norms(tmp_path / "log.npy")


@pytest.mark.parametrize("ending", [".npy", ".npz", ".parquet", ".zarr", ".h5"])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x93NUMPY\x01\x00"])
def test_a_file_of_another_kind_is_refused_by_name(tmp_path, ending, content):
    path = tmp_path / f"log{ending}"
    path.write_bytes(content)
    with pytest.raises(ReadError, match=f"log{ending} cannot be read as a {ending} file"):
        open_norms(path)


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "log.npy"
    np.save(path, NORMS)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ReadError, match="cannot be read"):
        open_norms(path)


def test_a_damaged_chunk_is_refused_with_its_steps(tmp_path):
    path = tmp_path / "log.parquet"
    write_wide(path, NORMS)
    data = bytearray(path.read_bytes())
    data[4:600] = bytes(596)
    path.write_bytes(data)
    with (
        open_norms(path, orientation="steps") as log,
        pytest.raises(ReadError, match=r"log.parquet: steps 0 to 22 cannot be read"),
    ):
        log[0:3]


def test_missing_files_unknown_endings_and_orientations(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        open_norms(tmp_path / "log.npy")
    (tmp_path / "log.txt").write_text("1 2")
    with pytest.raises(ReadError, match=r"must end in one of \.npy"):
        open_norms(tmp_path / "log.txt")
    with pytest.raises(ReadError, match="orientation must be one of"):
        open_norms(tmp_path / "log.txt", orientation="rows")


@pytest.mark.parametrize(
    ("ending", "module", "extra"),
    [(".parquet", "pyarrow", "parquet"), (".zarr", "zarr", "zarr"), (".h5", "h5py", "hdf5")],
)
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, ending, module, extra):
    (tmp_path / f"log{ending}").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, module, None)
    expected = rf"log{ending} needs {module}: pip install 'individual-pld-accountant\[{extra}\]'"
    with pytest.raises(ReadError, match=expected):
        open_norms(tmp_path / f"log{ending}")


def test_single_steps_and_strides_are_refused(tmp_path):
    np.save(tmp_path / "log.npy", NORMS)
    with open_norms(tmp_path / "log.npy") as log:
        for key in (3, slice(0, 4, 2), (slice(0, 2), slice(0, 2))):
            with pytest.raises(TypeError, match="slices of steps"):
                log[key]


@pytest.mark.parametrize(("long", "short"), [("steps-by-examples", "steps"), ("examples-by-steps", "people")])
def test_the_long_names_of_orientations_mean_the_same(tmp_path, long, short):
    np.savez(tmp_path / "log.npz", norms=NORMS, orientation=long)
    np.save(tmp_path / "log.npy", NORMS)
    with open_norms(tmp_path / "log.npz", orientation=short) as log:
        assert log.orientation == short and not log.assumed
    with open_norms(tmp_path / "log.npy", orientation=long) as log:
        assert log.orientation == short


def test_a_parquet_file_must_say_what_a_row_is(tmp_path):
    """A data frame commonly holds a row per person: read as steps, it would give the steps' losses as the people's."""
    write_wide(tmp_path / "log.parquet", np.ascontiguousarray(NORMS.T))
    with pytest.raises(ReadError, match=f"step or a person, and it has {PEOPLE} rows and {STEPS} columns"):
        open_norms(tmp_path / "log.parquet")
    with open_norms(tmp_path / "log.parquet", people=PEOPLE) as log:  # this settles it
        assert (log.orientation, log.assumed) == ("people", False)
        assert np.array_equal(log[:], NORMS)
    write_wide(tmp_path / "square.parquet", np.ones((4, 4)))
    with pytest.raises(ReadError, match="step or a person"):
        open_norms(tmp_path / "square.parquet", people=4)


def test_a_file_of_another_kind_says_that_its_orientation_was_assumed(tmp_path):
    np.save(tmp_path / "log.npy", NORMS)
    for people, assumed in ((None, True), (PEOPLE, False)):
        with open_norms(tmp_path / "log.npy", people=people) as log:
            assert (log.shape, log.assumed) == ((STEPS, PEOPLE), assumed)


@pytest.mark.parametrize(("orientation", "other"), [("steps", "people"), ("people", "steps")])
def test_the_number_of_people_is_checked_and_the_hint_is_never_what_was_given(tmp_path, orientation, other):
    np.save(tmp_path / "log.npy", NORMS)
    wrong = STEPS if orientation == "steps" else PEOPLE
    with pytest.raises(
        ReadError, match=f"people, not {wrong}; with the orientation {other} the log has {wrong} people"
    ):
        open_norms(tmp_path / "log.npy", orientation=orientation, people=wrong)
    with pytest.raises(ReadError, match=r"people, not 1000$"):
        open_norms(tmp_path / "log.npy", orientation=orientation, people=1000)


def test_bfloat16_is_refused_with_the_remedy(tmp_path):
    types = pytest.importorskip("ml_dtypes")
    np.save(tmp_path / "log.npy", NORMS.astype(types.bfloat16))
    with pytest.raises(ReadError, match="compute the norms in float32"):
        open_norms(tmp_path / "log.npy")
