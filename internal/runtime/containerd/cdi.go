//go:build linux

package containerd

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/greylag/greylag/internal/runtime"
)

// DeviceKind is the vendor and class of every GPU that this node describes.
const DeviceKind = "greylag.dev/gpu"

// GPU is a device as WriteDevices describes it. A task may ask for it as
// "greylag.dev/gpu=<index>" or "greylag.dev/gpu=<uuid>".
type GPU struct {
	Index int
	UUID  string
	Nodes []Node
}

// Node is a device file: where it is on the host, and where a task sees it.
type Node struct{ HostPath, Path string }

// WriteDevices replaces the CDI spec in dir by one for these GPUs; common nodes
// (nvidiactl, nvidia-uvm) come with any of them. Runtimes notice by themselves.
func WriteDevices(dir string, gpus []GPU, common []Node) error {
	spec := cdispecs.Spec{Version: "0.6.0", Kind: DeviceKind}
	spec.ContainerEdits.DeviceNodes = deviceNodes(common)
	for _, gpu := range gpus {
		edits := cdispecs.ContainerEdits{DeviceNodes: deviceNodes(gpu.Nodes)}
		spec.Devices = append(spec.Devices, cdispecs.Device{Name: strconv.Itoa(gpu.Index), ContainerEdits: edits})
		if gpu.UUID != "" {
			spec.Devices = append(spec.Devices, cdispecs.Device{Name: gpu.UUID, ContainerEdits: edits})
		}
	}
	data, err := json.MarshalIndent(spec, "", " ")
	if err != nil {
		return fmt.Errorf("describe devices: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("describe devices: %w", err)
	}
	path := filepath.Join(dir, "greylag.json")
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return fmt.Errorf("describe devices: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("describe devices: %w", err)
	}
	return nil
}

func deviceNodes(nodes []Node) []*cdispecs.DeviceNode {
	var list []*cdispecs.DeviceNode
	for _, node := range nodes {
		list = append(list, &cdispecs.DeviceNode{Path: node.Path, HostPath: node.HostPath, Permissions: "rw"})
	}
	return list
}

// deviceSpecs is a private CDI registry over some folders: never the one of
// this process, whose folders anyone may have filled.
type deviceSpecs struct {
	dirs []string

	mu    sync.Mutex
	cache *cdi.Cache
	seen  string // what the folders looked like when cache was filled
}

// inject adds devices to an OCI spec: nodes, cgroup rules and environment, and
// for an image also mounts and hooks; a host task has the driver's files
// already. Unknown devices are an error: nothing is ever started with fewer.
func (d *deviceSpecs) inject(spec *specs.Spec, devices []string, hostRoot bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refresh(); err != nil {
		return err
	}
	mounts, hooks := slices.Clone(spec.Mounts), spec.Hooks // a copy: injecting sorts in place
	unknown, err := d.cache.InjectDevices(spec, devices...)
	if err != nil {
		return fmt.Errorf("devices %s (unknown: %s): %w: %w",
			strings.Join(devices, " "), strings.Join(unknown, " "), runtime.ErrInvalid, err)
	}
	if hostRoot {
		spec.Mounts, spec.Hooks = mounts, hooks
	}
	return nil
}

// refresh reads the folders again where a file in them has changed.
func (d *deviceSpecs) refresh() error {
	seen, err := d.look()
	if err != nil {
		return err
	}
	if d.cache != nil && seen == d.seen {
		return nil
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(d.dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("device descriptions: %w", err)
	}
	d.cache, d.seen = cache, seen
	return nil
}

// look notes name, size and time of every file. O(files).
func (d *deviceSpecs) look() (string, error) {
	var b strings.Builder
	for _, dir := range d.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			return "", fmt.Errorf("device descriptions: %w", err)
		}
		for _, entry := range entries {
			info, err := entry.Info()
			if err != nil {
				continue // replaced since: its successor is in the next look
			}
			fmt.Fprintf(&b, "%s/%s %d %d %v\n", dir, entry.Name(), info.Size(), info.ModTime().UnixNano(), info.Mode()&fs.ModeType)
		}
	}
	return b.String(), nil
}
