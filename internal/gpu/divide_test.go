package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// layout is that of GPU 1 in these tests.
var layout = Layouts{1: {"3g.40gb", "3g.40gb"}}

// capabilities writes the driver's lists of device numbers below a root for two instances of /dev/nvidia2,
// and files in place of the devices.
func capabilities(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		migMinors:                  "config 1\ngpu2/gi1/access 21\ngpu2/gi1/ci0/access 22\ngpu2/gi2/access 30\ngpu2/gi2/ci0/access 31\n",
		"proc/devices":             "Character devices:\n195 nvidia\n237 nvidia-caps\n",
		migFiles + "/nvidia-cap21": "", migFiles + "/nvidia-cap22": "", migFiles + "/nvidia-cap30": "", migFiles + "/nvidia-cap31": "",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// describeAll returns type, memory and files of all devices.
func describeAll(inventory Inventory) string {
	var text []string
	for _, d := range inventory.Devices {
		var files []string
		for _, f := range d.Files {
			files = append(files, strings.TrimPrefix(f.Task, "/dev/"))
		}
		text = append(text, fmt.Sprintf("%d %s %s %s %q %s %d %s", d.Index, d.UUID, d.Type, d.Memory, d.Domain, d.ParentType, d.Share, strings.Join(files, " ")))
	}
	return strings.Join(text, "\n")
}

// TestRebootRebuildsInstances: instances end with the driver, the inventory says so, and Divide makes the same
// ones. Each has the files of its GPU, its GPU instance and its compute instance.
func TestRebootRebuildsInstances(t *testing.T) {
	f := newFake(t, "1", Limits{})
	f.SetLayouts(layout)
	f.root = capabilities(t)
	const want = `0 GPU-fake-0 h100 80G "n1/0"  0 nvidia3
1 MIG-fake-1-1 3g.40gb 40G "" h100 28 nvidia2 nvidia-caps/nvidia-cap21 nvidia-caps/nvidia-cap22
2 MIG-fake-1-2 3g.40gb 40G "" h100 28 nvidia2 nvidia-caps/nvidia-cap30 nvidia-caps/nvidia-cap31`
	for range 2 {
		inventory, err := f.Inventory(t.Context())
		if err != nil || inventory.Undivided != "GPU 1 is not divided into 3g.40gb, 3g.40gb: it has no MIG mode" || len(inventory.Devices) != 2 {
			t.Fatalf("after a boot: %+v, %v", inventory, err)
		}
		if changed, err := f.Divide(t.Context()); err != nil || !changed {
			t.Fatal(changed, err)
		}
		if changed, err := f.Divide(t.Context()); err != nil || changed {
			t.Error("divided twice", err)
		}
		if inventory, err = f.Inventory(t.Context()); err != nil || inventory.Undivided != "" || describeAll(inventory) != want {
			t.Errorf("divided: %q\n%s\n%v", inventory.Undivided, describeAll(inventory), err)
		}
		first := f.child
		first.kill()
		<-first.done
	}
}

// TestUndividableGPU: the reason is that of the driver, or of the configuration.
func TestUndividableGPU(t *testing.T) {
	f := newFake(t, "1", Limits{})
	f.SetLayouts(Layouts{AllGPUs: {"4g.40gb", "4g.40gb"}})
	if changed, err := f.Divide(t.Context()); !errors.Is(err, ErrUndivided) || !changed || !strings.Contains(err.Error(), "GPU 0: impossible MIG layout") {
		t.Errorf("%v, %v", changed, err)
	}
	f.SetLayouts(Layouts{5: {"1g.10gb"}})
	inventory, err := f.Inventory(t.Context())
	if err != nil || inventory.Undivided != "a MIG layout is configured for GPU 5, which the node does not have" {
		t.Errorf("%q, %v", inventory.Undivided, err)
	}
	f.SetLayouts(nil)
	inventory, err = f.Inventory(t.Context())
	if err != nil || !strings.HasPrefix(inventory.Undivided, "GPU 0 is in MIG mode without an instance") || len(inventory.Devices) != 1 {
		t.Errorf("%+v, %v", inventory, err)
	}
}

// TestEventOfAnInstance: an error of one instance leaves the other alone, and one of the GPU concerns both.
func TestEventOfAnInstance(t *testing.T) {
	f := newFake(t, "1", Limits{})
	f.SetLayouts(layout)
	f.root = capabilities(t)
	if _, err := f.Divide(t.Context()); err != nil {
		t.Fatal(err)
	}
	inventory, err := f.Inventory(t.Context())
	if err != nil || len(inventory.Devices) != 3 {
		t.Fatal(inventory, err)
	}
	report := make(chan Event, 10)
	go func() { _ = f.Watch(t.Context(), func(e Event) { report <- e }) }() // ends with the test
	f.put("gi", 2)
	for xid, want := range map[int]string{94: "[false false true]", 79: "[false true true]"} {
		f.put("xid", xid)
		select {
		case e := <-report:
			var concerned []bool
			for i := range inventory.Devices {
				concerned = append(concerned, e.Concerns(&inventory.Devices[i]))
			}
			if fmt.Sprint(concerned) != want || e.XID != xid {
				t.Errorf("XID %d: %+v concerns %v", xid, e, concerned)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no XID %d", xid)
		}
	}
	e, ok := KernelEvent("NVRM: Xid (PCI:0000:1c:00 GPU-I:01 GPU-CI:00): 94, pid=1, name=python, Contained: SM (0x1).")
	if !ok || e.Bus != "0000:1c:00.0" || e.Instance != 2 || e.XID != 94 || e.Concerns(&inventory.Devices[2]) || !e.Concerns(&inventory.Devices[1]) {
		t.Errorf("of the kernel log: %+v", e)
	}
}

// TestSimulatedInstances: instances have files of their own, and events of their GPU.
func TestSimulatedInstances(t *testing.T) {
	dir := t.TempDir()
	s := NewSimulated("n1", dir, []Group{{Count: 2, Type: "h100", Memory: 80 * cluster.GiB}})
	s.SetLayouts(Layouts{1: {"1g.10gb", "3g.40gb", "2g.20gb"}})
	put := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, FaultsFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("1 undivided\n")
	inventory, err := s.Inventory(t.Context())
	if err != nil || len(inventory.Devices) != 2 || inventory.Undivided == "" {
		t.Fatalf("undivided: %+v, %v", inventory, err)
	}
	if _, err := s.Divide(t.Context()); !errors.Is(err, ErrUndivided) {
		t.Error(err)
	}
	put("")
	if changed, err := s.Divide(t.Context()); err != nil || !changed {
		t.Fatal(changed, err)
	}
	inventory, err = s.Inventory(t.Context())
	if err != nil || inventory.Undivided != "" || len(inventory.Devices) != 4 {
		t.Fatalf("divided: %+v, %v", inventory, err)
	}
	seen := map[string]int{}
	for i, d := range inventory.Devices {
		if want := []string{"h100", "3g.40gb", "2g.20gb", "1g.10gb"}[i]; d.Type != want || d.Index != int32(i) || (d.Domain == "") != (i > 0) {
			t.Errorf("device %d: %+v", i, d)
		}
		for _, f := range d.Files {
			seen[f.Host]++
		}
	}
	if os.Geteuid() == 0 && len(seen) != 2+6 {
		t.Errorf("files %v", seen)
	}
	if e, ok := s.errorOf(simulatedFault{"2", "xid94"}); !ok || e.Concerns(&inventory.Devices[1]) || !e.Concerns(&inventory.Devices[2]) {
		t.Errorf("an event of the second instance: %+v", e)
	}
}
