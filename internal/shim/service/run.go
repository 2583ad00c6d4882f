//go:build linux

package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/greylag/greylag/internal/shim"
)

// errOCI means that the OCI runtime created no container.
var errOCI = errors.New("OCI runtime create failed")

// run creates the container and starts its first process, which becomes a child of this process. It
// calls the OCI runtime once; containerd's own shim calls it twice. ginit waits for its order
// between the two steps. When ctx ends, the OCI runtime and its hooks are killed, and the container
// stays to be deleted.
func run(ctx context.Context, oci shim.OCI, id, bundle string) (*os.Process, error) {
	pidFile := filepath.Join(bundle, "init.pid")
	// Its output and error would be the container's too: none.
	command := oci.Command(bundle, "run", "--detach", "--bundle", bundle, "--pid-file", pidFile, id)
	// The OCI runtime must not outlive this process, since its container would be an orphan. The
	// kernel takes the end of the thread that started it for the end of this process.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := command.Start()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) })
		err = command.Wait()
		stop()
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: it did not end and was killed: %w", errOCI, ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", errOCI, reason(bundle, err))
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOCI, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return nil, fmt.Errorf("%w: %q is not a process", errOCI, text)
	}
	return os.FindProcess(pid)
}

// reason returns the last error that the OCI runtime logged, or what else is known.
func reason(bundle string, err error) string {
	log, _ := os.ReadFile(filepath.Join(bundle, shim.LogFile)) // a missing log has no reason
	last := ""
	for line := range bytes.Lines(log) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal(line, &entry) == nil && (entry.Level == "error" || entry.Level == "fatal") {
			last = entry.Msg
		}
	}
	if last == "" {
		return err.Error()
	}
	return strings.TrimSpace(last)
}
