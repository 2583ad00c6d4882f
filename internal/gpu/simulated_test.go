package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/greylag/greylag/internal/simgpu"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestSimulatedNodesOnOneMachine checks that the kernel distinguishes their GPUs by device number.
func TestSimulatedNodesOnOneMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: without it there are no device files")
	}
	groups := []Group{{Count: 2, Type: "h100"}}
	numbers := map[uint64]string{}
	for i, node := range []string{"n1", "n2", "n3"} {
		inventory, err := NewSimulatedAfter(node, folder(t), i*2, groups).Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range inventory.Devices {
			info, err := os.Stat(d.Files[0].Host)
			if err != nil {
				t.Fatal(err)
			}
			number := uint64(info.Sys().(*syscall.Stat_t).Rdev)
			if numbers[number] != "" {
				t.Errorf("device %x is %s's and %s's", number, numbers[number], node)
			}
			numbers[number] = node
		}
	}
}

func TestSimulatedInventory(t *testing.T) {
	groups := []Group{
		{Count: 2, Type: "h100", Memory: 80 * cluster.GiB},
		{Count: 1, Type: "t4", Memory: 16 * cluster.GiB, Domain: "rack1"},
	}
	first, err := NewSimulated("n1", folder(t), groups).Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := NewSimulated("n1", folder(t), groups).Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSimulated("n2", folder(t), groups).Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Devices) != 3 {
		t.Fatalf("%d devices", len(first.Devices))
	}
	for i, d := range first.Devices {
		if d.Index != int32(i) || d.UUID != again.Devices[i].UUID || d.UUID == other.Devices[i].UUID {
			t.Errorf("device %d: %+v, again %+v, on another node %+v", i, d, again.Devices[i], other.Devices[i])
		}
		if os.Geteuid() != 0 {
			continue // without root there are no device files
		}
		if len(d.Files) != 1 {
			t.Fatalf("device %d has %d files", i, len(d.Files))
		}
		if info, err := os.Stat(d.Files[0].Host); err != nil || info.Mode()&os.ModeCharDevice == 0 {
			t.Errorf("device %d is no character device: %v", i, err)
		}
	}
	if d := first.Devices; d[0].Domain != "n1" || d[2].Domain != "rack1" || d[2].Type != "t4" || d[0].Memory != 80*cluster.GiB {
		t.Errorf("%+v", d)
	}
}

// TestSimulatedLoads checks that a device is busy while its task has it open, and unknown if that
// cannot be determined.
func TestSimulatedLoads(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: without it there are no device files")
	}
	gpus := NewSimulated("n1", folder(t), []Group{{Count: 3, Type: "h100"}})
	inventory, err := gpus.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var uuids []string
	for _, d := range inventory.Devices {
		uuids = append(uuids, d.UUID)
	}
	self := func() ([]int, error) { return []int{os.Getpid(), 1 << 30}, nil }
	noUsers := func() ([]int, error) { return nil, nil }
	loads := func(held ...DeviceSet) string {
		list, err := gpus.Loads(t.Context(), held)
		if err != nil {
			t.Fatal(err)
		}
		var text string
		for _, l := range list {
			if l.Memory != nil {
				t.Errorf("memory of %s is %d", l.UUID, *l.Memory)
			}
			if l.Busy != nil {
				text += fmt.Sprint(slices.Index(uuids, l.UUID), ":", *l.Busy, " ")
			}
		}
		return text
	}
	file, err := os.Open(inventory.Devices[1].Files[0].Host)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		held []DeviceSet
	}{
		{"0:0 1:100 2:0 ", []DeviceSet{{uuids, self}}},
		{"1:0 2:0 ", []DeviceSet{{uuids[1:], noUsers}}},
		{"2:0 ", []DeviceSet{{uuids[:2], nil}, {uuids[2:], self}}},
		{"0:0 ", []DeviceSet{{uuids[1:], func() ([]int, error) { return nil, os.ErrPermission }}, {uuids[:1], self}}},
		{"", []DeviceSet{{[]string{"another"}, self}}},
	} {
		if got := loads(c.held...); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if got := loads(DeviceSet{uuids, self}); got != "0:0 1:0 2:0 " {
		t.Errorf("after it was closed: %q", got)
	}
}

// folder returns a directory for device files.
func folder(t *testing.T) string {
	dir := t.TempDir()
	t.Cleanup(func() { _ = simgpu.Remove(dir) })
	return dir
}

// TestSimulatedValues: a device has each value, counters grow with time, and faults show.
func TestSimulatedValues(t *testing.T) {
	dir := folder(t)
	gpus := NewSimulated("n1", dir, []Group{{Count: 2, Type: "h100"}})
	inventory, err := gpus.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		values := func() map[string]float64 {
			loads, err := gpus.Loads(t.Context(), []DeviceSet{{UUIDs: []string{inventory.Devices[1].UUID}}})
			if err != nil || len(loads) != 1 {
				t.Fatal(loads, err)
			}
			return loads[0].Values
		}
		first := values()
		for _, q := range Quantities() {
			for _, key := range q.Keys() {
				if _, has := first[key]; !has {
					t.Errorf("no %s", key)
				}
				delete(first, key)
			}
		}
		if delete(first, GraphicsActive); len(first) > 0 {
			t.Errorf("not in the list: %v", first)
		}
		write := func(text string) {
			if err := os.WriteFile(filepath.Join(dir, FaultsFile), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("0 ecc\n1 throttle\n1 remap\n")
		time.Sleep(10 * time.Second)
		v := values()
		if v["energy_joules_total"] != 3000 || v["throttled_seconds_total/hw_thermal"] != 10 || v["ecc_errors_total/uncorrected"] != 0 || v["remap_pending"] != 1 {
			t.Error(v)
		}
		write("1 memory512\n0 memory1\n")
		if use, err := gpus.InUse(t.Context(), []string{inventory.Devices[1].UUID}); err != nil || len(use.Memory) != 1 || use.Memory[inventory.Devices[1].UUID] != 512<<20 {
			t.Error(use, err)
		}
		write("1 ecc\n")
		time.Sleep(10 * time.Second)
		v = values()
		if v["energy_joules_total"] != 3700 || v["throttled_seconds_total/hw_thermal"] != 10 || v["ecc_errors_total/uncorrected"] != 1 || v["remap_pending"] != 0 {
			t.Error(v)
		}
	})
}
