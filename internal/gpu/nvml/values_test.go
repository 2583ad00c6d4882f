//go:build cgo && linux

package nvml

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/greylag/greylag/internal/gpu"
)

// openFake returns a library that calls the stand-in for NVIDIA's, and the directory of its settings.
func openFake(t *testing.T) (*library, string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "libnvidia-ml.so.1")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-w", "-o", path, "../testdata/fake_nvml.c").CombinedOutput(); err != nil {
		t.Skipf("needs gcc: %v\n%s", err, out)
	}
	t.Setenv("FAKE_NVML", dir)
	l := newLibrary(nvml.New(nvml.WithLibraryPath(path)))
	if _, err := l.inventory(); err != nil || len(l.known) != 2 {
		t.Fatal(l.known, err)
	}
	return l, dir
}

// TestProfile: a sample is compared with the one before, at most every 10 s; an impossible value is
// limited, an unknown one absent; traffic adds up.
func TestProfile(t *testing.T) {
	l, dir := openFake(t)
	began := time.Now()
	at := func(second int) map[string]float64 {
		return l.measure(&l.known[0], began.Add(time.Duration(second)*time.Second))
	}
	of := func(values map[string]float64, key string) float64 {
		if value, known := values[key]; known {
			return value
		}
		return -1
	}
	keys := []string{gpu.GraphicsActive, "sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio", "pcie_bytes_total/receive", "nvlink_bytes_total/transmit"}
	check := func(second int, want ...float64) {
		t.Helper()
		values := at(second)
		for i, key := range keys {
			if got := of(values, key); math.Abs(got-want[i]) > 1e-6 {
				t.Errorf("after %d s: %s is %v, want %v", second, key, got, want[i])
			}
		}
	}
	const mib = 1 << 20
	check(0, -1, -1, -1, -1, -1, -1, -1)
	check(5, -1, -1, -1, -1, -1, -1, -1)
	check(10, 0.01, 1, 0.03, -1, -1, 10*21*mib, 10*61*mib)
	check(15, 0.01, 1, 0.03, -1, -1, 10*21*mib, 10*61*mib)
	check(21, 0.01, 1, 0.03, -1, -1, 21*21*mib, 21*61*mib)
	mig := filepath.Join(dir, "mig")
	if err := os.WriteFile(mig, []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	check(40, -1, -1, -1, -1, -1, -1, 138<<10)
	if err := os.Remove(mig); err != nil {
		t.Fatal(err)
	}
	check(50, -1, -1, -1, -1, -1, -1, 138<<10)
	at(60)
	check(71, 0.01, 1, 0.03, -1, -1, 21*21*mib, 21*61*mib)
	if values := l.measure(&l.known[1], began); of(values, "power_watts") < 0 || of(values, "sm_active_ratio") >= 0 {
		t.Errorf("without a profile: %v", values)
	}
}

// TestOldDriver: the fields of new drivers have older ones as a substitute, or are absent.
func TestOldDriver(t *testing.T) {
	l, dir := openFake(t)
	if err := os.WriteFile(filepath.Join(dir, "olddriver"), []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	values := l.measure(&l.known[0], time.Now())
	if _, has := values["throttled_seconds_total/hw_thermal"]; has || math.Abs(values["throttled_seconds_total/sw_thermal"]-4) > 1e-9 {
		t.Error(values)
	}
}

// TestKeys: every value that is read has a metric.
func TestKeys(t *testing.T) {
	keys := []string{gpu.GraphicsActive}
	for _, q := range gpu.Quantities() {
		for _, key := range q.Keys() {
			keys = append(keys, key)
		}
	}
	at := known{raw: gpu.RawDevice{Links: []string{"switch"}}}
	for _, f := range append(fastFields(), slowFields()...) {
		if !slices.Contains(keys, f.key) {
			t.Error(f.key)
		}
	}
	for _, m := range append(ratios(), at.traffic()...) {
		if !slices.Contains(keys, m.key) {
			t.Error(m.key)
		}
	}
}
