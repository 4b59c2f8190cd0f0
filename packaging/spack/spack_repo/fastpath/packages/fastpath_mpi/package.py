# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from pathlib import Path

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class FastpathMpi(MakefilePackage):
    """MPI 5.0 library with the standard ABI, its launcher, and tools that measure and diagnose."""

    # The checkout that holds this file. Elsewhere, name the URL of a repository or of a release.
    git = f"file://{Path(__file__).resolve().parents[6]}"

    license("Apache-2.0 OR MIT")

    version("main", branch="main")

    variant("fortran", default=True, description="Build the Fortran modules of the compiler")

    depends_on("c", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("rust@1.88:", type="build")

    provides("mpi@:5.0")
    # Another library with the standard ABI can replace libmpi_abi.so.1 at run time.
    provides("mpi-abi")

    conflicts("platform=darwin")

    executables = ["^fastpath$"]

    @classmethod
    def determine_version(cls, exe):
        return Executable(exe)("--version", output=str).split()[1]

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        # cargo fetches the crates of Cargo.lock from its registry into this folder.
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))
        # The modules of the compiler of the specification are built below, and no others.
        env.set("MODULES", "no")

    def build(self, spec, prefix):
        make("build")

    def install(self, spec, prefix):
        make("install", f"PREFIX={prefix}")
        if spec.satisfies("+fortran"):
            Executable(prefix.bin.mpifort)("--build-modules", self.module.spack_fc)

    def check(self):
        """Runs nothing: `make test` installs packages of the system."""

    @run_after("install")
    def keep_test(self):
        cache_extra_test_sources(self, "tests/install/exchange.c")

    def test_exchange(self):
        """a program on 2 ranks"""
        source = join_path(install_test_root(self), "tests", "install", "exchange.c")
        Executable(self.prefix.bin.mpicc)(source, "-o", "exchange")
        out = Executable(self.prefix.bin.mpiexec)("-n", "2", "./exchange", output=str)
        check_outputs("2 ranks, sum 1", out)

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        env.set("MPICC", self.prefix.bin.mpicc)
        env.set("MPICXX", self.prefix.bin.mpicxx)
        if self.spec.satisfies("+fortran"):
            env.set("MPIF77", self.prefix.bin.mpif77)
            env.set("MPIF90", self.prefix.bin.mpif90)

    def setup_dependent_build_environment(
        self, env: EnvironmentModifications, dependent_spec: Spec
    ) -> None:
        # mpicc, mpicxx and mpifort call the compilers of the dependent package.
        module = dependent_spec.package.module
        for variable, attribute in (
            ("FASTPATH_CC", "spack_cc"),
            ("FASTPATH_CXX", "spack_cxx"),
            ("FASTPATH_FC", "spack_fc"),
        ):
            if hasattr(module, attribute):
                env.set(variable, getattr(module, attribute))

    def setup_dependent_package(self, module, dependent_spec):
        self.spec.mpicc = self.prefix.bin.mpicc
        self.spec.mpicxx = self.prefix.bin.mpicxx
        if self.spec.satisfies("+fortran"):
            self.spec.mpifc = self.prefix.bin.mpif90
            self.spec.mpif77 = self.prefix.bin.mpif77
