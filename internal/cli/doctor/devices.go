package doctor

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// containerd checks that it answers, by asking for its version.
func (x *exam) containerd(ctx context.Context, socket string) {
	version, err := containerdVersion(ctx, socket)
	if !x.failed("containerd", "install and start it: systemctl start containerd; containerd.socket says where it is", err) {
		x.good("containerd", "%s on %s", version, socket)
	}
}

// containerdVersion makes the one call of containerd's API that needs none of its packages: its
// client would be ten times the size of this program.
func containerdVersion(ctx context.Context, socket string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	var cleartext http.Protocols
	cleartext.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &cleartext, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	const method = "http://containerd/containerd.services.version.v1.Version/Version"
	call := connect.NewClient[emptypb.Empty, emptypb.Empty](&http.Client{Transport: transport}, method, connect.WithGRPC())
	answer, err := call.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))
	if err != nil {
		return "", fmt.Errorf("containerd does not answer: %w", err)
	}
	const versionField = 1
	for rest := answer.Msg.ProtoReflect().GetUnknown(); len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			break
		}
		if rest = rest[n:]; number == versionField && kind == protowire.BytesType {
			text, _ := protowire.ConsumeString(rest)
			return text, nil
		}
		if n = protowire.ConsumeFieldValue(number, kind, rest); n < 0 {
			break
		}
		rest = rest[n:]
	}
	return "", fmt.Errorf("what answers on %s is not containerd", socket)
}

// gpuTime is how long the driver may take; on a host without its persistence daemon it initialises
// every GPU.
const gpuTime = 45 * time.Second

// gpus checks that the driver knows the host's devices.
func (x *exam) gpus(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, gpuTime)
	defer cancel()
	present := nvidiaDevices()
	found, err := x.inventory(ctx)
	switch {
	case err != nil && present == 0:
		x.note(Warning, "gpus", "install gnvml in the directory of gnoded if this host has GPUs", "cannot list them: %s", err)
		return
	case x.failed("gpus", "check that nvidia-smi answers; if it hangs, the driver does: reboot the host", err):
		return
	case found.Driver == "" && present > 0:
		x.note(Fault, "gpus", "install NVIDIA's driver; nvidia-smi must list them", "%d NVIDIA devices without a driver", present)
		return
	}
	for _, d := range found.Devices {
		if d.Fault != "" {
			x.note(Fault, "gpus", "jobs are not placed on it: see dmesg, reset or replace it", "GPU %d (%s): %s", d.Index, d.UUID, d.Fault)
		}
		if d.Recovery != 0 {
			x.note(Fault, "gpus", "gctl show node shows whether a reset or a reboot is required", "GPU %d (%s): the driver asks for: %s", d.Index, d.UUID, d.Recovery)
		}
		if d.Pending {
			x.note(Warning, "gpus", "reset it when it is idle", "GPU %d (%s): row remapping pending: a GPU reset applies it", d.Index, d.UUID)
		}
		if d.Slow != "" {
			x.note(Warning, "gpus", "jobs of several nodes avoid the node until it is repaired", "GPU %d (%s): %s", d.Index, d.UUID, d.Slow)
		}
		for _, f := range d.Files {
			if _, err := os.Stat(f.Host); err != nil {
				x.note(Fault, "gpus", "load the driver so that it makes its devices: nvidia-modprobe -c 0 -u", "GPU %d has no device file: %s", d.Index, err)
			}
		}
	}
	switch {
	case len(found.Devices) < present:
		x.note(Fault, "gpus", "see dmesg: one may have fallen off the bus", "the driver knows %d of %d devices", len(found.Devices), present)
	case len(found.Devices) == 0:
		x.good("gpus", "none")
	default:
		x.good("gpus", "%d, driver %s", len(found.Devices), found.Driver)
	}
}

// nvidiaDevices counts the GPUs on the PCI bus, whether or not a driver has them: NVIDIA's vendor
// ID, and the classes of display and 3D controllers (PCI Code and ID Assignment Specification,
// class 03h).
func nvidiaDevices() int {
	vendors, _ := filepath.Glob("/sys/bus/pci/devices/*/vendor") // the pattern is well formed
	n := 0
	for _, path := range vendors {
		vendor, _ := os.ReadFile(path)
		class, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "class"))
		if strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			n++
		}
	}
	return n
}
