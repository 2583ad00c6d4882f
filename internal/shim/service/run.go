//go:build linux

package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/shim"
)

// errOCI says that the OCI runtime made no container.
var errOCI = errors.New("OCI runtime create failed")

// run makes the container and begins its first process, which becomes our child. One call
// of the OCI runtime where containerd's own shim makes two: what waits between them for
// leave to begin is ginit, which claims its order.
func run(oci shim.OCI, id, bundle string) (*os.Process, error) {
	pidFile := filepath.Join(bundle, "init.pid")
	// Its output and error would be the container's too: none.
	err := oci.Command(bundle, "run", "--detach", "--bundle", bundle, "--pid-file", pidFile, id).Run()
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
