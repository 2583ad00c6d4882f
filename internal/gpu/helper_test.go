package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// built holds the programs of the tests by CGO_ENABLED; they are built on first use.
var built = map[string]string{}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "gpu-")
	if err != nil {
		panic(err)
	}
	built["dir"] = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// program builds gnvml, with or without NVIDIA's library.
func program(t *testing.T, cgo string) string {
	t.Helper()
	if built[cgo] != "" {
		return built[cgo]
	}
	path := filepath.Join(built["dir"], "gnvml"+cgo)
	build := exec.Command("go", "build", "-o", path, "../../cmd/gnvml")
	build.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "CGO_CFLAGS=-Wno-deprecated-declarations")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build gnvml: %v\n%s", err, out)
	}
	built[cgo] = path
	return path
}

// fake is a host with a driver whose answers the test sets.
type fake struct {
	*Helper
	t   *testing.T
	dir string
}

func newFake(t *testing.T, cgo string, limits Limits, flags ...string) *fake {
	t.Helper()
	f := &fake{t: t, dir: t.TempDir()}
	if cgo == "1" {
		args := append([]string{"-shared", "-fPIC", "-w", "-o", filepath.Join(f.dir, "libnvidia-ml.so.1"), "testdata/fake_nvml.c"}, flags...)
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip("needs gcc: the stand-in for NVIDIA's library is C")
		}
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
	}
	t.Setenv("LD_LIBRARY_PATH", f.dir)
	t.Setenv("FAKE_NVML", f.dir)
	f.Helper = NewHelper(program(t, cgo), "n1", limits, slog.New(slog.DiscardHandler))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) put(name string, n int) {
	f.t.Helper()
	// The file is replaced atomically, since the library may be reading it.
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path+".new", []byte(strconv.Itoa(n)), 0o644); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) remove(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

func TestInventoryThroughTheLibrary(t *testing.T) {
	f := newFake(t, "1", Limits{})
	inventory, err := f.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if inventory.Driver != "999.1" || len(inventory.Devices) != 2 {
		t.Fatalf("%+v", inventory)
	}
	for i, d := range inventory.Devices {
		want := cluster.GPU{Index: int32(i), UUID: "GPU-fake-" + strconv.Itoa(i), Type: "h100", Memory: 80 * cluster.GiB,
			Minor: int32(3 - i), NUMA: d.NUMA, Domain: "n1/0"}
		if d.GPU != want || len(d.Files) != 1 || d.Files[0].Host != "/dev/nvidia"+strconv.Itoa(3-i) {
			t.Errorf("device %d: %+v", i, d)
		}
	}
	f.put("pid", 4711)
	f.put("used", 300)
	use, err := f.InUse(t.Context(), []string{"GPU-fake-0", "GPU-fake-1"})
	if err != nil || len(use.Processes) != 1 || use.Processes[0] != (Process{UUID: "GPU-fake-1", PID: 4711}) || use.Memory["GPU-fake-0"] != 300<<20 || len(use.Memory) != 2 {
		t.Errorf("in use %v, %v", use, err)
	}
	if use, err := f.InUse(t.Context(), []string{"GPU-fake-0"}); err != nil || len(use.Processes) != 0 || len(use.Memory) != 1 {
		t.Errorf("in use of the other %v, %v", use, err)
	}
	f.put("parts", 1) // without the memory that the driver reserves, it is unknown
	if use, err := f.InUse(t.Context(), []string{"GPU-fake-1"}); err != nil || len(use.Memory) != 0 {
		t.Errorf("in use of a board that reports less %v, %v", use, err)
	}
	f.put("parts", 0)
	f.put("used", 0)
	f.put("lost", 1)
	f.put("remap", 1)
	f.put("action", 2)
	inventory, err = f.Inventory(t.Context())
	if err != nil || len(inventory.Devices) != 2 {
		t.Fatalf("with a lost GPU: %+v, %v", inventory, err)
	}
	if d := inventory.Devices[1]; d.Fault == "" || !d.Lost || d.UUID != "GPU-fake-1" || d.Type != "h100" {
		t.Errorf("a lost GPU: %+v", d)
	}
	if d := inventory.Devices[0]; d.Fault != "" || !d.Pending || !d.Judged || d.Recovery != RecoverReboot || d.Serial != "serial-0" || !d.Joined {
		t.Errorf("a GPU with a pending remap whose node is to be rebooted: %+v", d)
	}
}

// TestLostGPUKeepsTheIndexesOfOthers: after a GPU has vanished, the driver numbers the others again.
func TestLostGPUKeepsTheIndexesOfOthers(t *testing.T) {
	f := newFake(t, "1", Limits{})
	if _, err := f.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.put("vanished", 1) // GPU 0
	for range 2 {
		inventory, err := f.Inventory(t.Context())
		if err != nil || len(inventory.Devices) != 2 {
			t.Fatalf("%+v, %v", inventory, err)
		}
		for i, d := range inventory.Devices {
			if d.UUID != "GPU-fake-"+strconv.Itoa(i) || d.Index != int32(i) || d.Lost != (i == 0) || (d.Fault != "") != (i == 0) {
				t.Errorf("device %d: %+v", i, d)
			}
		}
	}
	f.remove("vanished")
	inventory, err := f.Inventory(t.Context())
	if err != nil || len(inventory.Devices) != 2 || inventory.Devices[0].Lost || inventory.Devices[0].Fault != "" {
		t.Errorf("back: %+v, %v", inventory, err)
	}
}

// TestStormOfEvents: 10,000 equal events are one at once, and a count later; others pass meanwhile.
func TestStormOfEvents(t *testing.T) {
	f := newFake(t, "1", Limits{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	report, ended := make(chan Event, 100), make(chan error, 1)
	go func() { ended <- f.Watch(ctx, func(e Event) { report <- e }) }()
	if _, err := f.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.put("storm", 45)
	var xids []string
	for total := uint32(0); total < 10_001; {
		select {
		case e := <-report:
			total += e.Count
			xids = append(xids, strconv.Itoa(e.XID))
		case <-time.After(time.Minute):
			t.Fatalf("%d events of 10,001: %v", total, xids)
		}
	}
	if got := strings.Join(xids, " "); got != "45 79 45" {
		t.Errorf("messages about %s", got)
	}
	stop()
	<-ended
}

func TestLoadsThroughTheLibrary(t *testing.T) {
	f := newFake(t, "1", Limits{})
	held := []DeviceSet{{UUIDs: []string{"GPU-fake-1"}}, {UUIDs: []string{"GPU-fake-0", "GPU-other"}}}
	loads := func() string {
		t.Helper()
		list, err := f.Loads(t.Context(), held)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, l := range list {
			text += l.UUID[len("GPU-fake-"):]
			if l.Busy != nil {
				text += fmt.Sprint(" ", *l.Busy, "%")
			}
			if l.Memory != nil {
				text += fmt.Sprint(" ", *l.Memory>>20, "MiB")
			}
			text += "; "
		}
		return text
	}
	if _, err := f.Loads(t.Context(), held); !errors.Is(err, ErrUnanswered) || f.child != nil {
		t.Errorf("before anything else was asked: %v, %v", err, f.child)
	}
	if _, err := f.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := loads(); got != "0 0% 0MiB; 1 0% 0MiB; " {
		t.Errorf("at rest: %s", got)
	}
	f.put("busy", 140) // an impossible value
	f.put("used", 300)
	if got := loads(); got != "0 100% 300MiB; 1 100% 300MiB; " {
		t.Errorf("at work: %s", got)
	}
	f.put("parts", 1)
	held = held[:1]
	if got := loads(); got != "1 1024MiB; " {
		t.Errorf("of a board that does not tell: %s", got)
	}
}

// TestValuesThroughTheLibrary: what a device does not support is absent.
func TestValuesThroughTheLibrary(t *testing.T) {
	f := newFake(t, "1", Limits{})
	f.put("ecc", 3)
	f.put("remap", 1)
	f.put("action", 4)
	if _, err := f.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	loads, err := f.Loads(t.Context(), []DeviceSet{{UUIDs: []string{"GPU-fake-0", "GPU-fake-1"}}})
	if err != nil || len(loads) != 2 {
		t.Fatal(loads, err)
	}
	want := map[string]float64{
		"power_watts": 350.5, "temperature_celsius/gpu": 40, "temperature_celsius/memory": 50, "clock_hertz/sm": 1.98e9, "energy_joules_total": 5000,
		"throttled_seconds_total/power_cap": 2, "throttled_seconds_total/sw_thermal": 1, "throttled_seconds_total/hw_thermal": 2,
		"pcie_replays_total": 7, "ecc_errors_total/corrected": 1 << 40, "ecc_errors_total/uncorrected": 3,
		"remapped_rows/corrected": 1, "remapped_rows/uncorrected": 2, "remap_pending": 1, "recovery_action": 4,
	}
	if got := loads[0].Values; !nearly(got, want) {
		t.Errorf("with a profile, whose values need two samples: %v, want %v", got, want)
	}
	delete(want, "temperature_celsius/memory")
	for key, value := range map[string]float64{
		"power_watts": 350.501, "temperature_celsius/gpu": 41, "nvlink_bytes_total/transmit": 138 << 10, "nvlink_bytes_total/receive": 139 << 10,
		"ecc_errors_total/uncorrected": 0, "remap_pending": 0, "recovery_action": 0,
	} {
		want[key] = value
	}
	if got := loads[1].Values; !nearly(got, want) {
		t.Errorf("without a profile: %v, want %v", got, want)
	}
}

func nearly(got, want map[string]float64) bool {
	return maps.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9*(1+math.Abs(b)) })
}

// TestSlowLoadsHarmNobody checks that a board that does not report its load delays one query, and
// not the child that others use.
func TestSlowLoadsHarmNobody(t *testing.T) {
	f := newFake(t, "1", Limits{})
	if _, err := f.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, held := f.child, []DeviceSet{{UUIDs: []string{"GPU-fake-0"}}}
	f.put("slow", 1)
	for range 100 {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := f.Loads(ctx, held); !errors.Is(err, ErrUnanswered) {
			t.Errorf("while it is slow: %v", err)
		}
		stop()
	}
	if first.mu.Lock(); first.next != 2 || first.over() {
		t.Errorf("%d questions, ended %v", first.next, first.over())
	}
	first.mu.Unlock()
	f.remove("slow")
	if _, err := f.Inventory(t.Context()); err != nil || f.child != first {
		t.Errorf("another question, afterwards: %v", err)
	}
	for {
		if loads, err := f.Loads(t.Context(), held); err == nil && len(loads) == 1 {
			break
		} else if !errors.Is(err, ErrUnanswered) { // the answer to the first query is in flight
			t.Fatalf("afterwards: %v, %v", loads, err)
		}
	}
	first.kill()
	<-first.done
	if _, err := f.Loads(t.Context(), held); !errors.Is(err, ErrUnanswered) {
		t.Errorf("without a child: %v", err)
	}
}

func TestEventsThroughTheLibrary(t *testing.T) {
	f := newFake(t, "1", Limits{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	report, ended := make(chan Event, 10), make(chan error, 1)
	go func() { ended <- f.Watch(ctx, func(e Event) { report <- e }) }()
	if _, err := f.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	for xid, action := range map[int]Action{79: Reboot, 31: Suspect, 48: Contained, 777: Unknown} {
		f.put("xid", xid)
		select {
		case e := <-report:
			if e.UUID != "GPU-fake-1" || e.XID != xid || e.Action != action || e.Message == "" {
				t.Errorf("XID %d: %+v", xid, e)
			}
		case <-time.After(time.Minute):
			t.Fatalf("XID %d was not report", xid)
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("watch ended with %v", err)
	}
}

// TestHangIsKilled checks that a call that never returns costs one helper, not the daemon.
func TestHangIsKilled(t *testing.T) {
	f := newFake(t, "1", Limits{Inventory: 300 * time.Millisecond})
	f.put("hang", 1)
	if _, err := f.Inventory(t.Context()); !errors.Is(err, ErrUnanswered) {
		t.Fatalf("hanging: %v", err)
	}
	first := f.child
	select {
	case <-first.done:
	case <-time.After(time.Minute):
		t.Fatal("the child that hangs is not ended")
	}
	f.remove("hang")
	f.limits.Inventory = time.Minute
	if inventory, err := f.Inventory(t.Context()); err != nil || len(inventory.Devices) != 2 {
		t.Errorf("the next child: %+v, %v", inventory, err)
	}
	if f.child == first {
		t.Error("it is the same child")
	}
}

// TestStuckEventsAreNoticed checks a thread that hangs while it waits for events and requests are
// answered.
func TestStuckEventsAreNoticed(t *testing.T) {
	f := newFake(t, "1", Limits{Silence: 2 * time.Second, Restart: 10 * time.Millisecond})
	if _, err := f.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := f.child
	f.put("stuck", 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- f.Watch(ctx, func(Event) {}) }()
	select {
	case <-first.done:
	case <-time.After(time.Minute):
		t.Error("a child that says nothing is not ended")
	}
	stop()
	<-ended
}

func TestOldDriver(t *testing.T) {
	f := newFake(t, "1", Limits{}, "-DOLD")
	if _, err := f.Inventory(t.Context()); !errors.Is(err, ErrUnanswered) || !strings.Contains(err.Error(), "nvmlDeviceGetPciInfo_v3") {
		t.Errorf("without a function: %v", err)
	}
	if f.child.over() {
		t.Error("the missing function ended the process")
	}
}

func TestNoDriver(t *testing.T) {
	for name, prepare := range map[string]func() *fake{
		"no library":  func() *fake { f := newFake(t, "1", Limits{}); f.remove("libnvidia-ml.so.1"); return f },
		"no module":   func() *fake { f := newFake(t, "1", Limits{}); f.put("nodriver", 1); return f },
		"without cgo": func() *fake { return newFake(t, "0", Limits{}) },
	} {
		inventory, err := prepare().Inventory(t.Context())
		if err != nil || len(inventory.Devices) != 0 || inventory.Driver != "" {
			t.Errorf("%s: %+v, %v", name, inventory, err)
		}
	}
}

// TestHelperThatFails runs a program that is missing, ends, or sends invalid messages.
func TestHelperThatFails(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	deaf := write("deaf", "#!/bin/sh\nexec sleep 1000\n")
	for path, want := range map[string]error{
		filepath.Join(dir, "missing"):                               os.ErrNotExist,
		write("ends", "#!/bin/sh\necho broken pipe >&2; exit 3\n"):  errEnded,
		write("raves", "#!/bin/sh\necho hello; cat\n"):              ErrProtocol,
		write("mad", "#!/bin/sh\nread x; echo '{\"id\":1}'; cat\n"): ErrProtocol,
		deaf: ErrUnanswered,
	} {
		limits := Limits{Inventory: time.Minute}
		if path == deaf {
			limits.Inventory = 100 * time.Millisecond
		}
		h := NewHelper(path, "n1", limits, slog.New(slog.DiscardHandler))
		if _, err := h.Inventory(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
		h.Close()
	}
}
