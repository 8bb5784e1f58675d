# hmcfs: make help

PREFIX   ?= /usr/local
BINDIR   ?= $(PREFIX)/bin
DATADIR  ?= $(PREFIX)/share
# mount(8) looks for its helpers here and nowhere else.
SBINDIR  ?= /sbin
DESTDIR  ?=

GO       ?= go
MODULE   := github.com/hmcfs/hmcfs
LDFLAGS  ?=
BIN      := bin/hmcfs
WHEELS   ?= bin/wheel
# Debian's, which has what make deps installs.
PYTHON   ?= $(firstword $(wildcard /usr/bin/python3) python3)
TOOLS    := bin/tools/golangci-lint bin/tools/checklocks bin/tools/govulncheck

# One binary: no cgo but where the race detector needs it.
export CGO_ENABLED := 0

# For all commands alike: what one has compiled the others need not compile again.
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

# What must not be skipped by make test: what make deps installs and, as root,
# what root may do. Whether others may mount is up to the machine.
HMCFS_REQUIRE ?= opencl,hip,numpy,tool:etcd,tool:fio,tool:prometheus,tool:redis-server,tool:tmux,ucx,ucx-headers,pytest,redis,pip,setuptools,wheel,fsspec,torch$(shell test "$$(id -u)" -ne 0 || echo ,fuse,root)
# The package whose tests take longest begins first, beside all others.
PKGS          ?= ./tests ./...
TALLY         := $(GO) run ./tests/tally
TALLYFLAGS    ?=
# Without DWARF the test binaries, and what the tests build, link in half the time.
TESTENV       := GOFLAGS='$(GOFLAGS) "-ldflags=-s -w"'
TESTFLAGS     := -vet=off
# Tests wait for more than half of their time: two packages at a time leave processors idle. Those of
# make check and make race have enough to do.
MORE          := -p $(shell expr $$(nproc) \* 3 / 2)
FUZZTIME      ?= 10s
COUNT         ?= 50
BASE          ?=
STRESSFLAGS   ?=
VULNFLAGS     ?=

.DEFAULT_GOAL := help
.PHONY: help deps build wheel demo picture test check race stress suites bench gpu-bundle package image microbench fuzz cover lint vet types vulncheck tools generate notices install uninstall clean

help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## Install what tests and demo need (Debian, Ubuntu)
	@tests/deps.sh

build: ## Build bin/hmcfs
	$(GO) build -buildvcs=auto -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/hmcfs

# Building in place would leave folders behind, and one that is left tests what it had.
wheel: ## Build the Python package into bin/wheel, without a network
	@rm -rf bin/wheel-source && mkdir -p $(WHEELS) bin && cp -r objects/client/python bin/wheel-source
	@$(PYTHON) -m pip wheel -q --no-index --no-deps --no-build-isolation -w $(WHEELS) ./bin/wheel-source
	@rm -rf bin/wheel-source

demo: deps build ## Mount, copy tensors across devices, kill the daemon, show it, unmount
	@HMCFS=$(CURDIR)/$(BIN) tests/demo/demo.sh

picture: build ## Draw docs/demo.svg, the README's picture, from a real run
	@$(GO) run ./tests/demo/picture -hmcfs $(BIN)

# The targets below leave go vet to make lint.
test: deps build ## Run every test
	@HMCFS_REQUIRE=$(HMCFS_REQUIRE) $(TESTENV) $(TALLY) $(TALLYFLAGS) -- $(TESTFLAGS) $(MORE) -timeout 25m $(PKGS)

# The tests that have more to do then, by what they ask, and those that run the
# lists of tests/conformance/commtest.
check: deps build ## Run what make test leaves out: all sizes, many rounds
	@HMCFS_CHECK=1 HMCFS_REQUIRE=$(HMCFS_REQUIRE) $(TESTENV) $(TALLY) $(TALLYFLAGS) -using kit.Exhaustive,kit.Rounds,commtest.Run -- $(TESTFLAGS) -timeout 30m

# Each process that the detector watches sleeps for a second at its end, unless
# told otherwise, and the tests run hundreds of hmcfs commands.
#
# Left out is what builds its programs itself, without the detector, and what
# tests the tests' tools.
RACELESS = /tests/(bench|demo|examples|gpu|lint|scale|standin|stress|tally)(/|$$)
RACEPKGS ?= $$($(GO) list $(PKGS) | grep -vE '$(RACELESS)')

race: deps ## Run the tests with the race detector and the invariant checks
	@CGO_ENABLED=1 GORACE=atexit_sleep_ms=10 $(TESTENV) $(TALLY) $(TALLYFLAGS) -- $(TESTFLAGS) -race -tags invariants -short -timeout 40m $(RACEPKGS)

stress: deps ## Run the tests that differ from BASE (main) COUNT (50) times under load
	@HMCFS_REQUIRE=$(HMCFS_REQUIRE) $(GO) run ./tests/stress $(STRESSFLAGS) -count $(COUNT) $(BASE)

suites: build ## Run fio and stress-ng on real mounts (what is not installed is skipped)
	@HMCFS=$(CURDIR)/$(BIN) tests/suites/suites.sh

# With VRAMFS=PROGRAM files of OpenCL devices are compared with vramfs, too.
bench: deps build ## Measure, and write docs/benchmarks.md, its pages and the README's table
	$(GO) run ./tests/bench -write $(if $(VRAMFS),-vramfs $(VRAMFS))
	$(GO) run ./tests/bench -peers -write
	$(GO) run ./tests/bench -objects -write
	$(GO) run ./tests/bench -held -write -rounds 30
	$(GO) run ./tests/scale -write

gpu-bundle: ## Pack what tests/gpu/run.sh needs on a GPU machine into dist/gpu.tar.gz
	tests/gpu/bundle.sh dist/hmcfs-gpu
	tar -C dist -czf dist/gpu.tar.gz hmcfs-gpu

package: ## Build a deb and an rpm into dist/
	@packaging/build.sh deb rpm

image: ## Build an OCI image into dist/, without docker
	@packaging/build.sh image

microbench: ## Run the Go benchmarks of all packages
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m $(PKGS)

fuzz: ## Run every fuzz target for FUZZTIME (10s)
	@$(GO) list -f '{{if .TestGoFiles}}{{.ImportPath}}{{end}}{{if .XTestGoFiles}} {{.ImportPath}}{{end}}' $(PKGS) | \
	tr ' ' '\n' | sort -u | sed '/^$$/d' | while read -r pkg; do \
		$(GO) test -list '^Fuzz' "$$pkg" | grep '^Fuzz' | while read -r target; do \
			echo "fuzz $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null || exit 1; \
		done || exit 1; \
	done

cover: deps build ## Say how much of the code the tests reach
	$(GO) test -short -timeout 14m -coverpkg=$(MODULE)/... -coverprofile=coverage.out $(PKGS)
	@$(GO) tool cover -func=coverage.out | tail -n 1

# Only what is annotated is checked: the checker's guesses at what a lock may
# guard take fields that never change for guarded ones.
vet: bin/tools/checklocks ## Run go vet and the lock annotations' checker
	$(GO) vet $(PKGS)
	$(GO) vet -tags invariants $(PKGS)
	$(GO) vet -vettool=$(CURDIR)/bin/tools/checklocks -inferred=false $(PKGS)

lint: vet types bin/tools/golangci-lint ## Run the linters of .golangci.yml, and those above
	bin/tools/golangci-lint run $(PKGS)

types: ## Check the types of the Python package, where mypy is
	@cd objects/client/python && if command -v mypy >/dev/null; then mypy --cache-dir /dev/null -p hmcfs; else echo "types: skipped, there is no mypy (Debian's package mypy)"; fi

# Needs the network: where the database does not answer it fails and says that
# nothing was checked, or only says so with VULNFLAGS=-optional.
vulncheck: bin/tools/govulncheck ## Look for known vulnerabilities in what the binary is built from
	@$(GO) run ./tests/vulncheck $(VULNFLAGS) $(PKGS)

tools: $(TOOLS)

# Pinned by tests/tools/go.mod and built from source; the go command's cache
# makes a second build quick.
$(TOOLS) &: tests/tools/go.mod tests/tools/go.sum
	cd tests/tools && $(GO) build -o $(CURDIR)/bin/tools/ tool
	@touch $(TOOLS)

generate: build picture ## Write docs/cli.md, docs/config.md and docs/demo.svg from the commands
	$(BIN) docs cli >docs/cli.md
	$(BIN) docs config >docs/config.md

# By a rename: a failure leaves the file as it is.
notices: ## Write THIRD_PARTY_NOTICES, the licences of what is linked into the binary
	@$(GO) run ./tests/notices >THIRD_PARTY_NOTICES.new && mv THIRD_PARTY_NOTICES.new THIRD_PARTY_NOTICES || { rm -f THIRD_PARTY_NOTICES.new; exit 1; }

install: build ## Install under PREFIX (/usr/local), and the mount helper
	install -D -m 0755 $(BIN) $(DESTDIR)$(BINDIR)/hmcfs
	install -d $(DESTDIR)$(SBINDIR)
	ln -sf $(BINDIR)/hmcfs $(DESTDIR)$(SBINDIR)/mount.hmcfs
	install -d $(DESTDIR)$(DATADIR)/bash-completion/completions \
		$(DESTDIR)$(DATADIR)/zsh/site-functions $(DESTDIR)$(DATADIR)/fish/vendor_completions.d
	$(BIN) completion bash >$(DESTDIR)$(DATADIR)/bash-completion/completions/hmcfs
	$(BIN) completion zsh >$(DESTDIR)$(DATADIR)/zsh/site-functions/_hmcfs
	$(BIN) completion fish >$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/hmcfs.fish
	$(BIN) docs man $(DESTDIR)$(DATADIR)/man
	install -D -m 0644 -t $(DESTDIR)$(DATADIR)/doc/hmcfs LICENSE THIRD_PARTY_NOTICES

uninstall: ## Remove what install has put there
	rm -f $(DESTDIR)$(BINDIR)/hmcfs $(DESTDIR)$(SBINDIR)/mount.hmcfs \
		$(DESTDIR)$(DATADIR)/bash-completion/completions/hmcfs \
		$(DESTDIR)$(DATADIR)/zsh/site-functions/_hmcfs \
		$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/hmcfs.fish \
		$(DESTDIR)$(DATADIR)/man/man1/hmcfs.1 $(DESTDIR)$(DATADIR)/man/man1/hmcfs-*.1 \
		$(DESTDIR)$(DATADIR)/man/man8/mount.hmcfs.8
	rm -rf $(DESTDIR)$(DATADIR)/doc/hmcfs

clean: ## Remove what was built
	rm -rf bin dist coverage.out
