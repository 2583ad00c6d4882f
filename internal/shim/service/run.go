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

// errOCI says that the OCI runtime made no container.
var errOCI = errors.New("OCI runtime create failed")

// run makes the container and begins its first process, which becomes our child. One call
// of the OCI runtime where containerd's own shim makes two: what waits between them for
// leave to begin is ginit, which claims its order. When the context ends it is killed, with the
// hooks that it runs; what it has made stays, to be deleted.
func run(ctx context.Context, oci shim.OCI, id, bundle string) (*os.Process, error) {
	pidFile := filepath.Join(bundle, "init.pid")
	// Its output and error would be the container's too: none.
	command := oci.Command(bundle, "run", "--detach", "--bundle", bundle, "--pid-file", pidFile, id)
	// Nor may it outlive us: the container that it then makes would be nobody's. The kernel
	// counts the end of the thread that began it as ours.
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
		return nil, fmt.Errorf("%w: it did not come to an end, and was killed: %w", errOCI, ctx.Err())
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

// reason is the last error that the OCI runtime has logged, or what else is known.
func reason(bundle string, err error) string {
	log, _ := os.ReadFile(filepath.Join(bundle, shim.LogFile)) // nothing there says nothing
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
