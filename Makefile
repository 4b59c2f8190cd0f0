# Fastpath: build, test, install. `make` lists the targets.

CARGO   ?= cargo
PREFIX  ?= /usr/local
PROFILE ?= release

# Profile of the launcher and the toolbox. `release` builds the toolbox with LTO too, because comparisons of its own
# layers need it.
TOOLS   ?= $(if $(filter release,$(PROFILE)),tools,$(PROFILE))

# Lint, tests of crates, and the tools in `make test` share one build of the workspace. Clippy compiles it where it is
# installed (docs/decisions/0091-one-build-for-lint-and-tests.md).
CLIPPY = $(if $(shell clippy-driver --version 2> /dev/null),RUSTC_WORKSPACE_WRAPPER=clippy-driver)

# GLIBC=2.28: build for systems with this version of glibc or a later one, by cargo-zigbuild.
HOST    = $(shell rustc -vV | sed -n 's/^host: //p')
COMPILE = $(CARGO) $(if $(GLIBC),zigbuild --target $(HOST).$(GLIBC),build)

# Folder of a profile's output: that of `dev` is `debug`. BUILD collects the installed files from both profiles.
TARGET_DIR = $(or $(CARGO_TARGET_DIR),target)
OUTPUT     = $(TARGET_DIR)/$(if $(GLIBC),$(HOST)/)$(patsubst dev,debug,$(1))
BUILD      = $(TARGET_DIR)/install/$(PROFILE)$(addprefix -glibc-,$(GLIBC))

# A first build is a third faster without incremental compilation. If cargo was used by hand before, `make` leaves it
# on: changing it rebuilds all crates.
ifeq ($(wildcard $(TARGET_DIR)/debug/incremental/*),)
export CARGO_INCREMENTAL ?= 0
endif

.PHONY: help build build-library build-tools install prefix wheel deb tarball setup test test-all test-crates test-programs test-programs-all test-tcp \
	test-tcp-all test-install test-install-all \
	test-interchange test-fortran test-fortran-all test-budgets vm-test vm-test-all test-suites test-suites-sample test-loom test-miri test-tsan fuzz lint format demo bench results

help:
	@echo 'make build                  build libraries, launcher and tools (PROFILE=release)'
	@echo 'make install PREFIX=DIR     install them, with mpicc, mpifort, mpi.h, mpif.h, pkg-config files and manual pages;'
	@echo '                            builds the modules mpi and mpi_f08 for each Fortran compiler on the path'
	@echo 'make prefix                 install them in build/prefix, where the tests and scripts/vm look for them'
	@echo 'make wheel                  pack the wheel fastpath-mpi into build/wheel (GLIBC=2.28: for systems with that'
	@echo '                            glibc; needs cargo-zigbuild and ziglang of PyPI)'
	@echo 'make deb                    pack Debian packages into build/deb'
	@echo 'make tarball                pack an archive with an installation script into build/tarball'
	@echo 'make test                   run all tests except the long ones; installs missing packages (tests/setup)'
	@echo 'make test-all               run all tests, including the long ones'
	@echo 'make test-crates            test the Rust crates'
	@echo 'make test-programs          run MPI programs in C on several numbers of ranks, and tests of jobs (tests/run)'
	@echo 'make test-tcp               run a sample of the programs over TCP (test-tcp-all: all, and tests of mpi4py)'
	@echo 'make test-install           install into a scratch folder and build programs in C, C++ and Fortran against it'
	@echo 'make test-install-all       also build mpi4py in an environment with the wheel, and the conda packages'
	@echo 'make test-fortran           compile the Fortran modules and programs with each compiler (test-fortran-all: compare every interface)'
	@echo 'make test-interchange       run one binary on this library and on MPICH (installs its wheel)'
	@echo 'make demo                   run a checked program on 4 ranks; print latency, its floor and a chart'
	@echo 'make test-budgets           compare the instruction counts of calls with bench/budgets'
	@echo 'make vm-test                test RDMA on two virtual adapters, or with FASTPATH_TEST_DEVICE=mlx5_0 on that one'
	@echo 'make vm-test-all            run also long cases, and tests/c and suites over rc and ud'
	@echo 'make test-loom              run ring, sleep handshake, biased lock and segment records under the model checker'
	@echo 'make test-miri              run ring and matcher under miri; needs a nightly toolchain'
	@echo 'make test-tsan              run the programs with threads under ThreadSanitizer; needs a nightly toolchain'
	@echo 'make fuzz SECONDS=60        fuzz every parser of untrusted input for SECONDS'
	@echo 'make test-suites            build and run software of other projects (tests/suites; SUITES=--quick: shorter)'
	@echo 'make bench                  measure a ping-pong with its floor, and ratios to other MPIs (test cache)'
	@echo 'make results                run the full comparison: docs/results.md and the table in README.md'
	@echo 'make lint                   check formatting, clippy, and the rules of this project (scripts/lint)'
	@echo 'make format                 format the sources'

# The library with fat LTO takes one processor for most of its build; the tools are built in parallel. Builds of one
# profile share a folder, so one call of cargo makes both.
LIBRARY_CRATES = -p fastpath-abi -p fastpath-abifort -p fastpath-profile
TOOL_CRATES    = -p fastpath-launch -p fastpath-toolbox -p fastpath-abigen -p fastpath-queues
ONE_PROFILE    = $(filter $(PROFILE),$(TOOLS))

build:
	@+$(MAKE) --no-print-directory -j2 $(if $(ONE_PROFILE),,build-library) build-tools
	@mkdir -p '$(BUILD)'
	@for file in $(foreach name,libmpi_abi libmpifort_abi libfastpath_profile,'$(call OUTPUT,$(PROFILE))/$(name).so') \
	    $(foreach name,mpiexec fastpath fastpath-abigen libfastpath_dbg.so,'$(call OUTPUT,$(TOOLS))/$(name)'); do \
	    [ "$$file" -ef "$(BUILD)/$${file##*/}" ] || ln -f "$$file" '$(BUILD)' || exit 1; \
	done

build-library:
	$(COMPILE) --profile $(PROFILE) $(LIBRARY_CRATES)

build-tools:
	$(if $(filter dev,$(TOOLS)),$(CLIPPY) $(CARGO) build --workspace --all-targets, \
	    $(COMPILE) --profile $(TOOLS) $(if $(ONE_PROFILE),$(LIBRARY_CRATES)) $(TOOL_CRATES))

install: build
	DESTDIR='$(DESTDIR)' install/install.sh '$(BUILD)' '$(PREFIX)'

# Files that the process tests use. The library is the shipped one, for which the budgets hold. `make test` takes
# launcher and tools from the build of the tests of crates.
prefix: build
	install/install.sh '$(BUILD)' build/prefix

wheel: build
	packaging/wheel/pack '$(BUILD)' build/wheel

deb: build
	packaging/deb/pack '$(BUILD)' build/deb

tarball: build
	packaging/tarball/pack '$(BUILD)' build/tarball

# Parts that run in parallel, in this order: half of the release build, a part of the tests of crates and the virtual
# machine occupy one processor, and the programs wait half of their time. tests/parts prints failures, and the seconds of
# each part. The tools are those of the profile of the tests of crates.
PARALLEL = make test-crates & make prefix & make test-programs & make vm-test & make test-suites-sample & \
    make test-loom & make test-tcp & make test-install & make test-interchange & make test-fortran & \
    make test-budgets

test: setup
	@TOOLS=dev tests/parts '$(PARALLEL)'

test-all: setup
	@tests/parts 'make test-crates' 'make test-programs-all' 'make test-tcp-all' 'make test-install-all & make test-interchange & make test-fortran-all' \
	    'make test-budgets' 'make vm-test-all' 'make fuzz' 'make test-suites' 'make test-loom PREEMPTIONS=5' \
	    'scripts/miri --if-there' 'scripts/tsan --if-there'

setup:
	@tests/setup

test-crates:
	$(CLIPPY) $(CARGO) test --workspace --no-fail-fast

# The model checker replaces the atomics: three crates are built once more. PREEMPTIONS bounds the switches away from a
# runnable thread; without it each test has its own bound, and all take seconds.
test-loom:
	$(if $(PREEMPTIONS),LOOM_MAX_PREEMPTIONS=$(PREEMPTIONS)) \
	    $(CARGO) test -p fastpath-base -p fastpath-segment -p fastpath-transport --features fastpath-transport/loom \
	    --lib -- model:: loom::

test-miri:
	scripts/miri

# The programs with threads under ThreadSanitizer.
test-tsan: prefix
	scripts/tsan

fuzz:
	scripts/fuzz $(SECONDS)

test-programs: prefix
	tests/run --prefix build/prefix

test-programs-all: prefix
	tests/run --all --prefix build/prefix

# Over TCP between processes of this host: a sample of two ranks, and all programs.
test-tcp: prefix
	tests/run --over tcp --ranks 2 --prefix build/prefix 'pt2pt_*' 'coll_*'

test-tcp-all: prefix
	tests/run --over tcp --prefix build/prefix
	tests/suites/mpi4py --over tcp --prefix build/prefix

test-install: build
	tests/install/run.sh '$(BUILD)'
	tests/install/wheel.sh '$(BUILD)'
	tests/install/rust.sh '$(BUILD)'
	tests/install/spack '$(BUILD)'
	tests/install/conda --check
	tests/install/sample '$(BUILD)' deb.sh tarball.sh action

test-install-all: build
	tests/install/run.sh '$(BUILD)'
	tests/install/wheel.sh '$(BUILD)' --mpi4py
	tests/install/deb.sh '$(BUILD)'
	tests/install/tarball.sh '$(BUILD)'
	tests/install/rust.sh '$(BUILD)'
	tests/install/spack '$(BUILD)'
	tests/install/action '$(BUILD)'
	tests/install/conda '$(BUILD)'

test-interchange: build
	tests/interchange/run.sh '$(BUILD)' $(MPICH)

# The generated Fortran texts, with each compiler that is installed.
test-fortran: build
	tests/fortran/compile '$(BUILD)'

# Also compares every interface with the standard's binding; pympistandard is in the test cache.
test-fortran-all: test-fortran
	tests/fortran/bindings '$(BUILD)'

test-budgets: prefix
	build/prefix/bin/fastpath bench instructions --functions 0 --budget bench/budgets
	bench/arrival build/prefix

# Debian's kernel under emulation: Soft-RoCE, loss and delay on the wire, two virtual hosts.
vm-test: prefix
	scripts/vm test --prefix build/prefix

# OSU's programs of nonblocking and neighbourhood collectives.
OSU_NEW = --ranks 3 --programs osu_i*,osu_neighbor*

# Everything in the virtual machine: long cases; all programs of tests/c on two ranks, and the messages and collectives
# of mpi4py, over each adapter transport, on one virtual host and between two; some of OSU's programs, Graph500 and
# PETSc's star forests. It takes two hours; each case is reported when it ends.
vm-test-all: prefix
	@tests/parts 'scripts/vm test --all --verbose --prefix build/prefix' \
	    $(foreach hosts,1 2,'scripts/vm programs --verbose --prefix build/prefix --hosts $(hosts)' \
	        'tests/suites/mpi4py --prefix build/prefix --over rc,ud --hosts $(hosts)') \
	    'tests/suites/osu --prefix build/prefix --over rc,ud --hosts 2 --quick $(OSU_NEW)' \
	    'tests/suites/graph500 --prefix build/prefix --over rc,ud --hosts 2 --quick --ranks 2' \
	    'tests/suites/petsc --prefix build/prefix --over rc,ud --hosts 2 --quick'

# Software of other projects, built and run against a scratch installation. The suites install their dependencies.
test-suites: build
	install/install.sh '$(BUILD)' '$(TARGET_DIR)/suites/prefix'
	for suite in mpi4py osu graph500 netpipe hpcc fftw rsmpi lammps ior tileio petsc mpich-fortran mumps scalapack \
	        nas profilers 'hdf5 --fc gfortran' 'pnetcdf --fc gfortran'; do \
	    tests/suites/$$suite --prefix '$(TARGET_DIR)/suites/prefix' $(SUITES) || exit 1; \
	done
	for suite in mpi4py 'osu --quick $(OSU_NEW)' 'graph500 --quick --ranks 2' 'petsc --quick'; do \
	    set -f; tests/suites/$$suite --prefix '$(TARGET_DIR)/suites/prefix' --over tcp || exit 1; \
	done

# A sample of the suites for every change: NetPIPE, and mpi4py's messages and collectives on two virtual hosts.
test-suites-sample: build
	install/install.sh '$(BUILD)' '$(TARGET_DIR)/suites/prefix'
	tests/suites/netpipe --prefix '$(TARGET_DIR)/suites/prefix' --quick
	tests/suites/mpi4py --prefix '$(TARGET_DIR)/suites/prefix' --over tcp --quick

# The build declares the files with entry points as modules, so cargo fmt does not find them.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --check --manifest-path crates/mpi-sys/Cargo.toml
	rustfmt --check --edition 2024 crates/abi/src/entry/*.rs
	scripts/clippy
	scripts/lint --self-test
	scripts/words --self-test
	cd tests && python3 -m unittest -q harness.tests.test_parts harness.tests.test_schedule harness.tests.test_selection
	scripts/lint
	scripts/words

format:
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path crates/mpi-sys/Cargo.toml
	rustfmt --edition 2024 crates/abi/src/entry/*.rs

# A checked computation on 4 ranks, then the latency of a message with the hardware floor. The profile `demo` is built
# in half of the time of the shipped library and is as fast (docs/decisions/0100-a-profile-for-the-demo.md).
demo:
	@scripts/progress 'Build' $(MAKE) --no-print-directory install PROFILE=demo PREFIX=build/demo MODULES=no
	@scripts/demo build/demo

# Described in docs/measuring.md. BENCH holds further arguments of `fastpath compare`, PEERS those of bench/peers.
bench results: TOOLS = release
bench: build
	MODULES=no install/install.sh '$(BUILD)' '$(TARGET_DIR)/bench'
	'$(TARGET_DIR)/bench/bin/fastpath' bench latency
	bench/peers --ours '$(abspath $(TARGET_DIR))/bench/bin/mpicc' $(PEERS) > '$(TARGET_DIR)/bench/peers'
	'$(TARGET_DIR)/bench/bin/fastpath' compare --peers '$(TARGET_DIR)/bench/peers' $(BENCH)

# Writes docs/results.md and the table in README.md. Needs an idle machine for 20 minutes; a restart continues an
# interrupted run. RESULTS=--full measures everything, RESULTS='--stop-after 180s' a part (bench/results).
results: build
	MODULES=no install/install.sh '$(BUILD)' '$(TARGET_DIR)/bench'
	bench/results --prefix '$(TARGET_DIR)/bench' --work '$(TARGET_DIR)/results' $(RESULTS)
