# Targets of Greylag. `make demo` and `make test` need Go, git and make, and install the rest with the
# system's package manager.

GO      ?= go
BIN     := bin
VERSION := $(shell ./packaging/version)
LDFLAGS := -s -w -X github.com/greylag/greylag/internal/version.Version=$(VERSION)
STATIC  := gctld gnoded gauthd gsubmit gqueue gcancel grun gctl gsim ginit gstepd gshim gshimd gslurm
# Programs of the demo and the tests that no package has.
LOCAL   := greylag-burst-local
FUZZTIME ?= 60s
PACKAGES ?= ./...
LINTERS := github.com/golangci/misspell/cmd/misspell github.com/mgechev/revive honnef.co/go/tools/cmd/staticcheck
# Programs and tests are built in one way, so that they share the build cache.
export GOFLAGS := -buildvcs=false -trimpath
export CGO_ENABLED := 0
export CGO_CFLAGS := -O2 -Wno-deprecated-declarations
export GREYLAG_BIN := $(CURDIR)/$(BIN)
export PATH := $(PATH):$(GREYLAG_BIN)

.PHONY: all demo up down build burst-aws test test-burst-aws test-faults sim short check vulncheck cover check-api api-image bench fuzz gen man setup clean

all: build

# Runs batch scripts on three controllers and two nodes.
demo: setup build
	$(GO) run ./test/demo

# Starts the same cluster and leaves it running; `make down` stops it.
up: setup build
	$(GO) run ./test/demo -up

down:
	$(GO) run ./test/demo -down

# All programs are static, except gnvml, which calls NVIDIA's library.
build:
	@test -x $(BIN)/gctld || echo "building: the first time takes some minutes"
	@mkdir -p $(BIN)
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ $(addprefix ./cmd/,$(STATIC) $(LOCAL))
	@if command -v gcc >/dev/null; then CGO_ENABLED=1 $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/gnvml; \
	else echo "no gcc: building gnvml without NVML"; $(GO) build -o $(BIN)/ ./cmd/gnvml; fi

# The provider program for Amazon EC2. It is a module of its own, since the AWS SDK takes minutes to compile:
# no other target builds or tests it.
burst-aws:
	@mkdir -p $(BIN)
	cd burst/aws && $(GO) build -ldflags '$(LDFLAGS)' -o $(CURDIR)/$(BIN)/ ./cmd/greylag-burst-aws

# Manual pages and shell completions, into $(BIN)/man and $(BIN)/completions, from the programs' help
# and docs/config. Their date is that of the commit.
man: build
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(GO) run ./cmd/gendocs -bin $(BIN) -docs docs/config -o $(BIN)

test: setup build
	$(GO) test -timeout 60m $(PACKAGES)
	@if command -v gcc >/dev/null; then CGO_ENABLED=1 $(GO) test ./internal/gpu/nvml; fi

# The conformance test of provider programs is one of the tests.
test-burst-aws: burst-aws
	@cd burst/aws && { $(GO) mod tidy -diff >/dev/null || { echo "burst/aws/go.mod is out of date: run go mod tidy in burst/aws and commit"; exit 1; }; }
	cd burst/aws && $(GO) vet ./... && $(GO) test ./...

# All tests of faults and attacks, including those that take minutes: see CONTRIBUTING.md.
test-faults: setup build
	GREYLAG_FAULTS=all $(GO) test -count=1 -timeout 120m ./test/e2e ./internal/agent ./internal/auth ./internal/gctld \
		./internal/pki ./internal/raftlog ./internal/runtime/containerd ./internal/server ./internal/userfile

# Simulated hardware failures under many seeds, on all cores: about two hours on 2 cores. A seed that
# violates an invariant prints the command that replays it.
SEEDS ?= 1-1000
sim:
	@mkdir -p $(BIN)
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/gsim
	$(BIN)/gsim reliability --scenario small --check-every 1 --seeds $(SEEDS)
	$(BIN)/gsim reliability --scenario small-storm --check-every 1 --seeds $(SEEDS)
	$(BIN)/gsim reliability --scenario small-elastic --check-every 1 --seeds $(SEEDS)
	GREYLAG_BURST_SEEDS=$(lastword $(subst -, ,$(SEEDS))) $(GO) test -count=1 -timeout 3h -run TestSeeds ./internal/sim/burstsim
	$(BIN)/gsim reliability --scenario month --check-every 1000 --seeds $(SEEDS)

# All tests except those that start clusters.
short: build
	$(GO) test -short ./...

check:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go' ':!api/gen')); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) mod tidy -diff >/dev/null || { echo "go.mod is out of date: run go mod tidy and commit"; exit 1; }
	$(GO) vet ./...
	@if command -v gcc >/dev/null; then CGO_ENABLED=1 $(GO) vet ./internal/gpu/nvml; fi
	cd tools && $(GO) build -o ../$(BIN)/ ./errorlint $(LINTERS)
	$(BIN)/staticcheck ./...
	@if command -v gcc >/dev/null; then CGO_ENABLED=1 $(BIN)/staticcheck ./internal/gpu/nvml; fi
	$(GO) vet -vettool=$(CURDIR)/$(BIN)/errorlint ./...
	$(BIN)/revive -config tools/revive.toml -exclude ./api/gen/... ./...
	@$(BIN)/misspell -error -i nmae,tiem,thrid $$(git ls-files ':!api/gen' ':!*go.sum' ':!tools/language' ':!*/testdata/*')
	$(GO) test -count=1 .
	@$(MAKE) --no-print-directory check-api
	@$(MAKE) --no-print-directory gen
	@git diff --exit-code --stat -- api docs || { echo "generated files are out of date: run make gen and commit"; exit 1; }

# The style of the API, and its compatibility with the committed image.
check-api: $(BIN)/buf
	cd api && ../$(BIN)/buf lint
	cd api && ../$(BIN)/buf breaking --against image.binpb

# Accepts the present API as the one that later changes must be compatible with.
api-image: $(BIN)/buf
	cd api && ../$(BIN)/buf build --exclude-source-info --as-file-descriptor-set -o image.binpb

# buf has a module of its own: its dependencies would replace those of the generators.
$(BIN)/buf: tools/buf/go.mod
	cd tools/buf && $(GO) build -o ../../$(BIN)/buf github.com/bufbuild/buf/cmd/buf

# Known vulnerabilities of the modules that the programs call. Needs the Go vulnerability database. For the
# provider for EC2: make vulncheck VULNERABLE="-mode=binary bin/greylag-burst-aws".
VULNERABLE ?= ./...
vulncheck:
	cd tools && $(GO) build -o ../$(BIN)/govulncheck golang.org/x/vuln/cmd/govulncheck
	@out=$$($(BIN)/govulncheck $(VULNERABLE) 2>&1); status=$$?; echo "$$out"; \
	if echo "$$out" | grep -q '^govulncheck: fetching vulnerabilities'; then echo "govulncheck: skipped, its database cannot be reached"; exit 0; fi; \
	exit $$status

# Writes the share of statements that the short tests of each package run.
cover:
	@{ printf '# Coverage by package\n\nStatements that the short tests of a package run, by `make cover`. Tests that start containers or\n'; \
	printf 'clusters are not counted, nor what tests of other packages run.\n\n| package | statements |\n|---|---|\n'; \
	$(GO) test -short -cover ./internal/... ./pkg/... | awk '/coverage:/ { for (i = 1; i < NF; i++) if ($$i == "coverage:") { p = $$1 == "ok" ? $$2 : $$1; \
	sub("github.com/greylag/greylag/", "", p); print "| `" p "` | " ($$(i+1) ~ /%/ ? $$(i+1) : "none") " |" } }' | sort; } > docs/contributing/coverage.md

bench: setup build
	$(GO) run ./test/bench

fuzz:
	./test/fuzz $(FUZZTIME)

gen:
	cd tools && $(GO) run ./protogen

setup:
	@./test/setup

clean:
	rm -rf $(BIN)

include packaging/packages.mk
