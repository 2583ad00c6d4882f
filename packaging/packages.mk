# Targets that make packages, included by the Makefile. ARCH is amd64 or arm64; KEY is the GnuPG key
# that signs the repositories and the RPM packages.

ARCH     ?= $(shell $(GO) env GOARCH)
STAGE    := $(BIN)/stage/$(ARCH)
PACKED   := $(BIN)/packages
KEY      ?=
# C cross compilers for gnvml, which calls NVIDIA's library.
CC_amd64 := x86_64-linux-gnu-gcc
CC_arm64 := aarch64-linux-gnu-gcc
export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: stage deb rpm repo package-burst-aws test-packages test-packages-vm

# The tree of files that all packages of an architecture share. Programs of this machine's architecture
# are those of `make build`.
stage: man
	cd tools && $(GO) build -o ../$(BIN)/ ./sbom
	rm -rf $(STAGE) && mkdir -p $(STAGE)/usr/bin
ifeq ($(ARCH),$(shell $(GO) env GOHOSTARCH))
	@command -v gcc >/dev/null || { echo "packaging: gcc is missing; as root: ./test/setup packages" >&2; exit 1; }
	cp $(addprefix $(BIN)/,$(STATIC) gnvml) $(STAGE)/usr/bin/
else
	GOARCH=$(ARCH) $(GO) build -ldflags '$(LDFLAGS)' -o $(STAGE)/usr/bin/ $(addprefix ./cmd/,$(STATIC))
	GOARCH=$(ARCH) CGO_ENABLED=1 CC=$(CC_$(ARCH)) $(GO) build -ldflags '$(LDFLAGS)' -o $(STAGE)/usr/bin/ ./cmd/gnvml
endif
	packaging/stage $(ARCH) $(STAGE)

deb: stage
	@mkdir -p $(PACKED)
	packaging/deb/build $(ARCH) $(STAGE) $(PACKED)

rpm: stage
	@mkdir -p $(PACKED)
	packaging/rpm/build $(ARCH) $(STAGE) $(PACKED)

# The DEB and the RPM package of the provider program for Amazon EC2, which need the AWS SDK: `make deb` and `make rpm`
# do not make them.
package-burst-aws:
	cd tools && $(GO) build -o ../$(BIN)/ ./sbom
	@mkdir -p $(PACKED) $(STAGE)-burst-aws
	cd burst/aws && GOARCH=$(ARCH) $(GO) build -ldflags '$(LDFLAGS)' -o $(CURDIR)/$(STAGE)-burst-aws/ ./cmd/greylag-burst-aws
	packaging/burst-aws/build $(ARCH) $(STAGE)-burst-aws/greylag-burst-aws $(PACKED)

# An apt and a dnf repository of the packages that were made, in bin/repo.
repo:
	packaging/repo $(PACKED) $(BIN)/repo $(KEY)

# Builds the packages, and installs, upgrades and removes them on machines that systemd boots in
# containers. What is missing is installed.
test-packages:
	./test/setup packages
	$(GO) test -count=1 -timeout 30m -v ./test/packages

# The same upgrade in a virtual machine with a kernel of its own and version 2 control groups. It takes
# some minutes.
test-packages-vm:
	./test/setup packages
	./test/setup vm
	./test/packages/vm
