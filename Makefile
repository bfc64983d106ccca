# The commands of the README. `make` alone lists them.

CARGO ?= cargo
ARCH ?= $(shell uname -m)
FUZZ_SECONDS ?= 600
BPF_C := $(wildcard bpf/*.[ch] benches/bpf/*.c)
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

help:
	@echo 'make run        install what the build needs, build, and start the live view'
	@echo 'make build      install what the build needs, and build target/release/numatop-ng'
	@echo 'make test       this machine, and a core set of virtual ones: kernels, architectures, nodes'
	@echo 'make lint       formats, scripts, workflows and dependencies, without a build'
	@echo 'make test-host  this machine only'
	@echo 'make test-all   this machine, and the full matrix of virtual ones'
	@echo 'make refused    root tests with each optional BPF program refused in turn (root, an hour)'
	@echo 'make engines    containers of docker, containerd, podman and LXC, which it installs (root)'
	@echo 'make static     one static binary for any Linux (ARCH=x86_64 or aarch64)'
	@echo 'make install    the built program, its documents, units and rules below PREFIX (/usr/local), in DESTDIR'
	@echo 'make dist       tarballs, .deb and .rpm of static binaries for x86_64 and aarch64, in target/dist'
	@echo 'make reproducible  the packages of make dist built twice, in folders of different names, and compared'
	@echo 'make packages   the packages of make dist installed, upgraded and purged in a bare system (root)'
	@echo 'make systemd    the services of the .deb under a systemd that boots: started, killed, booted, upgraded, purged (root)'
	@echo 'make manifests  the Kubernetes manifests and the dashboard against their schemas'
	@echo 'make traces     exports for Perfetto, pprof and flame graphs, opened by their own readers, which it installs'
	@echo 'make bench      the measurements of docs/performance.md'
	@echo 'make prometheus the exporter against a real Prometheus, which it installs'
	@echo 'make parquet    Parquet files in DuckDB, polars and pyarrow, which it installs, and the queries of docs/tables.md (parquet-all: Spark, ClickHouse)'
	@echo 'make programs   memory in use of programs that people run, which it installs; the cost of sampling'
	@echo 'make inspect    the BPF programs and maps as the kernel has them: sizes, work of the verifier, memory'
	@echo 'make pages      pages of reports in a browser without a screen: errors, requests, widths, themes, contrast, print'
	@echo 'make fuzz       hostile inputs for everything that parses, FUZZ_SECONDS (600) for each of eight targets'
	@echo 'make format     Rust and C as the check of make test-host wants them'
	@echo 'make torture    what takes minutes: 10,000 damaged recordings, all sectors, 200 killed recorders'

build:
	scripts/install-deps build
	@echo 'building target/release/numatop-ng: about four minutes on two CPUs'
	$(CARGO) build --release --locked

run: build
	$(SUDO) target/release/numatop-ng

test-host: export CARGO := $(CARGO)
test-host:
	scripts/test --host

lint:
	scripts/lint

test: export CARGO := $(CARGO)
test:
	scripts/test

test-all: export CARGO := $(CARGO)
test-all:
	scripts/test --all

format:
	scripts/install-deps test
	$(CARGO) fmt --all
	clang-format -i $(BPF_C)

refused: export CARGO := $(CARGO)
refused:
	scripts/test-refused

engines:
	scripts/install-deps engines
	$(CARGO) build --locked
	$(CARGO) test --locked --test probes -- a_container_of

static:
	scripts/install-deps static
	[ $(ARCH) = "$$(uname -m)" ] || vmtests/install-deps static
	vmtests/build-static --dist $(ARCH)
	@echo "target/static/dist/$(ARCH)/numatop-ng"

PREFIX ?= /usr/local
DESTDIR ?=

# As it was built: distributions build in one step and install in another.
install:
	scripts/install-tree $(or $(BINARY),target/release/numatop-ng) "$(DESTDIR)" "$(PREFIX)"

# SOURCE_DATE_EPOCH, REVISION and PACKAGER are as scripts/dist says.
dist:
	scripts/install-deps dist
	$(MAKE) static ARCH=x86_64
	$(MAKE) static ARCH=aarch64
	scripts/dist

reproducible:
	scripts/install-deps dist
	[ $(ARCH) = "$$(uname -m)" ] || vmtests/install-deps static
	scripts/check-reproducible $(ARCH)

packages:
	scripts/install-deps packages
	$(SUDO) scripts/check-packages

systemd:
	scripts/install-deps systemd
	$(SUDO) scripts/check-systemd

manifests:
	scripts/install-deps manifests
	scripts/check-manifests

traces: build
	scripts/install-deps traces
	scripts/check-traces

bench:
	scripts/install-deps bench
	benches/run

prometheus: build
	scripts/install-deps prometheus
	scripts/check-prometheus

# Beside the release build, which is without that feature.
PARQUET := $(CARGO) build --release --locked --features parquet --target-dir target/parquet
parquet:
	scripts/install-deps parquet
	$(PARQUET)
	scripts/check-parquet target/parquet/release/numatop-ng

parquet-all:
	scripts/install-deps parquet-all
	$(PARQUET)
	scripts/check-parquet --all target/parquet/release/numatop-ng

programs: build
	scripts/install-deps programs
	benches/run programs
	benches/run access-cost

inspect: build
	scripts/install-deps inspect
	$(SUDO) scripts/inspect

pages: build
	scripts/install-deps pages
	scripts/pages/run

fuzz:
	scripts/install-deps build
	fuzz/run $(FUZZ_SECONDS)

torture:
	$(CARGO) test --release --locked --test recordings -- --include-ignored --skip make_the_fixture

.PHONY: help build run lint test test-host test-all format refused engines static bench prometheus parquet parquet-all pages programs inspect fuzz torture install dist reproducible packages systemd manifests traces
