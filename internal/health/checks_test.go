package health

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/gpu"
)

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// TestHealthProgram: its last line is the reason of a failure, and one that hangs is killed and counted.
func TestHealthProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "check")
	var result Program
	run := func(body string, limit time.Duration) Program {
		writeFile(t, path, "#!/bin/sh\n"+body+"\n", 0o755)
		line, err := Run(t.Context(), path, "n1", limit)
		result = result.Ran("check", limit, line, err)
		return result
	}
	if r := run("echo fine", time.Minute); r.Failed != "" || r.Notice != "" {
		t.Errorf("fine: %+v", r)
	}
	if r := run("echo a; echo; echo ' disk of $SLURMD_NODENAME'; echo >&2; exit 3", time.Minute); r.Failed != "check: disk of $SLURMD_NODENAME" {
		t.Errorf("failed: %+v", r)
	}
	if r := run("exit 3", time.Minute); r.Failed != "check: exit status 3" {
		t.Errorf("silent: %+v", r)
	}
	if r := run("yes ä | tr -d '\\n' | head -c 100000; exit 1", time.Minute); len(r.Failed) > 2*maxLine || !strings.HasSuffix(r.Failed, "...") {
		t.Errorf("a long line: %+v", r)
	}
	for i := range timeoutsToDrain {
		r := run("sleep 1000 & wait", 50*time.Millisecond)
		if drained := i+1 == timeoutsToDrain; r.Timeouts != uint64(i+1) || (r.Failed != "") != drained || (r.Notice != "") == drained {
			t.Errorf("hang %d: %+v", i, r)
		}
	}
	if r := run("true", time.Minute); r.Failed != "" || r.Timeouts != timeoutsToDrain {
		t.Errorf("fine again: %+v", r)
	}
	_, err := Run(t.Context(), path+"-missing", "n1", time.Minute)
	if r := result.Ran("check", time.Minute, "", err); r.Failed != "" || !strings.Contains(r.Notice, "no such file") {
		t.Errorf("missing: %+v", r)
	}
}

// TestInfiniBandPorts: a port that is down for three polls, or flaps twice in 5 minutes, drains; one flap,
// and a port that was never active, do not.
func TestInfiniBandPorts(t *testing.T) {
	root := t.TempDir()
	set := func(port, file, text string) { writeFile(t, filepath.Join(root, port, file), text+"\n", 0o644) }
	const one, two = "mlx5_0/ports/1", "mlx5_1/ports/1"
	set(one, "state", "4: ACTIVE")
	set(two, "state", "1: DOWN")
	set(one, linkDowned, "0")
	ib, now := NewInfiniBand(root, nil), time.Unix(1_800_000_000, 0)
	poll := func() string {
		now = now.Add(5 * time.Second)
		text := ""
		for _, c := range ib.Poll(now) {
			text += c.Message + "; "
		}
		return text
	}
	for i, c := range []struct{ state, downed, want string }{
		{"4: ACTIVE", "0", ""}, {"1: DOWN", "1", ""}, {"4: ACTIVE", "1", ""}, // one flap
		{"4: ACTIVE", "1", ""}, {"4: ACTIVE", "2", "InfiniBand port mlx5_0/1 lost its link 2 times; "}, // between two polls
	} {
		set(one, "state", c.state)
		set(one, linkDowned, c.downed)
		if got := poll(); got != c.want {
			t.Errorf("step %d: %q, want %q", i, got, c.want)
		}
	}
	if now = now.Add(portRest); poll() != "" {
		t.Error("flaps are not forgotten")
	}
	set(one, "state", "2: INIT")
	if got := poll() + poll(); got != "" {
		t.Errorf("down for two polls: %q", got)
	}
	if got := poll(); got != "InfiniBand port mlx5_0/1 is INIT; " {
		t.Errorf("down: %q", got)
	}
	ib = NewInfiniBand(root, ib.Ports()) // as after a restart
	if err := os.RemoveAll(filepath.Join(root, "mlx5_0")); err != nil {
		t.Fatal(err)
	}
	if got := poll() + poll() + poll(); got != "InfiniBand port mlx5_0/1 is missing; " {
		t.Errorf("missing: %q", got)
	}
}

// TestInfiniBandCounters: a counter must grow too fast twice in 5 minutes.
func TestInfiniBandCounters(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "mlx5_0/ports/1")
	writeFile(t, filepath.Join(dir, "state"), "4: ACTIVE\n", 0o644)
	ib, now := NewInfiniBand(root, nil), time.Unix(1_800_000_000, 0)
	total := 0
	minute := func(errors int) int {
		now, total = now.Add(time.Minute), total+errors
		writeFile(t, filepath.Join(dir, "counters/port_rcv_errors"), fmt.Sprintln(total), 0o644)
		return len(ib.Poll(now))
	}
	for i, c := range []struct{ errors, want int }{{5000, 0}, {600, 0}, {601, 0}, {0, 0}, {601, 1}} {
		if got := minute(c.errors); got != c.want {
			t.Errorf("minute %d: %d conditions", i, got)
		}
	}
}

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	if why := Disk(dir); why != "" {
		t.Error(why)
	}
	if why := Disk(filepath.Join(dir, "missing")); !strings.Contains(why, "no such file") {
		t.Errorf("missing: %q", why)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if why := Disk("/proc"); why == "" {
		t.Error("a file system without space")
	}
}

// TestKernelLogOfGPUs: errors of the driver are reported, and lines that programs wrote are not.
func TestKernelLogOfGPUs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, stop := context.WithCancel(t.Context())
	events, ended := make(chan gpu.Event, 10), make(chan error, 1)
	go func() { ended <- WatchKernel(ctx, path, func(e gpu.Event) { events <- e }) }()
	for _, line := range []string{
		"12,1,1,-;NVRM: Xid (PCI:0000:1b:00): 48, written by a program",
		"6,2,2,-;usb 1-1: new device",
		"4,3,3,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus.",
		" DEVICE=+pci:0000:1b:00.0",
	} {
		if _, err := log.WriteString(line + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	if e := <-events; e.XID != 79 || e.Bus != "0000:1b:00.0" {
		t.Errorf("%+v", e)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if err := WatchKernel(t.Context(), path+"-missing", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}
