//go:build cgo && linux

package nvml

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/greylag/greylag/internal/gpu"
)

// Linked reports whether this program can use NVIDIA's library.
const Linked = true

// required lists the functions without which nothing is known about a GPU; every driver since 2020
// has them.
func required() []string {
	return []string{
		"nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
		"nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetPciInfo_v3",
	}
}

// library is the source that calls NVIDIA's library.
type library struct {
	mu      sync.Mutex // serializes calls, except the wait for events
	lib     nvml.Interface
	ready   bool
	known   []known // by index: the last answers of each device
	started chan struct{}
	begin   sync.Once
	now     func() time.Time
	pause   func(time.Duration)
}

// known is a device with its last answers.
type known struct {
	device  nvml.Device
	raw     gpu.RawDevice
	values  [2]values // by index of groups
	profile profile
	// instances are the handles of raw.Instances.
	instances []nvml.Device
}

func open() source { return newLibrary(nvml.New()) }

func newLibrary(lib nvml.Interface) *library {
	return &library{lib: lib, started: make(chan struct{}), now: time.Now, pause: time.Sleep}
}

// has reports whether the installed driver has a function. Calling a missing one ends the process.
func (l *library) has(symbol string) bool { return l.lib.Extensions().LookupSymbol(symbol) == nil }

// load initialises the library once it and a driver exist. found is false until then, as on a host
// without NVIDIA GPUs.
func (l *library) load() (found bool, err error) {
	if l.ready {
		return true, nil
	}
	switch ret := l.lib.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED:
		return false, nil
	default:
		return false, said("initialise NVML", ret)
	}
	for _, symbol := range required() {
		if !l.has(symbol) {
			return false, fmt.Errorf("the NVIDIA driver is too old: it lacks %s", symbol)
		}
	}
	l.ready = true
	return true, nil
}

func (l *library) inventory() (gpu.Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, err := l.load()
	if !found || err != nil {
		return gpu.Host{}, err
	}
	host := gpu.Host{Driver: "NVML"}
	if l.has("nvmlSystemGetDriverVersion") {
		if version, ret := l.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
			host.Driver = version
		}
	}
	count, ret := l.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return gpu.Host{}, said("count GPUs", ret)
	}
	answered := make([]bool, len(l.known))
	for i := range count {
		answered = l.look(i, answered)
	}
	for i := range l.known { // a device that existed and is no longer listed is lost, not absent
		if at := &l.known[i]; !answered[i] {
			at.device, at.raw.Lost = nil, true
			at.raw.Bad = cmp.Or(at.raw.Bad, "GPU is no longer listed")
		}
		host.Devices = append(host.Devices, l.known[i].raw)
	}
	l.begin.Do(func() { close(l.started) })
	return host, nil
}

// look queries the device that the driver lists at an index, and marks it as answered. One that does
// not answer keeps its last answers. When a device is lost, the driver may number the others again: a
// device keeps its first index.
func (l *library) look(index int, answered []bool) []bool {
	device, ret := l.lib.DeviceGetHandleByIndex(index)
	raw, err := gpu.RawDevice{}, error(nil)
	if ret != nvml.SUCCESS {
		err = said("GPU does not answer", ret)
	} else {
		raw, err = l.describe(device)
	}
	if err != nil {
		if index >= len(l.known) {
			l.known = append(l.known, known{raw: gpu.RawDevice{Index: int32(index), UUID: fmt.Sprintf("unknown-%d", index), Minor: -1}})
			answered = append(answered, false)
		}
		if !answered[index] {
			l.known[index].raw.Bad = err.Error()
		}
		return answered
	}
	i := slices.IndexFunc(l.known, func(k known) bool { return k.raw.UUID == raw.UUID })
	if i < 0 && index < len(l.known) && l.known[index].raw.UUID == fmt.Sprintf("unknown-%d", index) {
		i = index
	}
	if i < 0 {
		i, l.known, answered = len(l.known), append(l.known, known{}), append(answered, false)
	}
	raw.Index = int32(i)
	raw.Bad, raw.Pending = l.ailing(device)
	raw.Recovery, raw.Slow = l.recovery(device), l.slow(device)
	raw.MIG, raw.Instances, l.known[i].instances = l.instances(device)
	l.known[i].device, l.known[i].raw, answered[i] = device, raw, true
	return answered
}

func (l *library) describe(device nvml.Device) (raw gpu.RawDevice, err error) {
	var ret nvml.Return
	if raw.UUID, ret = device.GetUUID(); ret != nvml.SUCCESS {
		return raw, said("GPU does not report its UUID", ret)
	}
	if raw.Name, ret = device.GetName(); ret != nvml.SUCCESS {
		return raw, said("GPU does not report its name", ret)
	}
	memory, ret := device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return raw, said("GPU does not report its memory", ret)
	}
	raw.Memory = int64(min(memory.Total, 1<<62))
	minor, ret := device.GetMinorNumber()
	if ret != nvml.SUCCESS {
		return raw, said("GPU does not report its device file", ret)
	}
	raw.Minor = int32(minor)
	pci, ret := device.GetPciInfo()
	if ret != nvml.SUCCESS {
		return raw, said("GPU does not report its bus", ret)
	}
	raw.Bus = bus(pci)
	if l.has("nvmlDeviceGetSerial") {
		if serial, ret := device.GetSerial(); ret == nvml.SUCCESS { // some boards have none
			raw.Serial = serial
		}
	}
	raw.Cluster, raw.Clique = l.fabric(device)
	raw.Links = l.links(device)
	return raw, nil
}

// bus formats a PCI address as sysfs does.
func bus(pci nvml.PciInfo) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
}

// fabric returns the NVLink domain across hosts once the fabric manager has set it up; "" for none.
func (l *library) fabric(device nvml.Device) (cluster string, clique uint32) {
	if !l.has("nvmlDeviceGetGpuFabricInfo") {
		return "", 0
	}
	info, ret := device.GetGpuFabricInfo()
	if ret != nvml.SUCCESS || info.State != nvml.GPU_FABRIC_STATE_COMPLETED || info.ClusterUuid == [16]uint8{} {
		return "", 0
	}
	u := info.ClusterUuid
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), info.CliqueId
}

// links lists the other ends of a device's active NVLinks.
func (l *library) links(device nvml.Device) []string {
	if !l.has("nvmlDeviceGetNvLinkState") || !l.has("nvmlDeviceGetNvLinkRemotePciInfo_v2") {
		return nil
	}
	typed := l.has("nvmlDeviceGetNvLinkRemoteDeviceType")
	var ends []string
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := device.GetNvLinkState(link)
		if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT {
			break // no more links
		}
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		if typed {
			if kind, ret := device.GetNvLinkRemoteDeviceType(link); ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
				ends = append(ends, "switch")
				continue
			}
		}
		if pci, ret := device.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS {
			ends = append(ends, bus(pci))
		}
	}
	return ends
}

// ailing returns why a device that answers may not be used, "" if it may, and whether it sets memory
// rows or pages aside at its next reset.
func (l *library) ailing(device nvml.Device) (bad string, pending bool) {
	if l.has("nvmlDeviceGetRemappedRows") {
		if _, _, waits, failed, ret := device.GetRemappedRows(); ret == nvml.SUCCESS {
			if failed {
				return "memory rows could not be remapped: replace the GPU", waits
			}
			pending = waits
		}
	}
	if l.has("nvmlDeviceGetRetiredPagesPendingStatus") {
		waits, ret := device.GetRetiredPagesPendingStatus()
		pending = pending || ret == nvml.SUCCESS && waits == nvml.FEATURE_ENABLED
	}
	return "", pending
}

// recovery returns the driver's recovery action for a device; nil if the driver has none.
func (l *library) recovery(device nvml.Device) *gpu.Recovery {
	if !l.has("nvmlDeviceGetFieldValues") {
		return nil
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if device.GetFieldValues(values) != nvml.SUCCESS {
		return nil
	}
	n, known := number(values[0])
	if !known || n < 0 || n > 255 {
		return nil
	}
	action := gpu.Recovery(n)
	return &action
}

// slow returns why a device works below its specification; "" if it does not.
func (l *library) slow(device nvml.Device) string {
	if l.has("nvmlDeviceGetGpuFabricInfo") {
		info, ret := device.GetGpuFabricInfo()
		if ret == nvml.SUCCESS && (info.State == nvml.GPU_FABRIC_STATE_NOT_STARTED || info.State == nvml.GPU_FABRIC_STATE_IN_PROGRESS) {
			return fmt.Sprintf("its NVLink fabric is not set up (state %d): check nvidia-fabricmanager", info.State)
		}
		if ret == nvml.SUCCESS && info.State == nvml.GPU_FABRIC_STATE_COMPLETED && info.Status != uint32(nvml.SUCCESS) {
			return fmt.Sprintf("the fabric manager failed to register it: NVML error %d", info.Status)
		}
	}
	if !l.has("nvmlDeviceGetCurrPcieLinkWidth") || !l.has("nvmlDeviceGetMaxPcieLinkWidth") {
		return ""
	}
	width, ret := device.GetCurrPcieLinkWidth()
	most, ret2 := device.GetMaxPcieLinkWidth()
	if ret == nvml.SUCCESS && ret2 == nvml.SUCCESS && width > 0 && width < most {
		return fmt.Sprintf("its PCIe link has %d of %d lanes", width, most)
	}
	return ""
}

func (l *library) processes(uuids []string) ([]gpu.Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := map[string]bool{}
	for _, uuid := range uuids {
		wanted[uuid] = true
	}
	var users []gpu.Process
	for i := range l.known {
		for uuid, device := range l.known[i].devices() {
			if !wanted[uuid] {
				continue
			}
			found, err := l.usersOf(uuid, device)
			if err != nil {
				return nil, err
			}
			users = append(users, found...)
		}
	}
	return users, nil
}

// devices iterates over a device and its instances.
func (at *known) devices() iter.Seq2[string, nvml.Device] {
	return func(yield func(string, nvml.Device) bool) {
		if at.device == nil || !yield(at.raw.UUID, at.device) {
			return
		}
		for i, device := range at.instances {
			if !yield(at.raw.Instances[i].UUID, device) {
				return
			}
		}
	}
}

// usersOf lists the processes of a GPU or of an instance.
func (l *library) usersOf(uuid string, device nvml.Device) (users []gpu.Process, err error) {
	for symbol, list := range map[string]func() ([]nvml.ProcessInfo, nvml.Return){
		"nvmlDeviceGetComputeRunningProcesses":    device.GetComputeRunningProcesses,
		"nvmlDeviceGetGraphicsRunningProcesses":   device.GetGraphicsRunningProcesses,
		"nvmlDeviceGetMPSComputeRunningProcesses": device.GetMPSComputeRunningProcesses,
	} {
		if !l.has(symbol) && !l.has(symbol+"_v2") && !l.has(symbol+"_v3") {
			continue
		}
		infos, ret := list()
		if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
			return nil, said("list processes of GPU "+uuid, ret)
		}
		for _, info := range infos {
			users = append(users, gpu.Process{UUID: uuid, PID: int(info.Pid)})
		}
	}
	return users, nil
}

// memory returns the memory of devices that is in use, without what the driver reserves. Drivers before 510,
// which do not distinguish the two, and devices that do not report it are left out.
func (l *library) memory(uuids []string) map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := map[string]int64{}
	for _, at := range l.known {
		if at.device == nil || !slices.Contains(uuids, at.raw.UUID) || !l.has("nvmlDeviceGetMemoryInfo_v2") {
			continue
		}
		if memory, ret := at.device.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
			used[at.raw.UUID] = int64(min(memory.Used, 1<<62))
		}
	}
	return used
}

// loads queries how busy devices are, and their other values when they are due. What one does not
// report (parts of a board, some boards, a lost one) is unknown.
func (l *library) loads(uuids []string) []gpu.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []gpu.Load
	for i := range l.known {
		at := &l.known[i]
		for j, instance := range at.instances { // the driver knows no more of them
			if uuid := at.raw.Instances[j].UUID; slices.Contains(uuids, uuid) {
				all = append(all, gpu.Load{UUID: uuid, Memory: l.taken(instance)})
			}
		}
		if at.device == nil || !slices.Contains(uuids, at.raw.UUID) {
			continue
		}
		load := gpu.Load{UUID: at.raw.UUID, Memory: l.taken(at.device), Values: l.measure(at, time.Now())}
		if l.has("nvmlDeviceGetUtilizationRates") {
			if rates, ret := at.device.GetUtilizationRates(); ret == nvml.SUCCESS {
				busy := int64(min(rates.Gpu, 100))
				load.Busy = &busy
			}
		}
		all = append(all, load)
	}
	return all
}

// taken returns the used memory of a device, without what the driver reserves if it reports that;
// nil if unknown.
func (l *library) taken(device nvml.Device) *int64 {
	var bytes int64
	if l.has("nvmlDeviceGetMemoryInfo_v2") {
		if memory, ret := device.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
			bytes = int64(min(memory.Used, 1<<62))
			return &bytes
		}
	}
	memory, ret := device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return nil
	}
	bytes = int64(min(memory.Used, 1<<62))
	return &bytes
}

// interesting lists the events to wait for, if a device has them.
const interesting = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError |
	nvml.EventTypeNonFatalPoisonError | nvml.EventTypeFatalPoisonError |
	nvml.EventTypeGpuUnavailableError | nvml.EventTypeGpuRecoveryAction

// noInstance is the least number that stands for no instance in an event.
const noInstance = 0xffff

func (l *library) watch(report func(*gpu.RawEvent)) {
	beat := time.NewTicker(gpu.Beat * time.Second)
	defer beat.Stop()
	for waiting := true; waiting; { // for the first inventory that finds a driver
		select {
		case <-l.started:
			waiting = false
		case <-beat.C:
			report(nil)
		}
	}
	set, devices := l.subscribe()
	var events gpu.Coalescer
	var beaten time.Time
	for {
		now := time.Now()
		for _, e := range events.Due(now) {
			report(&e)
		}
		if now.Sub(beaten) >= time.Second { // not for each of thousands of events
			report(nil)
			beaten = now
		}
		if set == nil { // a driver without events
			<-beat.C
			continue
		}
		data, ret := set.Wait(gpu.Beat * 1000)
		e := gpu.RawEvent{UUID: devices[data.Device], Type: data.EventType, Data: data.EventData}
		if data.GpuInstanceId < noInstance {
			e.Instance = data.GpuInstanceId + 1
		}
		switch ret {
		case nvml.SUCCESS:
		case nvml.ERROR_TIMEOUT:
			continue
		case nvml.ERROR_GPU_IS_LOST:
			<-beat.C // it repeats immediately
			e.Type, e.Data = nvml.EventTypeXidCriticalError, 79
		default:
			<-beat.C
			continue
		}
		if events.Add(time.Now(), e) {
			report(&e)
		}
	}
}

// subscribe subscribes to the events of all devices; nil if there are none.
func (l *library) subscribe() (nvml.EventSet, map[nvml.Device]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, symbol := range []string{"nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"} {
		if !l.has(symbol) {
			return nil, nil
		}
	}
	set, ret := l.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, nil
	}
	devices := map[nvml.Device]string{}
	for _, at := range l.known {
		if at.device == nil {
			continue
		}
		types, ret := at.device.GetSupportedEventTypes()
		if ret != nvml.SUCCESS || types&interesting == 0 {
			continue
		}
		if at.device.RegisterEvents(types&interesting, set) == nvml.SUCCESS {
			devices[at.device] = at.raw.UUID
		}
	}
	return set, devices
}

func said(what string, ret nvml.Return) error { return fmt.Errorf("%s: NVML error %d", what, int(ret)) }
