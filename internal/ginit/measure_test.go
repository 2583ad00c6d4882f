//go:build linux

package ginit

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMeasure checks that the counters of the group are in the record, and that missing ones leave
// it unchanged.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"memory.events": "low 0\nhigh 0\nmax 31\noom 3\noom_kill 2\noom_group_kill 0\n",
		"memory.peak":   "65536000\n", "cpu.stat": "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := Record{Code: 137, MaxRSS: 7, CPU: 8, Ended: 9}
	for where, want := range map[string]Record{
		"": before, t.TempDir(): before,
		dir: {Code: 137, MaxRSS: 65_536_000, CPU: 1_500_000, User: 1_000_000, OOMKills: 2, Measured: true, Ended: 9},
	} {
		got := before
		if got.measure(where); got != want {
			t.Errorf("from %q: %+v, want %+v", where, got, want)
		}
	}
}
