package gpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/pkg/cluster"
)

// ErrUndivided means that GPUs cannot be divided into MIG instances as configured.
var ErrUndivided = errors.New("GPUs are not divided as configured")

// Layouts are the MIG profiles into which GPUs are divided, by the index of the GPU among the GPUs of the
// node. AllGPUs stands for those that are not named.
type Layouts map[int32][]string

// AllGPUs is the index of the layout of every GPU of the node.
const AllGPUs = -1

// of returns the layout of a GPU; nil: it is not divided by us.
func (l Layouts) of(index int32) []string {
	if layout := l[index]; layout != nil {
		return layout
	}
	return l[AllGPUs]
}

// SetLayouts sets the layouts, before any other call.
func (h *Helper) SetLayouts(layouts Layouts) { h.layouts = layouts }

// undivided returns why GPUs are not divided as configured; "" if they are.
func undivided(devices []RawDevice, layouts Layouts) string {
	if len(layouts) > 0 && len(devices) == 0 {
		return "MIG is configured, and the node has no GPUs: check the driver"
	}
	for _, index := range slices.Sorted(maps.Keys(layouts)) {
		if int(index) >= len(devices) {
			return fmt.Sprintf("a MIG layout is configured for GPU %d, which the node does not have", index)
		}
	}
	for i := range devices {
		d := &devices[i]
		layout := layouts.of(d.Index)
		switch {
		case layout != nil && !d.Lost && d.Minor >= 0 && !d.HasLayout(layout):
			return fmt.Sprintf("GPU %d is not divided into %s: it has %s", d.Index, strings.Join(layout, ", "), d.division())
		case layout == nil && d.MIG && len(d.Instances) == 0:
			return fmt.Sprintf("GPU %d is in MIG mode without an instance: configure its layout, or run nvidia-smi -i %d -mig 0", d.Index, d.Index)
		}
	}
	return ""
}

// HasLayout reports whether a GPU has exactly these instances.
func (d *RawDevice) HasLayout(layout []string) bool {
	var have []string
	for _, x := range d.Instances {
		have = append(have, x.Profile)
	}
	slices.Sort(have)
	return d.MIG && slices.Equal(have, slices.Sorted(slices.Values(layout)))
}

// division describes the instances of a GPU.
func (d *RawDevice) division() string {
	var names []string
	for _, x := range d.Instances {
		names = append(names, x.Profile)
	}
	switch {
	case len(names) > 0:
		return strings.Join(names, ", ")
	case d.MIG:
		return "no instances"
	}
	return "no MIG mode"
}

// Divide implements Divider.
func (h *Helper) Divide(ctx context.Context) (changed bool, err error) {
	if len(h.layouts) == 0 {
		return false, nil
	}
	inventory, err := h.call(ctx, Request{Op: "inventory"}, h.limits.Inventory)
	if err != nil {
		return false, err
	}
	request := Request{Op: "divide", Layouts: map[int32][]string{}}
	if inventory.Host != nil {
		for i := range inventory.Host.Devices {
			d := &inventory.Host.Devices[i]
			if layout := h.layouts.of(d.Index); layout != nil && !d.Lost && !d.HasLayout(layout) {
				request.Layouts[d.Index] = layout
			}
		}
	}
	if len(request.Layouts) == 0 {
		return false, nil
	}
	reply, err := h.callRaw(ctx, request, h.limits.Divide)
	if err == nil && reply.Error != "" {
		err = fmt.Errorf("%w: %s", ErrUndivided, reply.Error)
	}
	return reply.Changed, err
}

// instanceOf returns an instance of a GPU as a device. It has the bus, the memory controller and the faults
// of the GPU, and no NVLink.
func (h *Helper) instanceOf(parent *Device, raw *RawInstance) Device {
	d := *parent
	d.UUID, d.Parent, d.Instance = raw.UUID, parent.UUID, raw.GPU+1
	d.GPU.Type, d.Memory, d.Domain, d.Links = raw.Profile, cluster.Bytes(raw.Memory), "", 0
	d.ParentType, d.Share = parent.Type, cluster.MIGShare(raw.Profile, d.Memory, parent.Memory)
	files, err := instanceFiles(h.root, parent.Minor, raw)
	if err != nil && d.Fault == "" {
		d.Fault = err.Error()
	}
	d.Files = append(slices.Clone(parent.Files), files...)
	return d
}
