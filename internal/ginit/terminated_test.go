//go:build linux

package ginit

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestTerminatedBefore checks that a SIGTERM before the program exists ends it, and that other signals
// are kept for it in order.
func TestTerminatedBefore(t *testing.T) {
	signals := make(chan os.Signal, 3)
	signals <- syscall.SIGUSR1
	signals <- syscall.SIGUSR2
	if terminated(signals) || <-signals != syscall.SIGUSR1 || <-signals != syscall.SIGUSR2 {
		t.Error("a signal that ends nothing was taken for one, or lost")
	}
	signals <- syscall.SIGUSR1
	signals <- syscall.SIGTERM
	dir := t.TempDir()
	mark := filepath.Join(dir, "ran")
	umask := syscall.Umask(0o22)
	defer syscall.Umask(umask)
	_, failure := launch(&Order{Args: []string{"/bin/sh", "-c", "touch " + mark}, Umask: 0o22}, signals)
	if failure == nil || refuse(dir, failure.code, failure.message) != 143 {
		t.Fatalf("began: %+v", failure)
	}
	data, err := os.ReadFile(filepath.Join(dir, RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	record, err := DecodeRecord(data)
	if err != nil || record.Code != 143 || record.Signal != 15 || record.LaunchError != "" || record.Started != 0 {
		t.Errorf("%+v: %v", record, err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the program ran")
	}
}
