package gpu

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/simgpu"
	"github.com/greylag/greylag/pkg/cluster"
)

// Simulated is the provider of simulated GPUs. Each is a character device; the kernel decides
// whether a task may open it.
type Simulated struct {
	node   string
	dir    string
	first  int // skipped devices, which other nodes on this machine have
	groups []Group

	layouts Layouts

	mu      sync.Mutex
	made    *Inventory
	numbers map[string]uint64 // device number by UUID, for those with a device file

	counters map[string]*simulatedCounters // by UUID
}

// Group is a number of equal simulated GPUs.
type Group struct {
	Count  int
	Type   string
	Memory cluster.Bytes
	Domain string // NVLink domain; "" means the node's own
}

// NewSimulated returns a provider for the named node that creates device files in dir.
func NewSimulated(node, dir string, groups []Group) *Simulated {
	return NewSimulatedAfter(node, dir, 0, groups)
}

// NewSimulatedAfter is NewSimulated for one of several nodes on one machine. It skips the first
// devices, which other nodes have, so that the kernel distinguishes the nodes' GPUs. Indexes begin
// at 0.
func NewSimulatedAfter(node, dir string, first int, groups []Group) *Simulated {
	return &Simulated{node: node, dir: dir, first: first, groups: groups, counters: map[string]*simulatedCounters{}}
}

// SetLayouts sets the layouts of the GPUs by index, before any other call. The GPUs are divided when they are
// first listed, unless FaultsFile has a line "INDEX undivided".
func (s *Simulated) SetLayouts(layouts Layouts) { s.layouts = layouts }

// Inventory creates the device files once. Without root the devices have no files, which suffices
// for a runtime without isolation.
func (s *Simulated) Inventory(context.Context) (Inventory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == nil {
		inventory, err := s.makeAll()
		if err != nil {
			return Inventory{}, err
		}
		s.made = &inventory
	}
	return s.withFaults(*s.made), nil
}

// withFaults returns the inventory with the faults of FaultsFile.
func (s *Simulated) withFaults(inventory Inventory) Inventory {
	faults := readFaults(s.dir)
	inventory.Devices = slices.Clone(inventory.Devices)
	for i := range inventory.Devices {
		d, at := &inventory.Devices[i], strconv.Itoa(i)
		if d.Parent == "" && s.layouts.of(d.Minor) != nil {
			inventory.Undivided = fmt.Sprintf("GPU %d is not divided", d.Minor)
			if faults[simulatedFault{strconv.Itoa(int(d.Minor)), undividedFault}] {
				inventory.Undivided += ": it is in use by process 1 (simulated)"
			}
		}
		d.Pending, d.Judged = faults[simulatedFault{at, "remap"}], true
		if faults[simulatedFault{at, "lost"}] {
			d.Lost, d.Fault = true, "GPU does not answer"
		}
		for fault := range faults {
			if action, is := strings.CutPrefix(fault.fault, "recovery"); is && fault.index == at {
				n, _ := strconv.ParseUint(action, 10, 8) // 0 for no number
				d.Recovery = Recovery(n)
			}
		}
	}
	return inventory
}

func (s *Simulated) makeAll() (Inventory, error) {
	inventory, files := Inventory{Driver: "simulated"}, 0
	faults := readFaults(s.dir)
	index := 0
	for _, group := range s.groups {
		for range group.Count {
			whole := s.device(index, group)
			layout := s.layouts.of(int32(index))
			if layout == nil || faults[simulatedFault{strconv.Itoa(index), undividedFault}] {
				inventory.add(whole)
			} else {
				for _, x := range s.instances(&whole, layout) {
					inventory.add(x)
				}
				files += 2 * len(layout)
			}
			index, files = index+1, files+1
		}
	}
	made, err := simgpu.CreateFrom(s.dir, s.first, files)
	if errors.Is(err, simgpu.ErrPermission) {
		return inventory, nil
	}
	if err != nil {
		return Inventory{}, err
	}
	s.give(inventory.Devices, made, index)
	return inventory, nil
}

// undividedFault is the fault of a GPU that cannot be divided.
const undividedFault = "undivided"

// instances returns the instances of a GPU, by their places as on a real one.
func (s *Simulated) instances(whole *Device, layout []string) (list []Device) {
	for _, model := range cluster.MIGModels() {
		places, err := cluster.PlaceMIG(model, layout)
		if err != nil {
			continue
		}
		for i, place := range places {
			d := *whole
			d.UUID = fmt.Sprintf("MIG-%s-%d", whole.UUID[len("GPU-"):], i+1)
			d.Parent, d.Instance, d.Domain = whole.UUID, uint32(i)+2, ""
			d.GPU.Type, d.Memory = place.Profile, cluster.MIGMemory(place.Profile)
			d.ParentType, d.Share = whole.GPU.Type, cluster.MIGShare(place.Profile, d.Memory, whole.Memory)
			list = append(list, d)
		}
		break
	}
	return list
}

// give gives devices their files: the first n files are those of the GPUs, and each instance has two more.
func (s *Simulated) give(devices []Device, files []simgpu.Device, n int) {
	s.numbers = map[string]uint64{}
	next := n
	take := func() (simgpu.Device, string) {
		next++
		return files[next-1], "/dev/nvidia-caps/nvidia-cap" + strconv.Itoa(next-n)
	}
	for i := range devices {
		d := &devices[i]
		own := files[d.Minor]
		d.Files = []File{{Host: own.Path, Task: "/dev/nvidia" + strconv.Itoa(int(d.Minor))}}
		if d.Parent != "" {
			for range 2 { // of the GPU instance, and of its compute instance
				file, path := take()
				d.Files, own = append(d.Files, File{Host: file.Path, Task: path}), file
			}
		}
		s.numbers[d.UUID] = own.Number()
	}
}

// Divide implements Divider: it divides GPUs that could not be divided before.
func (s *Simulated) Divide(ctx context.Context) (changed bool, err error) {
	inventory, err := s.Inventory(ctx)
	if err != nil || inventory.Undivided == "" {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for fault := range readFaults(s.dir) {
		if fault.fault == undividedFault {
			return false, fmt.Errorf("%w: %s", ErrUndivided, inventory.Undivided)
		}
	}
	s.made = nil
	return true, nil
}

func (s *Simulated) device(index int, group Group) Device {
	sum := sha256.Sum256([]byte(s.node + "/" + strconv.Itoa(index)))
	domain := group.Domain
	if domain == "" {
		domain = s.node
	}
	return Device{Product: "Simulated " + strings.ToUpper(group.Type), GPU: cluster.GPU{
		Index: int32(index), Type: group.Type, Memory: group.Memory, Minor: int32(index), NUMA: -1, Domain: domain,
		UUID: fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]),
	}}
}

// simulatedPoll is the interval at which Watch reads FaultsFile.
const simulatedPoll = 250 * time.Millisecond

// Watch reports the errors that appear in FaultsFile.
func (s *Simulated) Watch(ctx context.Context, report func(Event)) error {
	ticker := time.NewTicker(simulatedPoll)
	defer ticker.Stop()
	for before := map[simulatedFault]bool{}; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		faults := readFaults(s.dir)
		for fault := range faults {
			if e, is := s.errorOf(fault); is && !before[fault] {
				report(e)
			}
		}
		before = faults
	}
}

// errorOf returns the event of a line of FaultsFile; false if it has none.
func (s *Simulated) errorOf(fault simulatedFault) (Event, bool) {
	text, is := strings.CutPrefix(fault.fault, "xid")
	number, err := strconv.Atoi(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err2 := strconv.Atoi(fault.index)
	if !is || err != nil || err2 != nil || s.made == nil || i < 0 || i >= len(s.made.Devices) {
		return Event{}, false
	}
	d := &s.made.Devices[i]
	e := Event{UUID: d.UUID, Count: 1}
	if d.Parent != "" { // as the driver reports it
		e.UUID, e.Instance = d.Parent, d.Instance
	}
	return e.withXID(number), true
}

// InUse returns no processes: a task's open devices are closed when its processes end. Memory is in use as
// FaultsFile says.
func (s *Simulated) InUse(_ context.Context, uuids []string) (InUse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	use := InUse{Memory: map[string]int64{}}
	if s.made == nil {
		return use, nil
	}
	for fault := range readFaults(s.dir) {
		mib, is := strings.CutPrefix(fault.fault, "memory")
		i, err := strconv.Atoi(fault.index)
		if is && err == nil && i >= 0 && i < len(s.made.Devices) && slices.Contains(uuids, s.made.Devices[i].UUID) {
			n, _ := strconv.ParseUint(mib, 10, 20) // 0 for no number
			use.Memory[s.made.Devices[i].UUID] = int64(n) << 20
		}
	}
	return use, nil
}

// Loads reports a device as busy while a process of its task has it open. Without device files that is
// unknown. Simulated devices have no memory; their other values follow from what they do and from the
// faults in FaultsFile.
func (s *Simulated) Loads(_ context.Context, held []DeviceSet) ([]Load, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	faults, index := readFaults(s.dir), map[string]string{}
	if s.made != nil {
		for _, d := range s.made.Devices {
			index[d.UUID] = strconv.Itoa(int(d.Index))
		}
	}
	var loads []Load
	for _, h := range held {
		open, known := openBy(h)
		for _, uuid := range h.UUIDs {
			at, made := index[uuid]
			if !made {
				continue
			}
			number, file := s.numbers[uuid]
			state := simulatedState{
				busy: file && open[number], ecc: faults[simulatedFault{at, "ecc"}],
				remap: faults[simulatedFault{at, "remap"}], throttle: faults[simulatedFault{at, "throttle"}],
			}
			load := Load{UUID: uuid, Values: s.values(uuid, state)}
			if known && file {
				load.Busy = new(int64)
			}
			if state.busy {
				*load.Busy = 100
			}
			loads = append(loads, load)
		}
	}
	return loads, nil
}

// openBy returns the device numbers that the processes of a task have open, if those are known.
func openBy(h DeviceSet) (open map[uint64]bool, known bool) {
	if h.PIDs == nil {
		return nil, false
	}
	pids, err := h.PIDs()
	if err != nil {
		return nil, false
	}
	return simgpu.OpenBy(pids), true
}
