package health

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/pkg/cluster"
)

// bench is the health of two GPUs, whose events a test makes.
type bench struct {
	*GPUs
	now     time.Time
	devices []gpu.Device
}

func newBench() *bench {
	b := &bench{GPUs: NewGPUs(), now: time.Unix(1_800_000_000, 0)}
	for i := range 2 {
		b.devices = append(b.devices, gpu.Device{GPU: cluster.GPU{Index: int32(i), UUID: fmt.Sprint("u", i)}, Serial: fmt.Sprint("s", i), Links: 18, Judged: true})
	}
	b.Inspect(b.devices)
	return b
}

// xid makes an error of GPU 0, and returns its outcome in words.
func (b *bench) xid(number int, user uint32) string {
	e, _ := gpu.KernelEvent(fmt.Sprintf("NVRM: Xid (PCI:0000:1b:00): %d, words", number))
	o := b.Handle(b.now, "u0", e, Holder{Job: 7, Ref: "7", User: user})
	text := ""
	if o.Notice != "" {
		text += "notice "
	}
	if o.Blame != "" {
		text += "blame "
	}
	if o.Doom {
		text += "doom "
	}
	return strings.TrimSpace(text)
}

// state returns the state of GPU 0 and the conditions in words.
func (b *bench) state() string {
	s := b.Status(b.now, "u0")
	text := ""
	if s.Fault != "" {
		text += "out "
	}
	if s.Degraded != "" {
		text += "degraded "
	}
	if s.Repair != 0 {
		text += s.Repair.String() + " "
	}
	for _, c := range b.Conditions(b.now) {
		text += fmt.Sprintf("[%s %s] ", c.Cause, c.Effect)
	}
	return strings.TrimSpace(text)
}

// TestErrorsOfGPUs: the outcome of each kind of error for the job, the GPU and the node.
func TestErrorsOfGPUs(t *testing.T) {
	for xid, want := range map[int]string{
		13:  "notice -> ",
		43:  "notice -> ",
		31:  "notice -> ",
		45:  "notice -> ",
		63:  " -> ",
		92:  " -> ",
		999: " -> ",
		48:  "notice blame -> out reset [gpu_reset notice]",
		94:  "notice blame -> out reset [gpu_reset notice]",
		109: "notice blame doom -> out reset [gpu_reset notice]",
		119: "notice blame doom -> out reset [gpu_reset notice]",
		79:  "notice blame doom -> out reboot [gpu_reboot drains]",
		54:  " -> out [gpu_check drains]",
		74:  "notice -> degraded [gpu_degraded degrades]",
		145: "notice -> degraded [gpu_degraded degrades]",
	} {
		b := newBench()
		if got := b.xid(xid, 1) + " -> " + b.state(); got != want {
			t.Errorf("XID %d: %q, want %q", xid, got, want)
		}
		if s := b.Status(b.now, "u1"); s != (Status{}) {
			t.Errorf("XID %d: the other GPU: %+v", xid, s)
		}
	}
}

// TestMessagesNameTheGPU: an operator can act on the sentence.
func TestMessagesNameTheGPU(t *testing.T) {
	b := newBench()
	b.xid(79, 1)
	want := "GPU 0 (serial s0): it has fallen off the bus (XID 79): reboot, check power and seating"
	if list := b.Conditions(b.now); len(list) != 1 || list[0].Message != want || list[0].Repair != cluster.RepairReboot {
		t.Errorf("%+v", list)
	}
}

// TestThreeUsersInAWeek: illegal accesses of programs of three users make a GPU degraded (XID 31).
func TestThreeUsersInAWeek(t *testing.T) {
	b := newBench()
	for _, user := range []uint32{1, 1, 1, 2} {
		b.xid(31, user)
		b.now = b.now.Add(24 * time.Hour)
	}
	if b.state() != "" {
		t.Errorf("two users: %s", b.state())
	}
	b.xid(40, 3) // of the same class
	if b.state() != "degraded [gpu_degraded degrades]" {
		t.Errorf("three users: %s", b.state())
	}
	b.now = b.now.Add(suspectWindow + time.Hour)
	if b.state() != "" {
		t.Errorf("a week later: %s", b.state())
	}
}

// TestShadows: XID 45 within a minute of another error is nothing, and repeated it is one notice.
func TestShadows(t *testing.T) {
	b := newBench()
	if got := b.xid(45, 1); got != "notice" {
		t.Errorf("the first: %q", got)
	}
	for range 10_000 {
		if got := b.xid(45, 1); got != "" {
			t.Fatalf("repeated: %q", got)
		}
	}
	b.now = b.now.Add(time.Hour)
	b.xid(13, 1)
	if got := b.xid(45, 1); got != "" || b.state() != "" {
		t.Errorf("after another: %q, %s", got, b.state())
	}
}

// TestErrorsOfNVLink: the first in 24 hours degrades, the second drains. One error that NVML and the
// kernel log report is one.
func TestErrorsOfNVLink(t *testing.T) {
	b := newBench()
	b.xid(74, 1)
	b.now = b.now.Add(30 * time.Second)
	if got := b.xid(74, 1); got != "" || b.state() != "degraded [gpu_degraded degrades]" {
		t.Errorf("the same again: %q, %s", got, b.state())
	}
	b.now = b.now.Add(25 * time.Hour)
	if b.state() != "" {
		t.Errorf("the next day: %s", b.state())
	}
	b.xid(74, 1)
	b.now = b.now.Add(time.Hour)
	b.xid(74, 1)
	if b.state() != "degraded [nvlink drains]" {
		t.Errorf("the second: %s", b.state())
	}
}

func TestUnknownErrors(t *testing.T) {
	b := newBench()
	for i := range 3 {
		if b.state() != "" {
			t.Errorf("after %d: %s", i, b.state())
		}
		b.xid(999, 1)
		b.now = b.now.Add(10 * time.Minute)
	}
	if s := b.Status(b.now, "u0"); !strings.HasSuffix(s.Degraded, "XID 999 is not in table version 2") {
		t.Errorf("after 3: %+v", s)
	}
}

// TestVerdictOfTheDriver: the recovery action comes before the table, and 0 heals.
func TestVerdictOfTheDriver(t *testing.T) {
	b := newBench()
	for action, want := range map[gpu.Recovery]string{
		1: "out reset [gpu_reset notice]", 2: "out reboot [gpu_reboot drains]", 3: "out [gpu_check drains]", 4: "out reset [gpu_reset notice]",
		5: "out [gpu_check drains]", 6: "out [gpu_check drains]", 7: "out reboot [gpu_reboot drains]", 99: "out reset [gpu_reset notice]",
	} {
		b.xid(48, 1)
		b.devices[0].Recovery = action
		b.Inspect(b.devices)
		if b.state() != want {
			t.Errorf("%d: %s", action, b.state())
		}
		b.devices[0].Recovery = 0
		b.Inspect(b.devices)
		if b.state() != "" {
			t.Errorf("%d, healed: %s", action, b.state())
		}
		b.now = b.now.Add(time.Hour)
	}
	b.xid(48, 1)
	b.Inspect(b.devices) // 0 as before: the driver says nothing new
	if b.state() != "out reset [gpu_reset notice]" {
		t.Errorf("without a verdict: %s", b.state())
	}
}

// TestLostGPU: its job fails and the node is drained; one that vanished counts as lost.
func TestLostGPU(t *testing.T) {
	b := newBench()
	b.devices[0].Lost, b.devices[0].Fault = true, "NVML error 15"
	lost := b.Inspect(b.devices)
	if o := lost["u0"]; len(lost) != 1 || !o.Doom || o.Blame != "GPU 0 (serial s0): the driver has lost it: NVML error 15" {
		t.Errorf("%+v", lost)
	}
	if b.state() != "out reboot [gpu_lost drains]" || len(b.Inspect(b.devices)) != 0 {
		t.Errorf("%s", b.state())
	}
	b.devices[0].Lost = false
	if b.Inspect(b.devices); b.state() != "" {
		t.Errorf("it answers again: %s", b.state())
	}
	if lost := b.Inspect(b.devices[1:]); len(lost) != 1 || b.state() != "out reboot [gpu_lost drains]" {
		t.Errorf("vanished: %+v, %s", lost, b.state())
	}
}

// TestSignsInTheInventory: a pending remap takes nothing out of service, and a slow link degrades.
func TestSignsInTheInventory(t *testing.T) {
	b := newBench()
	b.devices[0].Pending, b.devices[1].Slow = true, "its PCIe link has 8 of 16 lanes"
	b.Inspect(b.devices)
	if b.state() != "reset [gpu_remap notice] [gpu_degraded degrades]" {
		t.Errorf("%s", b.state())
	}
	b.devices[0].Joined = true
	b.Inspect(b.devices)
	if b.xid(119, 1); b.state() != "out reset [gpu_reset drains] [gpu_degraded degrades]" {
		t.Errorf("reset with its neighbours: %s", b.state())
	}
}

// TestHealthOutlivesTheDaemon: it is kept for the same boot of the node.
func TestHealthOutlivesTheDaemon(t *testing.T) {
	b, path := newBench(), filepath.Join(t.TempDir(), "health.json")
	b.xid(119, 1)
	want := b.state()
	saved := Saved{"boot1", b.GPUs, []cluster.Condition{{Cause: "disk", Effect: cluster.Drains}}, []string{"mlx5_0/1"}, map[string]Use{"GPU-1": {"process 7", cluster.RepairReset}}, []cluster.Condition{{Cause: "gpu"}}, map[string]string{"GPU-2": "validation"}}
	if err := saved.Save(path); err != nil {
		t.Fatal(err)
	}
	load := func(boot string) (Saved, bool) {
		s, found := Load(path, boot)
		b.GPUs = s.GPUs
		return s, found
	}
	if s, found := load("boot1"); b.state() != want || want == "" || !found || s.Conditions[0] != saved.Conditions[0] || s.Ports[0] != "mlx5_0/1" || s.Users["GPU-1"] != saved.Users["GPU-1"] || s.Repaired[0] != saved.Repaired[0] || s.Untested["GPU-2"] != "validation" {
		t.Errorf("%q, want %q; %+v", b.state(), want, s)
	}
	if s, found := load("boot2"); b.state() != "" || found || len(s.Conditions) != 0 {
		t.Errorf("of another boot: %q, %+v", b.state(), s)
	}
	if err := os.WriteFile(path, []byte(`{"boot":"boot1","gpus":{"devices":{"u0":null}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, found := load("boot1"); b.state() != "" || !found {
		t.Errorf("with an empty device: %q", b.state())
	}
	if err := saved.Save(filepath.Join(path, "x")); err == nil {
		t.Error("saved in a file")
	}
}

// TestHotGPU: a GPU that is throttled for more than half of 5 minutes is degraded until it is cooler.
func TestHotGPU(t *testing.T) {
	b, throttled := newBench(), 100.0
	minutes := func(n int, each float64) {
		for range n {
			b.now = b.now.Add(time.Minute)
			throttled += each
			b.Throttled(b.now, "u0", throttled)
		}
	}
	minutes(6, 20)
	if b.state() != "" {
		t.Errorf("a third: %s", b.state())
	}
	if minutes(5, 50); b.state() != "degraded [gpu_degraded degrades]" {
		t.Errorf("most: %s", b.state())
	}
	if minutes(5, 0); b.state() != "" {
		t.Errorf("cool: %s", b.state())
	}
}

// TestFewerLinks: a GPU with fewer active NVLinks than before is degraded.
func TestFewerLinks(t *testing.T) {
	b := newBench()
	b.devices[0].Links = 17
	b.Inspect(b.devices)
	if s := b.Status(b.now, "u0"); s.Degraded != "17 of its 18 NVLinks are active" {
		t.Errorf("%+v", s)
	}
}
