//go:build cgo && linux

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/pkg/cluster"
)

// migFunctions are the functions that dividing a GPU needs.
func migFunctions() []string {
	return []string{
		"nvmlDeviceGetMigMode", "nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
		"nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlDeviceGetGpuInstances", "nvmlGpuInstanceDestroy",
		"nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceGetComputeInstances", "nvmlGpuInstanceCreateComputeInstance", "nvmlComputeInstanceDestroy",
		"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
	}
}

const (
	// holdPatience is how long a monitoring program may hold an instance that is to be destroyed.
	holdPatience = 10 * time.Second
	holdPause    = 500 * time.Millisecond
)

// hasMIG reports whether the driver has all functions of MIG.
func (l *library) hasMIG() bool {
	return !slices.ContainsFunc(migFunctions(), func(symbol string) bool { return !l.has(symbol) })
}

// instances returns whether a GPU is in MIG mode, and its compute instances with their handles.
func (l *library) instances(device nvml.Device) (mode bool, list []gpu.RawInstance, handles []nvml.Device) {
	if !l.hasMIG() {
		return false, nil, nil
	}
	if now, _, ret := device.GetMigMode(); ret != nvml.SUCCESS || now != nvml.DEVICE_MIG_ENABLE {
		return false, nil, nil
	}
	most, ret := device.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return true, nil, nil
	}
	for i := range most {
		handle, ret := device.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS { // ERROR_NOT_FOUND: no instance has this index
			continue
		}
		uuid, ret1 := handle.GetUUID()
		name, ret2 := handle.GetName()
		instance, ret3 := handle.GetGpuInstanceId()
		compute, ret4 := handle.GetComputeInstanceId()
		memory, ret5 := handle.GetMemoryInfo()
		if cmp.Or(ret1, ret2, ret3, ret4, ret5) != nvml.SUCCESS {
			continue
		}
		list = append(list, gpu.RawInstance{
			UUID: uuid, Profile: profileOf(name), Memory: int64(min(memory.Total, 1<<62)), GPU: uint32(instance), Compute: uint32(compute),
		})
		handles = append(handles, handle)
	}
	return true, list, handles
}

// profileOf returns the profile at the end of a name, such as "NVIDIA H100 80GB HBM3 MIG 1g.10gb".
func profileOf(name string) string {
	_, profile, _ := strings.Cut(name, "MIG ")
	return strings.ToLower(cmp.Or(strings.TrimSpace(profile), "mig"))
}

// divide gives GPUs their instances. It reports whether it changed anything.
func (l *library) divide(layouts map[int32][]string) (changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found, err := l.load(); err != nil || !found {
		return false, cmp.Or(err, errors.New("there is no driver"))
	}
	if !l.hasMIG() {
		return false, errors.New("the NVIDIA driver is too old for MIG")
	}
	for _, index := range slices.Sorted(maps.Keys(layouts)) {
		if int(index) >= len(l.known) || l.known[index].device == nil {
			return changed, fmt.Errorf("GPU %d does not exist or does not answer", index)
		}
		did, err := l.divideOne(&l.known[index], layouts[index])
		changed = changed || did
		if err != nil {
			return changed, fmt.Errorf("GPU %d: %w", index, err)
		}
	}
	return changed, nil
}

// divideOne gives one GPU its instances. It removes what it made if a step fails.
func (l *library) divideOne(at *known, layout []string) (changed bool, err error) {
	if pid := l.user(at); pid != 0 {
		return false, fmt.Errorf("cannot change its MIG instances: process %s uses it", processName(pid))
	}
	mode, _, ret := at.device.GetMigMode()
	if ret != nvml.SUCCESS {
		return false, said("it has no MIG", ret)
	}
	if mode != nvml.DEVICE_MIG_ENABLE {
		var now nvml.Return
		if err := l.patiently(at, "enable MIG", func() nvml.Return {
			now, ret = at.device.SetMigMode(nvml.DEVICE_MIG_ENABLE)
			return cmp.Or(ret, now)
		}); err != nil {
			return false, err
		}
	}
	profiles := l.profilesOf(at.device)
	slots := make([]cluster.MIGSlots, len(profiles))
	for i, p := range profiles {
		slots[i] = p.slots
	}
	places, err := cluster.PlaceMIG(slots, layout)
	if err != nil {
		return mode != nvml.DEVICE_MIG_ENABLE, err
	}
	if err := l.destroyAll(at, profiles); err != nil {
		return true, err
	}
	for _, place := range places {
		i := slices.IndexFunc(profiles, func(p migProfile) bool { return p.slots.Profile == place.Profile })
		if err := l.create(at, &profiles[i], place); err != nil {
			return true, errors.Join(err, l.destroyAll(at, profiles))
		}
	}
	at.raw.MIG, at.raw.Instances, at.instances = l.instances(at.device)
	return true, nil
}

// migProfile is a profile that a GPU has.
type migProfile struct {
	info  nvml.GpuInstanceProfileInfo
	slots cluster.MIGSlots
}

// profilesOf returns the profiles of a GPU in MIG mode with the places that the driver has for them.
func (l *library) profilesOf(device nvml.Device) (list []migProfile) {
	for id := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		v, ret := device.GetGpuInstanceProfileInfoV(id).V2()
		if ret != nvml.SUCCESS {
			continue
		}
		var name []byte
		for _, c := range v.Name {
			if c == 0 {
				break
			}
			name = append(name, byte(c))
		}
		p := migProfile{slots: cluster.MIGSlots{Profile: profileOf(string(name))}, info: nvml.GpuInstanceProfileInfo{
			Id: v.Id, SliceCount: v.SliceCount, InstanceCount: v.InstanceCount, MemorySizeMB: v.MemorySizeMB,
		}}
		places, ret := device.GetGpuInstancePossiblePlacements(&p.info)
		if ret != nvml.SUCCESS || len(places) == 0 {
			continue
		}
		for _, place := range places {
			p.slots.Size = place.Size
			p.slots.Starts = append(p.slots.Starts, place.Start)
		}
		slices.Sort(p.slots.Starts)
		list = append(list, p)
	}
	return list
}

// destroyAll destroys all instances of a GPU: compute instances first.
func (l *library) destroyAll(at *known, profiles []migProfile) error {
	for _, p := range profiles {
		instances, ret := at.device.GetGpuInstances(&p.info)
		if ret != nvml.SUCCESS {
			return said("list its instances", ret)
		}
		for _, instance := range instances {
			for id := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
				info, ret := instance.GetComputeInstanceProfileInfo(id, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
				if ret != nvml.SUCCESS {
					continue
				}
				computes, ret := instance.GetComputeInstances(&info)
				if ret != nvml.SUCCESS {
					return said("list its compute instances", ret)
				}
				for _, compute := range computes {
					if err := l.patiently(at, "destroy a compute instance", compute.Destroy); err != nil {
						return err
					}
				}
			}
			if err := l.patiently(at, "destroy an instance", instance.Destroy); err != nil {
				return err
			}
		}
	}
	return nil
}

// create creates an instance with one compute instance that has all of it.
func (l *library) create(at *known, p *migProfile, place cluster.MIGPlace) error {
	var instance nvml.GpuInstance
	err := l.patiently(at, "create "+place.String(), func() (ret nvml.Return) {
		instance, ret = at.device.CreateGpuInstanceWithPlacement(&p.info, &nvml.GpuInstancePlacement{Start: place.Start, Size: place.Size})
		return ret
	})
	if err != nil {
		return err
	}
	for id := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := instance.GetComputeInstanceProfileInfo(id, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS || info.SliceCount != p.info.SliceCount {
			continue
		}
		return l.patiently(at, "create the compute instance of "+place.String(), func() nvml.Return {
			_, ret := instance.CreateComputeInstance(&info)
			return ret
		})
	}
	return fmt.Errorf("%s has no compute profile of its size", place)
}

// patiently repeats a call while something holds the GPU. It names the holder in the end.
func (l *library) patiently(at *known, what string, call func() nvml.Return) error {
	for began := l.now(); ; l.pause(holdPause) {
		ret := call()
		switch {
		case ret == nvml.SUCCESS:
			return nil
		case ret == nvml.ERROR_RESET_REQUIRED || ret == nvml.ERROR_NOT_READY:
			return fmt.Errorf("cannot %s: the GPU must be reset first: nvidia-smi -i %d -r", what, at.raw.Index)
		case ret != nvml.ERROR_IN_USE:
			return said("cannot "+what, ret)
		case l.now().Sub(began) >= holdPatience:
			return fmt.Errorf("cannot %s: it is in use by %s", what, holders("/proc", at.raw.Minor))
		}
	}
}

// user returns a process that uses a GPU or an instance of it; 0 for none.
func (l *library) user(at *known) int {
	for _, device := range append([]nvml.Device{at.device}, at.instances...) {
		infos, ret := device.GetComputeRunningProcesses()
		if ret == nvml.SUCCESS && len(infos) > 0 {
			return int(infos[0].Pid)
		}
	}
	return 0
}

// holders names the other processes that have files of a GPU or of its instances open.
func holders(proc string, minor int32) string {
	entries, _ := os.ReadDir(proc) // unreadable: none is found
	var names []string
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		files, _ := os.ReadDir(filepath.Join(proc, entry.Name(), "fd")) // it may have ended
		for _, file := range files {
			path, _ := os.Readlink(filepath.Join(proc, entry.Name(), "fd", file.Name()))
			if path == "/dev/nvidia"+strconv.Itoa(int(minor)) || strings.HasPrefix(path, "/dev/nvidia-caps/") {
				names = append(names, processName(pid))
				break
			}
		}
	}
	if len(names) == 0 {
		return "a program that holds none of its files, such as nvidia-persistenced or a monitor"
	}
	return "process " + strings.Join(names, ", ")
}

// processName returns the number of a process with its name.
func processName(pid int) string {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil {
		return strconv.Itoa(pid)
	}
	return fmt.Sprintf("%d (%s)", pid, strings.TrimSpace(string(name)))
}
