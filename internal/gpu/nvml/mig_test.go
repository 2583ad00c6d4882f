//go:build cgo && linux

package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// division describes the instances of GPU 0 with their places.
func division(t *testing.T, l *library) string {
	t.Helper()
	if _, err := l.inventory(); err != nil {
		t.Fatal(err)
	}
	var text []string
	for i, x := range l.known[0].raw.Instances {
		text = append(text, fmt.Sprintf("%s %s %d/%d", x.UUID, x.Profile, x.GPU, x.Compute))
		if uuid, ret := l.known[0].instances[i].GetUUID(); uuid != x.UUID || ret != 0 {
			t.Errorf("the handle of %s is that of %s (%v)", x.UUID, uuid, ret)
		}
	}
	return strings.Join(text, ", ")
}

func set(t *testing.T, dir, name string, on bool) {
	t.Helper()
	path := filepath.Join(dir, name)
	if !on {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestGPUIsDivided: a GPU gets the instances of its layout at real places, another layout replaces them,
// and the same one changes nothing.
func TestGPUIsDivided(t *testing.T) {
	l, _ := openFake(t)
	if got := division(t, l); got != "" || l.known[0].raw.MIG {
		t.Errorf("a whole GPU has %s", got)
	}
	changed, err := l.divide(map[int32][]string{0: {"3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"}})
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	want := "MIG-fake-0-1 2g.20gb 1/0, MIG-fake-0-2 1g.10gb 2/0, MIG-fake-0-3 1g.10gb 3/0, MIG-fake-0-4 3g.40gb 4/0"
	if got := division(t, l); got != want {
		t.Errorf("divided: %s", got)
	}
	if l.known[1].raw.MIG {
		t.Error("the other GPU was divided too")
	}
	if changed, err := l.divide(map[int32][]string{0: {"3g.40gb", "3g.40gb"}}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if got := division(t, l); got != "MIG-fake-0-1 3g.40gb 1/0, MIG-fake-0-2 3g.40gb 2/0" {
		t.Errorf("divided again: %s", got)
	}
}

// TestImpossibleLayout: the places of the driver count, and nothing of the GPU is changed.
func TestImpossibleLayout(t *testing.T) {
	l, dir := openFake(t)
	if _, err := l.divide(map[int32][]string{0: {"1g.10gb", "1g.10gb"}}); err != nil {
		t.Fatal(err)
	}
	before := division(t, l)
	for _, layout := range [][]string{{"4g.40gb", "4g.40gb"}, {"1g.5gb"}} {
		if _, err := l.divide(map[int32][]string{0: layout}); err == nil || !strings.Contains(err.Error(), "GPU 0: impossible MIG layout") {
			t.Errorf("%s: %v", layout, err)
		}
	}
	set(t, dir, "mig_narrow", true)
	if _, err := l.divide(map[int32][]string{0: {"3g.40gb"}}); err == nil || !strings.Contains(err.Error(), "no profile") {
		t.Errorf("without a place: %v", err)
	}
	if got := division(t, l); got != before {
		t.Errorf("before %s, after %s", before, got)
	}
	if _, err := l.divide(map[int32][]string{7: {"1g.10gb"}}); err == nil {
		t.Error("a GPU that does not exist was divided")
	}
}

// TestHeldGPU: a held GPU is tried for 10 s; then the error names its holder. A GPU with processes is not
// touched, and one that needs a reset says so.
func TestHeldGPU(t *testing.T) {
	l, dir := openFake(t)
	var clock, pauses time.Duration
	release := 2 * holdPause
	l.now = func() time.Time { return time.Unix(0, 0).Add(clock) }
	l.pause = func(d time.Duration) {
		clock, pauses = clock+d, pauses+d
		if pauses == release {
			set(t, dir, "mig_held", false)
		}
	}
	set(t, dir, "mig_held", true)
	if _, err := l.divide(map[int32][]string{0: {"1g.10gb"}}); err != nil || pauses != release {
		t.Fatalf("released after %v: %v", pauses, err)
	}
	pauses, release = 0, -1
	set(t, dir, "mig_held", true)
	_, err := l.divide(map[int32][]string{0: {"2g.20gb"}})
	if err == nil || !strings.Contains(err.Error(), "GPU 0: cannot destroy a compute instance: it is in use by") || pauses < holdPatience {
		t.Errorf("held for %v: %v", pauses, err)
	}
	set(t, dir, "mig_held", false)
	set(t, dir, "mig_reset", true)
	if _, err := l.divide(map[int32][]string{1: {"1g.10gb"}}); err == nil || !strings.Contains(err.Error(), "nvidia-smi -i 1 -r") {
		t.Errorf("a GPU that needs a reset: %v", err)
	}
	set(t, dir, "pid", true)
	if _, err := l.divide(map[int32][]string{1: {"1g.10gb"}}); err == nil || !strings.Contains(err.Error(), "process 1") {
		t.Errorf("a GPU with a process: %v", err)
	}
}

// TestHolders: a process with a file of the GPU or of an instance is named.
func TestHolders(t *testing.T) {
	proc := t.TempDir()
	for pid, path := range map[string]string{"4999991": "/dev/nvidia3", "4999992": "/dev/nvidia-caps/nvidia-cap12", "4999993": "/dev/nvidia0", "self": "/dev/nvidia3"} {
		dir := filepath.Join(proc, pid, "fd")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, "5")); err != nil {
			t.Fatal(err)
		}
	}
	if got := holders(proc, 3); got != "process 4999991, 4999992" {
		t.Error(got)
	}
	if got := holders(t.TempDir(), 3); !strings.HasPrefix(got, "a program") {
		t.Error(got)
	}
}
