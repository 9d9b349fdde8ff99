"""The programs of `benchmarks.speed.gpu`: lowered by TensorFlow, run by JAX's XLA client."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

from benchmarks.speed.gpu import cases, counts, programs
from tfrank_sel.ops import layout

XLA_TYPES = {"float32": xla_data_pb2.F32, "int32": xla_data_pb2.S32, "int64": xla_data_pb2.S64}
# peers, and how the names of programs begin that compute the same
SAME = {
    "cross-entropy": "SoftmaxLoss",
    "top-k recurrence": "SmoothTopKLoss",
}
PROGRAMS = [
    *programs.of_losses(4, 6),
    programs.of_top_k(4, 9),
    programs.of_training(3, 5, 4),
]
each_program = pytest.mark.parametrize(
    "program", PROGRAMS, ids=[program.case.name for program in PROGRAMS]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    made = tmp_path_factory.mktemp("programs")
    programs.lower(made, PROGRAMS)
    return made


def test_the_manifest_names_every_case(folder):
    assert cases.read(folder) == [program.case for program in PROGRAMS]
    files = {path.name for path in folder.iterdir()}
    assert files == {cases.MANIFEST, *(program.case.file for program in PROGRAMS)}


@each_program
def test_a_program_takes_the_arguments_that_the_manifest_names(program, folder):
    hlo = hlo_pb2.HloModuleProto.FromString((folder / program.case.file).read_bytes())

    found = [(x.dimensions, x.element_type) for x in hlo.host_program_shape.parameters]

    assert found == [(x.shape, XLA_TYPES[x.dtype]) for x in program.case.inputs]


def test_the_step_of_a_list_scorer_has_no_loop_over_items():
    case, step, _ = programs.of_training(4, 30, 3)
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in case.inputs]
    with layout.traced_for("GPU"):
        hlo = step.experimental_get_compiler_ir(*specs)(stage="optimized_hlo")
    found = counts.counted(hlo)
    assert (found.loops, found.conditionals, found.sorts) == (0, 0, 0)


@each_program
def test_a_program_gives_what_tensorflow_gives(program, folder):
    jax = pytest.importorskip("jax", reason="the extra `benchmarks` is not installed")
    from benchmarks.speed.gpu import xla

    arguments = program.case.arguments()
    executable = xla.load((folder / program.case.file).read_bytes(), jax.devices()[0])
    found = xla.run(executable, jax.device_put(arguments))

    for x, expected in zip(found, program.function(*arguments), strict=True):
        assert x.dtype == expected.dtype.as_numpy_dtype
        np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-6)


@each_program
def test_peers_take_the_arguments_of_the_program(program):
    pytest.importorskip("jax", reason="the extra `benchmarks` is not installed")
    from benchmarks.speed.gpu import jax_peers

    arguments = program.case.arguments()
    for peer in program.case.peers:
        [[found, *_]] = jax_peers.queued(peer, arguments, count=1)()
        assert np.isfinite(found).all()
        if program.case.name.startswith(SAME.get(peer, "no program")):
            np.testing.assert_allclose(found, program.function(*arguments)[0], rtol=1e-5)


def test_a_difference_is_relative_to_the_largest_number_of_its_result(folder):
    jax = pytest.importorskip("jax", reason="the extra `benchmarks` is not installed")
    from benchmarks.speed.gpu import table, xla

    case = PROGRAMS[0].case
    hlo, arguments = (folder / case.file).read_bytes(), case.arguments()
    value, slopes = xla.run(xla.load(hlo, jax.devices("cpu")[0]), jax.device_put(arguments))
    assert table.difference([value, slopes], hlo, arguments) == 0.0
    assert table.difference([1.25 * value, slopes], hlo, arguments) == pytest.approx(0.25)
    assert table.difference([value, 1.5 * slopes], hlo, arguments) == pytest.approx(0.5)
    assert np.isnan(table.difference([value, np.nan * slopes], hlo, arguments))


def test_a_table_has_a_row_for_each_peer_of_a_case(folder, monkeypatch):
    pytest.importorskip("jax", reason="the extra `benchmarks` is not installed")
    from benchmarks.speed.gpu import table

    monkeypatch.setattr(table, "COPIED", 1000)
    _, _, head, _, *found = table.lines(folder, only="TopK", rounds=1, calls=2)

    assert head.count("|") == len(table.COLUMNS) + 1
    of_jax = [line.split(" | ") for line in found if ", jax" in line]
    assert {cells[3].split(",")[0] for cells in of_jax} == {
        "cross-entropy of classes",
        "top-k recurrence",
    }
    for cells in of_jax:
        theirs_over_ours = float(cells[4].replace(",", "")) / float(cells[1].replace(",", ""))
        assert float(cells[5]) == pytest.approx(theirs_over_ours, rel=0.1)
