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

// DeviceKind is the CDI vendor and class of the GPUs of this node.
const DeviceKind = "greylag.dev/gpu"

// GPU is a device for WriteDevices. A task requests it as "greylag.dev/gpu=<index>" or
// "greylag.dev/gpu=<uuid>".
type GPU struct {
	Index int
	UUID  string
	Nodes []Node
}

// Node is a device file, or a file of the driver: its path on the host and its path in a task.
type Node struct{ HostPath, Path string }

// WriteDevices replaces the CDI spec in dir by one for these GPUs. The common nodes (nvidiactl,
// nvidia-uvm) come with any of them, and the driver's files too in a task with an image. Runtimes notice the change.
func WriteDevices(dir string, gpus []GPU, common, driver []Node) error {
	spec := cdispecs.Spec{Version: "0.6.0", Kind: DeviceKind}
	spec.ContainerEdits.DeviceNodes = deviceNodes(common)
	for _, file := range driver {
		spec.ContainerEdits.Mounts = append(spec.ContainerEdits.Mounts, &cdispecs.Mount{
			HostPath: file.HostPath, ContainerPath: file.Path, Options: []string{"ro", "nosuid", "nodev", "bind"},
		})
	}
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

// deviceSpecs is a private CDI registry over some directories, never that of this process, whose
// directories other programs may fill.
type deviceSpecs struct {
	dirs []string

	mu    sync.Mutex
	cache *cdi.Cache
	seen  string // state of the directories when cache was filled
}

// inject adds devices to an OCI spec: nodes, cgroup rules and environment, and for an image also
// mounts and hooks. A task on the host's file system has the driver's files already. Unknown
// devices are an error: no task starts with fewer devices.
func (d *deviceSpecs) inject(spec *specs.Spec, devices []string, hostRoot bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refresh(); err != nil {
		return err
	}
	mounts, hooks := slices.Clone(spec.Mounts), spec.Hooks // a copy, since injecting sorts in place
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

// refresh reads the directories again after a change.
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

// look returns name, size and time of every file as text. O(files).
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
				continue // replaced meanwhile: the next look has the new file
			}
			fmt.Fprintf(&b, "%s/%s %d %d %v\n", dir, entry.Name(), info.Size(), info.ModTime().UnixNano(), info.Mode()&fs.ModeType)
		}
	}
	return b.String(), nil
}
