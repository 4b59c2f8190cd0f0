import json
import os
import shutil
import tempfile
import unittest

from harness import foreign, program, records
from harness.slices import CASES, MACHINE_CASES, RANKS, VARIANTS, Slice

SOURCE = "/* A program.\n * test: {words} */\nint main(void) {{ return 0; }}\n"


def read(name, words):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name + ".c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(SOURCE.format(words=words))
        return program.Program(path)


def write(folder, path):
    """Writes an empty test program."""
    path = os.path.join(folder, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(SOURCE.format(words="ranks=1"))


class Nothing:
    """Slice without tests."""

    @staticmethod
    def has_variant(_):
        return False

    has_ranks = has_variant


def names(one, everything=False, slice_=Nothing):
    return [run[0] for run in one.runs(everything, slice_)]


class Slices(unittest.TestCase):
    def test_slices__together__have_all_once(self):
        for number, has in ((VARIANTS, Slice.has_variant), (RANKS, Slice.has_ranks), (CASES, Slice.has_case),
                            (MACHINE_CASES, Slice.has_machine_case)):
            slices = [Slice(str(i)) for i in range(20 * number)]
            kinds = {one._number % number: one for one in slices}
            self.assertEqual(len(kinds), number)
            for test in map(str, range(100)):
                self.assertEqual(sum(has(one, test) for one in kinds.values()), 1)

    def test_choose__takes_one_name__and_in_some_slice_each(self):
        tests = ["deb.sh", "tarball.sh", "action"]
        chosen = [Slice(str(i)).choose(tests) for i in range(60)]
        self.assertTrue(all(chosen.count(test) >= 10 for test in tests), chosen)

    def test_programs__with_every_slice__are_those_of_all(self):
        one = read("pt2pt_x", "ranks=1,2,3")

        class Everything:
            @staticmethod
            def has_variant(_):
                return True

            has_ranks = has_variant

        self.assertEqual(names(one, slice_=Everything), names(one, everything=True))


class Variants(unittest.TestCase):
    def test_family__chooses_variants_on_fewest_several_ranks(self):
        self.assertEqual(names(read("pt2pt_x", "ranks=1,3,4")),
                         ["pt2pt_x n=3", "pt2pt_x n=3 immediate-off", "pt2pt_x n=3 check"])

    def test_plain_runs__at_further_ranks_are_of_a_slice(self):
        class Ranks(Nothing):
            @staticmethod
            def has_ranks(name):
                return name == "pt2pt_x n=4"

        one = read("pt2pt_x", "ranks=1,2,4 variants=none")
        self.assertEqual([name for name in names(one, slice_=Ranks) if "-" not in name], ["pt2pt_x n=2", "pt2pt_x n=4"])
        self.assertEqual(names(read("other", "ranks=1")), ["other n=1"])

    def test_no_family__has_plain_runs_alone(self):
        self.assertEqual(names(read("other", "ranks=2")), ["other n=2"])

    def test_head_line__adds_variants(self):
        self.assertIn("other n=2 progress", names(read("other", "ranks=2 variants=progress")))

    def test_variant__equal_to_the_plain_run__is_left_out(self):
        self.assertNotIn("x n=2 sleep", names(read("x", "ranks=2 env=FASTPATH_WAIT=sleep"), everything=True))

    def test_mistakes__are_not_run_with_check(self):
        self.assertNotIn("pt2pt_x n=2 check", names(read("pt2pt_x", "ranks=2 mistakes=yes"), everything=True))

    def test_needs__are_the_ranks_unless_it_says_more(self):
        self.assertEqual(read("x", "ranks=4").needs(4), {"processors": 4})
        self.assertEqual(read("x", "ranks=4 needs=0").needs(4), {"processors": 0})
        self.assertEqual(read("x", "ranks=4 needs=machine").needs(4), {"processors": 4, "alone": True})

    def test_unknown_variant__is_refused(self):
        with self.assertRaises(ValueError):
            read("x", "variants=nonsense")


class Fortran(unittest.TestCase):
    SOURCE = "! A program.\n! test: {words}\nprogram x\nend program\n"

    def read(self, words, name="x.f90", source=SOURCE):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(source.format(words=words))
        return program.find(folder)

    def test_methods__give_a_program_each(self):
        found = self.read("ranks=2 methods=mpif.h,mpi,mpi_f08")
        self.assertEqual([one.name for one in found], ["x-mpif.h", "x-mpi", "x-mpi_f08"])
        self.assertEqual(names(found[2]), ["x-mpi_f08 n=2"])

    def test_fixed_form__has_a_data_line(self):
        (one,) = self.read("ranks=2,3", "y.f", "c     test: {words}\n      END\n")
        self.assertEqual((one.name, one.ranks, one.method), ("y", [2, 3], None))

    def test_unknown_method__is_refused(self):
        with self.assertRaisesRegex(ValueError, "unknown methods"):
            self.read("methods=f77")

    def test_words_of_fortran__in_a_c_program__are_refused(self):
        for words in ("methods=mpi", "with=part.c"):
            with self.assertRaisesRegex(ValueError, "unknown word"):
                read("x", words)

    def test_c_sources_beside__are_no_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ("part.c", "x.f90", "c/y.c"):
                write(folder, path)
            self.assertEqual([one.name for one in program.find(folder)], ["x", "y"])

    def test_compile__has_the_method_the_modules_and_the_c_source(self):
        with tempfile.TemporaryDirectory() as folder:
            compiler, log = os.path.join(folder, "mpifort"), os.path.join(folder, "log")
            for path in (compiler, os.path.join(folder, "mpicc")):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\ncase $1 in -showme:command) echo gfortran-99; exit ;; esac\necho \"$0 $*\" >> {log}\n"
                               'while [ "$1" != -o ]; do shift; done\n: > "$2"\n')
                os.chmod(path, 0o755)
            (one,) = self.read("methods=mpi with=part.c link=-lx")
            with open(os.path.join(os.path.dirname(one.path), "part.c"), "w", encoding="utf-8"):
                pass
            self.assertIsNone(one.compile(os.path.join(folder, "mpicc"), folder))
            with open(log, encoding="utf-8") as file:
                c_line, fortran_line = file.read().splitlines()
        self.assertIn("part.c", c_line)
        for word in ("-fc=gfortran-99", "-Werror", "-DMETHOD_MPI", f"-J {one.binary}.modules", f"{one.binary}.o", "-lx"):
            self.assertIn(f" {word}", fortran_line)


class Folders(unittest.TestCase):
    def test_find__walks_folders_in_the_order_of_names(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ("b/x.c", "a/y.c", "a/y.h"):
                write(folder, path)
            self.assertEqual([one.name for one in program.find(folder)], ["x", "y"])

    def test_find__two_files_of_one_name__is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ("a/x.c", "b/x.c"):
                write(folder, path)
            with self.assertRaisesRegex(ValueError, "programs of the same name"):
                program.find(folder)

    def test_source__of_an_unknown_program__is_refused(self):
        with self.assertRaisesRegex(ValueError, "no program nonsense"):
            program.source("nonsense")


class Records(unittest.TestCase):
    def test_read__knows_each_form(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ[records.FOLDER] = folder
            records.record(test="ours", seconds=1.5, outcome="passed")
            del os.environ[records.FOLDER]
            lines = [{"type": "suite", "event": "started"}, {"type": "test", "event": "started", "name": "a::b"},
                     {"type": "test", "event": "failed", "name": "a::b", "exec_time": 2.5}]
            with open(os.path.join(folder, "libtest.json"), "w", encoding="utf-8") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines) + "no JSON\n")
            os.mkdir(os.path.join(folder, "within"))
            with open(os.path.join(folder, "within", "junit.xml"), "w", encoding="utf-8") as file:
                file.write('<testsuites><testsuite name="crate"><testcase name="m::t" classname="crate" time="0.25"/>'
                           '<testcase name="u" classname="crate" time="3"><failure/></testcase></testsuite></testsuites>')
            found = sorted((one["test"], one["seconds"], one["outcome"]) for one in records.read(folder))
        self.assertEqual(found, [("a::b", 2.5, "failed"), ("crate m::t", 0.25, "passed"), ("crate u", 3.0, "failed"),
                                 ("ours", 1.5, "passed")])


class Foreign(unittest.TestCase):
    HYDRA = "[mpiexec@h1] HYDU_sock_write (/mpich-5.0.2/src/pm/hydra/lib/utils/sock.c:250): write error (Bad file descriptor)\n"

    def test_lines_of_launchers__are_removed(self):
        self.assertEqual(foreign.remove(f"ours\n{self.HYDRA}srun: cluster configuration lacks support for cpu binding\n"), "ours\n")

    def test_other_lines__stay(self):
        for line in (self.HYDRA.replace("Bad file descriptor", "No space left on device"), "fastpath: " + self.HYDRA,
                     "[mpiexec@h1] HYDU_sock_read (lib/utils/sock.c:200): read error (Bad file descriptor)\n"):
            self.assertEqual(foreign.remove(line), line)
